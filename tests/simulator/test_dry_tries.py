"""The option --try of the command dry: what a change of the program would save."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torch_openreg.simulator import _expandable
from torch_openreg.simulator._cli import _dry_tries
from torch_openreg.simulator._cli import dry as command
from torch_openreg.simulator._dry_changes import CHANGES

WIDTH = 256
# The blocks save 4 * WIDTH columns for backward, and get WIDTH.
PROGRAM = f"""
import os, sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
D = torch.accelerator.current_accelerator()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear({WIDTH}, {4 * WIDTH}), nn.Linear({4 * WIDTH}, {WIDTH})
    def forward(self, x, *, scale):
        return x + self.down(self.up(x).sigmoid()) * scale
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.ends = nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.Linear({WIDTH}, {WIDTH}))
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, scale=2, use_reentrant=False) if "checkpoint" in sys.argv else block(x, scale=2)
        return self.ends(x)
model = Model().to(D)
settings = {{"fused": {{"fused": True}}, "loop": {{"foreach": False}}}}
chosen = [value for name, value in settings.items() if name in sys.argv]
optimizer = torch.optim.AdamW(model.parameters(), **(chosen[0] if chosen else {{}}))
for _ in range(2):
    model(torch.ones(int(sys.argv[1]), {WIDTH}).to(D)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
Answer = tuple[str, dict[str, Any]]


@pytest.fixture
def answer_of(dry: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Callable[..., Answer]:
    """The output and the answer of the command for a program."""

    def run(program: str, *options: str, arguments: tuple[str, ...] = ("4096",)) -> Answer:
        file, answer = tmp_path / "train.py", tmp_path / "answer.json"
        file.write_text(program)
        status, output, _ = dry("--limit", "4K", "--json", answer, *options, file, *arguments)
        assert status == 0, output
        return output, json.loads(answer.read_text())

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "changes"),
    [
        ("4096", {"checkpoint": ("checkpoint", {"Block": 4})}),  # the peak is in backward
        ("64", {"fused=True": ("fused", {"AdamW": 1}), "foreach=False": ("loop", {"AdamW": 1})}),  # in the optimizer
    ],
)
def test_a_change_needs_the_memory_of_a_program_that_makes_it_itself(
    answer_of: Callable[..., Answer], batch: str, changes: dict[str, tuple[str, dict[str, int]]]
) -> None:
    output, answer = answer_of(PROGRAM, "--try", ",".join(changes), arguments=(batch,))
    assert [row["change"] for row in answer["tried"]] == [*changes]
    for row in answer["tried"]:
        argument, changed = changes[row["change"]]
        _, edited = answer_of(PROGRAM, arguments=(batch, argument))
        assert (row["changed"], row["fits"], row["error"]) == (changed, True, None)
        assert row["peak_allocated"] == edited["peak_allocated"] < answer["peak_allocated"]
        assert row["peak_reserved"] == edited["peak_reserved"]
        assert row["saved_bytes"] == answer["peak_reserved"] - row["peak_reserved"]
        (name, count), *_ = changed.items()
        assert f"{count} x {name}" in output.split("With one change each:")[1]


# Each tensor is larger than the one before, so no segment of an allocator without expandable segments is used again.
GROWING = "import torch\nfor size in (30, 50, 70):\n    x = torch.empty(size << 20, dtype=torch.int8, device='openreg')\n    del x\n"


def test_expandable_segments_save_what_a_growing_tensor_leaves_behind(answer_of: Callable[..., Answer]) -> None:
    output, answer = answer_of(GROWING, "--try", "expandable_segments")
    (row,) = answer["tried"]
    assert answer["peak_reserved"] == (30 + 50 + 70) << 20
    assert row == {
        "change": "expandable_segments",
        "changed": {"segment": 1},
        "error": None,
        "fits": True,
        "peak_allocated": answer["peak_allocated"],
        "peak_reserved": 80 << 20,  # 4 steps of 20 MiB
        "saved_bytes": 70 << 20,
        "step_seconds": answer["step_seconds"],
    }
    assert "1 x segment" in output


