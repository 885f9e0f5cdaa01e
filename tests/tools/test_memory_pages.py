"""``python -m torch_openreg memory``: what a snapshot shows, in words and as a page that works offline."""

from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import programs
import pytest
from comparison import DEVICE
from html_page import Page
from programs import Done, Run

from torch_openreg import _page
from torch_openreg._cli import memory as command

MIB = 1 << 20


def entry(action: str, address: int, size: int, *frames: tuple[str, int, str]) -> dict[str, Any]:
    named = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": named}


PARAMETER = (("/x/torch/nn/modules/module.py", 9, "_apply"), ("/home/me/train.py", 3, "build"))
ACTIVATION = (("/x/torch/nn/modules/module.py", 9, "_call_impl"), ("/home/me/train.py", 8, "step"))


def block(address: int, size: int, state: str) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": []}


# The segment of 10 MB holds 1 MB from before the history, 3 MB of parameters, a hole of 4 MB that a freed activation
# leaves, and an activation of 2 MB. The segment of 2 MB is unused.
SNAPSHOT: dict[str, Any] = {
    "segments": [
        {
            "device": 0,
            "address": 0,
            "total_size": 10_000_000,
            "allocated_size": 6_000_000,
            "active_size": 6_000_000,
            "stream": 0,
            "blocks": [
                block(0, 1_000_000, "active_allocated"),
                block(1_000_000, 3_000_000, "active_allocated"),
                block(4_000_000, 4_000_000, "inactive"),
                block(8_000_000, 2_000_000, "active_allocated"),
            ],
        },
        {
            "device": 0,
            "address": 20_000_000,
            "total_size": 2_000_000,
            "allocated_size": 0,
            "active_size": 0,
            "stream": 0,
            "blocks": [block(20_000_000, 2_000_000, "inactive")],
        },
    ],
    "device_traces": [
        [
            entry("alloc", 1_000_000, 3_000_000, *PARAMETER),
            entry("alloc", 4_000_000, 4_000_000, *ACTIVATION),
            entry("segment_alloc", 20_000_000, 2_000_000),
            entry("alloc", 8_000_000, 2_000_000, *ACTIVATION),
            entry("free_requested", 4_000_000, 4_000_000),
            entry("free_completed", 4_000_000, 4_000_000),
            entry("snapshot", 0, 0),
        ],
        [entry("snapshot", 0, 0)],
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT))
    return path


def test_the_words_and_the_page_name_the_pools_of_graphs(tmp_path: Path) -> None:
    first, second = SNAPSHOT["segments"]
    graph = {**second, "segment_pool_id": (3, 0), "active_size": 500_000}
    other = {**second, "address": 40_000_000, "segment_pool_id": (0, 2)}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({**SNAPSHOT, "segments": [{**first, "segment_pool_id": (0, 0)}, graph, other]}))
    lines = run_command(path).stdout.splitlines()
    rest = "are in use, and no other tensor gets the rest until the pool is gone."
    assert lines[2:4] == [
        f"  The pool (0, 2) has 1 segment of 2.0 MB: 0 B {rest}",
        f"  The pool (3, 0) of graphs has 1 segment of 2.0 MB: 500.0 KB {rest}",
    ]
    page = command.page(command.load(path))
    assert "2.0 MB of stream 0, the pool (3, 0) of graphs, 500.0 KB in use" in page
    assert "<p>10.0 MB of stream 0, 6.0 MB in use, 4.0 MB in holes</p>" in page


def run_command(*arguments: str | Path) -> Done:
    return programs.run(sys.executable, "-m", "torch_openreg", "memory", *arguments)