def test_expandable_segments_have_no_answer_for_a_program_that_does_not_fit(
    dry: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\ntorch.empty(1 << 50, dtype=torch.int8, device='openreg')\n")
    status, output, _ = dry("--try", "expandable_segments", file)
    assert status == 1 and f"does not apply: {CHANGES['expandable_segments']}" in output


def history(*calls: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    return [dict(zip(("action", "addr", "size", "stream"), each, strict=True)) for each in calls]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ((), (0, 0)),
        # A small block and a large one, and another stream: a segment for each.
        ((("alloc", 1, 1, 0), ("alloc", 2, MIB + 1, 0), ("alloc", 3, 512, 7)), (24 * MIB, 3)),
        # The end grows, together with the free range before it.
        ((("alloc", 1, 30 * MIB, 0), ("free_completed", 1, 30 * MIB, 0), ("alloc", 2, 41 * MIB, 0)), (60 * MIB, 1)),
        # The hole fits exactly, so the free end stays for the block after it.
        (
            (
                *(("alloc", each, 10 * MIB, 0) for each in (1, 2, 3)),
                ("free_completed", 1, 10 * MIB, 0),
                ("alloc", 4, 10 * MIB, 0),
                ("alloc", 5, 10 * MIB, 0),
            ),
            (40 * MIB, 1),
        ),
        # Neighbours become one range.
        (
            (
                *(("alloc", each, 10 * MIB, 0) for each in (1, 2, 3, 4)),
                *(("free_completed", each, 10 * MIB, 0) for each in (1, 3, 2)),
                ("alloc", 5, 30 * MIB, 0),
            ),
            (40 * MIB, 1),
        ),
        # A free that only waits for an event keeps the block.
        ((("alloc", 1, 20 * MIB, 0), ("free_requested", 1, 20 * MIB, 0), ("alloc", 2, 20 * MIB, 0)), (40 * MIB, 1)),
    ],
)
def test_expandable_segments_grow_as_cudas(calls: Any, expected: tuple[int, int]) -> None:
    assert _expandable.reserved(history(*calls)) == expected


def test_a_change_that_finds_nothing_says_so(answer_of: Callable[..., Answer], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("--try", "fused=True,reshard_after_forward=False", "--html", str(page))
    output, answer = answer_of(PROGRAM, *options, arguments=("64", "loop"))
    for row in answer["tried"]:
        assert row == dict.fromkeys(row) | {"change": row["change"], "changed": {}}
        assert f"does not apply: {CHANGES[row['change']]}" in output
    assert "does not apply" in page.read_text().split("With one change each")[1]


def test_a_change_that_breaks_the_program_has_the_error(answer_of: Callable[..., Answer]) -> None:
    program = PROGRAM + "assert not optimizer.param_groups[0]['fused'], 'is fused'\n"
    output, answer = answer_of(program, "--try", "fused=True")
    (row,) = answer["tried"]
    assert (row["fits"], row["saved_bytes"], row["error"]) == (None, None, "AssertionError: is fused")
    assert "not known" in output and "AssertionError: is fused" in output


def test_a_program_that_fits_only_with_the_change_saves_no_known_bytes() -> None:
    changed = {"changed": {"Block": 4}, "fits": True, "exit_status": 0, "out_of_memory_at": None, "error": None}
    changed |= {"peak_allocated": 5, "peak_reserved": 7, "step_seconds": 0.5}
    unchanged = changed | {"changed": {}, "fits": False, "exit_status": 1, "out_of_memory_at": "train.py:2"}
    (row,) = _dry_tries.run(["checkpoint"], lambda: changed, unchanged, devices=[])
    assert (row["fits"], row["peak_reserved"], row["saved_bytes"], row["step_seconds"]) == (True, 7, None, 0.5)
    _head, before, after = _dry_tries.rows(unchanged | {"tried": [row]})
    assert (before[1], after[1], after[4], after[5]) == ("no", "yes", "", "500 ms")


def test_a_model_that_can_checkpoint_does_so_itself(answer_of: Callable[..., Answer]) -> None:
    program = PROGRAM.replace(
        "    def forward(self, x):\n",
        "    supports_gradient_checkpointing = True\n"
        "    def gradient_checkpointing_enable(self):\n"
        "        sys.argv.append('checkpoint')\n"
        "    def forward(self, x):\n",
    )
    _, answer = answer_of(program, "--try", "checkpoint")
    (row,) = answer["tried"]
    assert row["changed"] == {"Model": 1} and row["saved_bytes"] > 0


FSDP = (
    PROGRAM.replace(
        "settings =",
        "from torch.distributed.fsdp import fully_shard\n"
        "torch.distributed.init_process_group()\n"
        "for each in (*model.blocks, model):\n"
        "    fully_shard(each, **({'reshard_after_forward': False} if 'whole' in sys.argv else {}))\n"
        "settings =",
    )
    + "torch.distributed.destroy_process_group()\n"
)


@pytest.mark.slow
def test_fsdp_keeps_its_parameters_whole(answer_of: Callable[..., Answer]) -> None:
    world = ("--world", "4")
    output, answer = answer_of(FSDP, *world, "--try", "checkpoint,reshard_after_forward=False")
    _, edited = answer_of(FSDP, *world, arguments=("4096", "whole"))
    checkpointed, whole = answer["tried"]
    assert checkpointed["changed"] == {"FSDPBlock": 4} and checkpointed["saved_bytes"] > 0
    assert whole["changed"] == {"FSDPModel": 1, "FSDPBlock": 4}
    assert whole["peak_allocated"] == edited["peak_allocated"] > answer["peak_allocated"]
    assert whole["saved_bytes"] <= 0 and "-" in output.split("reshard_after_forward=False  ")[-1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--try", "fusd"), "'fusd' is no change. Choose from checkpoint, fused=True, "),
        (("--try", "all", "--model", "cuda-t4,cuda-a100"), "--find, --html and --try are for one model"),
    ],
)
def test_wrong_usage_is_refused(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*options, "train.py"])
    assert ended.value.code == 2 and text in capsys.readouterr().err