def test_the_words_are_those_of_a_snapshot_of_known_numbers(file: Path) -> None:
    result = run_command(file)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "Device 0\n"
        "  At the end the allocator holds 2 segments of 12.0 MB: 6.0 MB are in use, 2.0 MB are in segments that "
        "nothing uses, which empty_cache() gives back, and 4.0 MB are fragmented: "
        "1 hole in segments in use, the largest of 4.0 MB.\n"
        "  The peak was 10.0 MB in 4 allocations, after entry 4 of the 7 of the history (alloc, 2.0 MB).\n"
        "  Alive then: forward: activations 6.0 MB, parameters and buffers 3.0 MB, "
        "allocated before the history began 1.0 MB.\n"
        "  The allocator held 12.0 MB at that moment, 2.0 MB more than was asked for: 2.0 MB in segments that "
        "nothing used, and 0 B (0 %) that rounding and fragmentation cost.\n"
        "  By line of Python, at the peak:\n"
        "       6.0 MB  train.py:8 step\n"
        "       3.0 MB  train.py:3 build\n"
        "       1.0 MB  allocated before the history began\n"
    )


def test_the_history_is_reconstructed(file: Path) -> None:
    (device,) = command.load(file)
    assert [total / 1e6 for total in device.allocated] == [4, 8, 8, 10, 10, 6, 6]
    assert [total / 1e6 for total in device.reserved] == [10, 10, 12, 12, 12, 12, 12]


def test_an_allocation_that_failed_is_named_with_its_line(tmp_path: Path) -> None:
    failed = {**entry("oom", 0, 5_000_000_000, *ACTIVATION), "device_free": 1_000_000}
    del failed["addr"]
    history = [*SNAPSHOT["device_traces"][0], failed]
    path = tmp_path / "snapshot.pickle"
    for count, words in ((1, "failed with"), (2, "failed 2 times, the last time with")):
        path.write_bytes(pickle.dumps({**SNAPSHOT, "device_traces": [history + [failed] * (count - 1)]}))
        result = run_command(path)
        assert (result.returncode, result.stderr) == (0, "")
        sentence = f"  An allocation of 5.0 GB {words} 1.0 MB free on the device: train.py:8 step.\n"
        assert sentence in result.stdout
        assert sentence.strip() in run_command(path, "--html").stdout


def dump_of(run_python: Run, tmp_path: Path, program: str) -> Path:
    """The path of the snapshot that train.py dumps. `program` begins in its line 5, after the recording has begun."""
    path = tmp_path / "real.pickle"
    file = tmp_path / "train.py"
    file.write_text(
        f"""
import torch
from torch_openreg.openreg import memory
memory._record_memory_history(stacks="python")
{program}
memory._dump_snapshot({str(path)!r})
"""
    )
    assert run_python(f"import runpy; runpy.run_path({str(file)!r})").returncode == 0
    return path


def test_an_out_of_memory_error_of_a_real_run_is_named(run_python: Run, tmp_path: Path) -> None:
    program = f"""
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="{DEVICE}")
except torch.OutOfMemoryError:
    pass
"""
    path = dump_of(run_python, tmp_path, program.strip())
    result = run_command(path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "An allocation of 1125899.9 GB failed with " in result.stdout
    assert " free on the device: train.py:6 <module>.\n" in result.stdout


def test_segments_that_are_mapped_in_parts_count_as_reserved(tmp_path: Path) -> None:
    """Expandable segments of CUDA: the first segment grows by 6 MB, then the second one gives back 1 MB at its end."""
    history = [
        {**entry("alloc", 1_000_000, 3_000_000), "frames": []},
        entry("segment_map", 4_000_000, 6_000_000),
        entry("segment_unmap", 22_000_000, 1_000_000),
        entry("snapshot", 0, 0),
    ]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({**SNAPSHOT, "device_traces": [history]}))
    (device,) = command.load(path)
    assert [total / 1e6 for total in device.reserved] == [7, 13, 12, 12]
    assert [device.unused_segments(at) / 1e6 for at in range(4)] == [3, 3, 2, 2]


def test_the_page_refers_to_no_other_file_or_address(file: Path) -> None:
    text = run_command(file, "--html").stdout
    assert Page(text).references == []
    assert "://" not in text and "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text
    assert "train.py:8 step" in text
    assert "4.0 MB in holes" in text


def test_names_of_files_are_text_in_the_page(tmp_path: Path) -> None:
    snapshot = {**SNAPSHOT, "device_traces": [[entry("alloc", 50, 1000, ('/me/<b>&".py', 3, "<lambda>"))]]}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    text = run_command(path, "--html").stdout
    Page(text)
    assert "&lt;b&gt;&amp;&quot;.py:3 &lt;lambda&gt;" in text
    assert "<lambda>" not in text


@pytest.mark.slow
def test_a_real_run_is_explained(run_python: Run, tmp_path: Path) -> None:
    program = f"""
model = torch.nn.Linear(1024, 1024, bias=False).to("{DEVICE}")
optimizer = torch.optim.Adam(model.parameters())
def step():
    held = torch.empty(3 << 20, dtype=torch.uint8, device="{DEVICE}")
    model(torch.ones(256, 1024, device="{DEVICE}")).sum().backward()
    optimizer.step()
step()
"""
    path = dump_of(run_python, tmp_path, program.strip())
    (device,) = command.load(path)
    kinds = command.group(device.alive(device.peak), lambda block: block.category)
    assert kinds["parameters and buffers"] == 4 * MIB
    assert kinds["backward: gradients"] == 4 * MIB
    assert kinds["optimizer state"] >= 8 * MIB
    assert dict(command.by_line(device))["train.py:8 step"] == 3 * MIB
    assert device.allocated[device.peak] >= 19 * MIB
    assert all(held >= used for held, used in zip(device.reserved, device.allocated, strict=True))
    assert device.reserved[0] <= device.reserved[-1] == sum(each["total_size"] for each in device.segments)
    Page(run_command(path, "--html").stdout)


def test_a_snapshot_without_a_history_says_what_to_call(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({**SNAPSHOT, "device_traces": []}))
    assert (
        "There is no history: call torch.openreg.memory._record_memory_history() before the program."
        in run_command(path).stdout
    )


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made_by_a_pickle",)


def test_a_file_that_is_no_snapshot_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(Evil()))
    result = run_command(path)
    assert result.returncode == 1
    assert "the file names posix.mkdir, and no snapshot names a class or function" in result.stderr
    assert not (tmp_path / "made_by_a_pickle").exists()


@pytest.mark.parametrize(
    "text", [b"", b"Iabc\n", b"NNa.", b"\x80\x63", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff", b"{}"]
)
def test_a_file_that_is_no_pickle_is_one_sentence(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.pickle"
    path.write_bytes(text)
    result = run_command(path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"torch-openreg memory: cannot read {path} as a snapshot: ")
    assert result.stderr.count("\n") == 1


def test_areas_are_as_high_as_their_values() -> None:
    text = _page.stacked_areas([("a", [1.0, 3.0]), ("b", [1.0, 1.0])], label="x", unit="MB")
    Page(text)
    first, second = (
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(r'<polygon points="([^"]+)"', text)
    )
    top, bottom = 18.0, 18.0 + 260
    scale = (bottom - top) / (4.0 * 1.05)
    assert [round((bottom - y) / scale, 2) for _, y in first[:4]] == [1, 1, 3, 3]
    assert [round((bottom - y) / scale, 2) for _, y in second[:4]] == [2, 2, 4, 4]
    assert [round((bottom - y) / scale, 2) for _, y in second[4:]] == [3, 3, 1, 1]


def test_the_lines_of_an_axis_are_at_round_values() -> None:
    def axis(highest: float) -> list[str]:
        return re.findall(r">([^<]+ MB)</text>", _page.stacked_areas([("a", [highest])], label="x", unit="MB"))

    assert axis(4.0) == ["0 MB", "1 MB", "2 MB", "3 MB", "4 MB"]
    assert axis(42.0) == ["0 MB", "10 MB", "20 MB", "30 MB", "40 MB"]
    assert axis(0.0011) == ["0 MB", "0.0002 MB", "0.0004 MB", "0.0006 MB", "0.0008 MB", "0.001 MB"]
    assert axis(1990.0) == ["0 MB", "500 MB", "1000 MB", "1500 MB", "2000 MB"]
