"""Dry execution: a program allocates as always, and its large tensors are not computed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import dry_programs
import programs
import pytest
from programs import COMPILER

from torch_openreg.simulator._cli import _dry_table
from torch_openreg.simulator._cli import dry as command

# Most tensors of the programs are larger than this.
LIMIT = "4K"


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The command sets variables for the programs that it runs."""
    with mock.patch.dict(os.environ):
        yield


def python(code: str, limit: str = LIMIT, **variables: str) -> str:
    """The output of a program in dry execution; D is its device."""
    variables = {"OPENREG_DRY": limit} | variables
    return programs.python(
        "import torch\nD = torch.accelerator.current_accelerator()\n" + code, status=0, **variables
    ).stdout


def test_peak_memory_equals_the_computing_mode_to_the_byte() -> None:
    found = {}
    for mode, variables in {"computing": {}, "dry": {"OPENREG_DRY": LIMIT}}.items():
        done = programs.run(sys.executable, dry_programs.__file__, status=0, imports=COMPILER, **variables)
        found[mode] = json.loads(done.stdout)
    assert list(found["dry"]) == list(dry_programs.PROGRAMS)
    assert found["dry"] == found["computing"]
    assert all(len(peaks) == 2 and min(peaks) > 0 for peaks in found["dry"].values()), found["dry"]


# Name -> code. The code prints what its test expects. D is the device, and news() returns the rows of assumed_reads() since
# the last call, without the line. All run in one process, because dry execution lasts until the process ends.
SNIPPETS = {
    "small": """
x = torch.arange(8.0, device=D)
print((x @ x).item(), x[x > 5].tolist(), news())
""",
    "skipped": """
x = torch.ones(100, 100, device=D)
total = x.sum() + 1
print(total.item(), news())
""",
    "overwritten": """
small = torch.ones(100, 100, device=D).sum(0)
small.fill_(3)
print(small.sum().item(), news())
small[:50] = torch.ones(100, 100, device=D)[0, :50]
print(small[50:].sum().item(), news())
small.sum().item()
print(news())
""",
    "integers": """
ids = torch.arange(10000).to(D)
mask = ids[:1000] >= 10
x = torch.ones(1000, 100, device=D)
print(ids[9999].item(), mask.sum().item(), x[mask].shape, news())
""",
    "shape": """
print(torch.ones(100, 100, device=D).nonzero().shape)
""",
    "errors": """
a, b = torch.ones(100, 100, device=D), torch.ones(101, 100, device=D)
for wrong in (lambda: a + b, lambda: a @ b, lambda: a + torch.ones(100, 100), lambda: torch.openreg.dry.start()):
    try:
        wrong()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
""",
    "host_zeros": """
used = torch.full((1000, 1000), 7.0)
used.zero_()
print(used.abs().sum().item(), torch.full((1000, 1000), 7.0).sum().item(), news())
print(torch.rand(1000, 1000).sum().item(), news())
""",
    "raw_copy": """
x = torch.ones(100, 100, device=D)
x.untyped_storage().resize_(80000)
print(x[0].sum().item(), news())
x = torch.ones(10, device=D)
x.untyped_storage().resize_(80)
print(x.sum().item(), news())
""",
    "sparse": """
indices = torch.arange(10000).to(D)[None]
values = torch.ones(10000, device=D)
try:
    print(torch.sparse_coo_tensor(indices, values, (10000,)).coalesce())
except NotImplementedError as error:
    print(error)
""",
    "collective": """
import torch.distributed as dist
dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
small, large = torch.ones(10, device=D), torch.ones(100, 100, device=D)
dist.all_reduce(small)
print(small.sum().item(), news())
try:
    dist.all_reduce(large)
except NotImplementedError as error:
    print(error)
dist.destroy_process_group()
""",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What each of SNIPPETS has printed."""
    code = f"""
import contextlib, io, json, traceback
seen = {{}}
def news():
    rows = {{read[:2]: read.count for read in torch.openreg.dry.assumed_reads()}}
    new = [(how, count - seen.get((line, how), 0)) for (line, how), count in rows.items()]
    seen.update(rows)
    return [row for row in new if row[1]]
outputs = {{}}
for name, snippet in {SNIPPETS!r}.items():
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            exec(snippet, {{"torch": torch, "D": D, "news": news}})
        except BaseException:
            traceback.print_exc(file=output)
    news()
    outputs[name] = output.getvalue()
print(json.dumps(outputs))
"""
    found: dict[str, str] = json.loads(python(code).splitlines()[-1])
    return found


def test_small_tensors_are_computed(outputs: dict[str, str]) -> None:
    assert outputs["small"] == "140.0 [6.0, 7.0] []\n"


def test_a_skipped_result_is_zero_and_what_is_computed_from_it_is_assumed(outputs: dict[str, str]) -> None:
    assert outputs["skipped"] == "1.0 [('item()', 1)]\n"


def test_what_is_overwritten_is_known_again(outputs: dict[str, str]) -> None:
    assert outputs["overwritten"] == "300.0 []\n150.0 []\n[('item()', 1)]\n"


def test_integers_from_the_host_are_known_whatever_their_size(outputs: dict[str, str]) -> None:
    assert outputs["integers"] == "9999 990 torch.Size([990, 100]) []\n"


def test_a_shape_that_depends_on_absent_values_is_assumed(outputs: dict[str, str]) -> None:
    assert outputs["shape"] == "torch.Size([5000, 2])\n"


def test_an_error_of_a_skipped_call_is_the_operators_own(outputs: dict[str, str]) -> None:
    lines = outputs["errors"].splitlines()
    assert lines[0].startswith("The size of tensor a (100) must match the size of tensor b (101)")
    assert len(lines) == 4
    assert lines[2].startswith("Expected all tensors to be on the same device")
    assert lines[3].startswith("Dry execution has started already.")


def test_zeros_of_the_host_are_zeros_even_in_used_memory(outputs: dict[str, str]) -> None:
    assert outputs["host_zeros"] == ("0.0 7000000.0 []\n0.0 [('random numbers of a large CPU tensor', 1)]\n")


def test_a_raw_copy_keeps_what_the_bytes_contain(outputs: dict[str, str]) -> None:
    assert outputs["raw_copy"] == "0.0 [('item()', 1)]\n10.0 []\n"


def test_a_kernel_that_cannot_be_skipped_is_refused_if_it_would_read_absent_bytes(outputs: dict[str, str]) -> None:
    assert outputs["sparse"].startswith("dry execution cannot skip 'aten::")
    assert outputs["sparse"].endswith(
        "', which would read large tensors that were not computed. It skips PyTorch's operators, copies, and the "
        "kernels of torch.compile.\n"
    )


def test_a_collective_makes_assumed_values_and_is_refused_for_absent_bytes(outputs: dict[str, str]) -> None:
    small, large = outputs["collective"].splitlines()
    assert small == "10.0 [('item()', 1)]"
    assert large.startswith("dry execution cannot skip 'occl:all_reduce', which would read large tensors")


def test_a_read_names_the_line_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "x = torch.ones(100, 100, device='openreg')\n"
        "def step():\n"
        "    return x.mean().item()\n"
        "step(), step()\n"
        "print(torch.openreg.dry.assumed_reads())\n"
    )
    done = programs.run(sys.executable, program, status=0, OPENREG_DRY=LIMIT)
    assert done.stdout == f"[AssumedRead(line='{program}:4 in step', how='item()', count=2)]\n"


ASSUMING = """
import sys, torch
D = torch.accelerator.current_accelerator()
x = torch.ones(100, 100, device=D)
for step in range(5):
    if x.sum().item() < 0.5:
        break
tokens = 0
while tokens < 9:
    tokens += 1
    ended = (x @ x).argmax(-1) == 3
    if ended.all():
        break
print(step, tokens, torch.equal(x, x + 1), x[0].tolist()[:2], x.sum().item())
"""


@pytest.mark.parametrize("device_type", ["openreg", "cuda"])
def test_values_that_are_assumed_end_loops_as_computed_ones_would(dry: Dry, tmp_path: Path, device_type: str) -> None:
    program, values = tmp_path / "program.py", tmp_path / "values.json"
    program.write_text(ASSUMING)
    lines = {
        "program.py:6": [2.0, 1.0, 0.25],
        f"{program}:12": [False, False, False, True],
        "program.py:14": 7,
        "other/program.py:6": 9,
        "ram.py:6": 9,
    }
    values.write_text(json.dumps(lines))
    options = ("--as", device_type, "--limit", LIMIT)
    assert dry(*options, program)[1].startswith("0 9 False [0.0, 0.0] 0.0\n")
    status, output, _ = dry(*options, "--assume", values, program)
    assert status == 0 and output.startswith("2 4 True [7.0, 7.0] 7.0\n"), output
    assert "Values that were not computed: zeros, or what was assumed in their place (10):" in output
    assert f"       4 x item()  {program}:12 in <module>" in output


def test_a_tensor_gets_an_assumed_value_unless_it_was_computed() -> None:
    code = """
from torch.openreg.dry import assume, assumed_reads
large, small = torch.ones(100, 100, device=D), torch.ones(2, device=D)
loss = torch.nn.Linear(100, 1, device=D)(large).mean()
assume(loss, 2.5)
loss.backward()
assume(small, 9)
row = large[0]
assume(row, torch.arange(100.0))
print(loss.item(), (loss * 2).item(), small.tolist(), row[99].item(), sum(each.count for each in assumed_reads()))
for where, value in ((large, 1), (torch.ones(1), 1), ("program.py", 1), ("program.py:3", "x"), ("program.py:3", [])):
    try:
        assume(where, value)
    except ValueError as error:
        print(error)
"""
    assert python(code).splitlines() == [
        "2.5 5.0 [1.0, 1.0] 99.0 3",
        "dry.assume() takes a tensor of at most 4096 bytes, but got one of 40000 bytes: larger tensors have no values in dry "
        "execution.",
        "dry.assume() takes a strided tensor of the device, but got one of the layout Strided on cpu.",
        "'program.py' is not a line of Python. It is written as 'train.py:12'.",
        "'x' is neither a number nor a list of numbers.",
        "[] is neither a number nor a list of numbers.",
    ]


def test_without_dry_execution_nothing_is_assumed() -> None:
    code = "x = torch.ones(2, device=D); torch.openreg.dry.assume(x, 3); print(x.tolist())"
    assert python(code, limit="") == "[1.0, 1.0]\n"


def test_values_that_cannot_be_read_are_refused_at_import(tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text('{"train.py": 1}')
    code = "import torch; torch.ones(1, device='openreg')"
    done = programs.python(code, status=1, OPENREG_DRY="1M", OPENREG_DRY_ASSUME=str(file))
    assert (
        f"OPENREG_DRY_ASSUME cannot be obeyed. The assumed values in {file} cannot be read: 'train.py' is not a line of "
        "Python. It is written as 'train.py:12'. Its JSON is an object such as "
    ) in done.stderr


def test_a_large_model_needs_no_memory_of_the_host() -> None:
    code = """
import resource
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
made_here = torch.nn.Linear(32768, 32768)
torch.nn.init.trunc_normal_(torch.empty(4096, 4096), std=0.02)
made_here.to(D, torch.bfloat16)
print(torch.accelerator.memory_allocated() >> 20, resident() - before < 1 << 30)
del made_here
with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(64)))
model.to_empty(device=D)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(16, 8192, device=D)).sum().backward()
optimizer.step()
print(torch.accelerator.memory_allocated() >> 30, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20)
"""
    assert python(code, "1M", OPENREG_DEVICE_MEMORY="500G") == "2048 True\n64 True\n"


@pytest.mark.slow
def test_the_kernels_of_a_compiled_program_are_skipped() -> None:
    code = """
@torch.compile
def f(x):
    return (x.sin() + 1).relu() * 2
@torch.compile
def g(y):
    return (y * 2).sum()
for mode in ("inline", "async"):
    with torch.openreg.execution_mode(mode):
        large, small = f(torch.ones(100, 100, device=D)), g(torch.ones(100, device=D))
        print(small.item(), sum(read.count for read in torch.openreg.dry.assumed_reads()))
        large.sum().item()
print([(read.how, read.count) for read in torch.openreg.dry.assumed_reads()])
"""
    assert python(code) == "200.0 0\n200.0 1\n[('item()', 2)]\n"


def test_the_first_matrix_product_on_a_stream_allocates_the_workspace_of_the_model() -> None:
    code = """
x = torch.ones(512, 512, device=D)
def allocated(fn):
    before = torch.accelerator.memory_allocated()
    fn()
    return torch.accelerator.memory_allocated() - before
print(allocated(lambda: x + x), allocated(lambda: x @ x), allocated(lambda: x @ x))
with torch.Stream(D):
    print(allocated(lambda: x @ x))
"""
    assert python(code, OPENREG_MODEL="cuda-h100") == f"0 {32 << 20} 0\n{32 << 20}\n"
    assert python(code) == "0 0 0\n0\n"


@pytest.mark.parametrize("device_type", ["openreg", "cuda"])
def test_the_context_of_the_model_takes_memory_that_belongs_to_no_tensor(device_type: str) -> None:
    code = """
x = torch.empty(1, device=D)
for device in range(2):
    free, total = torch.accelerator.get_memory_info(device)
    print(total - free - torch.accelerator.memory_reserved(device) >> 20, torch.accelerator.memory_allocated(device))
"""
    variables = {"TORCH_OPENREG_AS": device_type, "OPENREG_DEVICE_COUNT": "2"}
    assert python(code, OPENREG_MODEL="cuda-h100", **variables) == "381 512\n381 0\n"
    assert python(code, **variables) == "0 512\n0 0\n"


Dry = Callable[..., tuple[int, str, str]]

TRAINING = """
import sys
import torch
device = torch.accelerator.current_accelerator().type
width = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(width, width, device=device), torch.nn.ReLU())
optimizer = torch.optim.Adam(model.parameters())
def step():
    loss = model(torch.ones(64, width).to(device)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
step()
print("done on", device)
"""


def test_the_command_says_that_a_program_fits_and_what_holds_the_memory(dry: Dry, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    status, output, errors = dry("--json", tmp_path / "answer.json", program, "2048")
    assert (status, errors) == (0, "")
    assert output.startswith("done on openreg\nFits on device 0, which has 17.2 GB.\n")
    assert "parameters" in output and "optimizer state" in output and "1 x item()  " in output
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["fits"] is True and answer["out_of_memory_at"] is None and answer["step_seconds"] is None
    assert answer["peak_allocated"] >= 4 * 4 * 2048 * 2048  # parameters, gradients and two states of Adam
    assert answer["spare_bytes"] == (16 << 30) - answer["peak_reserved"] and answer["alloc_retries"] == 0
    (read,) = answer["assumed"]
    assert (read["line"], read["how"], read["count"]) == (f"{program}:13 in step", "item()", 1)


@pytest.mark.parametrize("device_type", ["openreg", "cuda"])
def test_the_command_says_where_memory_ends(dry: Dry, tmp_path: Path, device_type: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    answer_file = tmp_path / "answer.json"
    model = ("--as", device_type, "--model", "cuda-h100")
    status, output, errors = dry(*model, "--json", answer_file, program, "80000")
    assert status == 1 and "OutOfMemoryError" in errors
    answer = json.loads(answer_file.read_text())
    assert answer["fits"] is False and answer["out_of_memory_at"] == f"{program}:11 in step"
    name, device = {"openreg": ("OpenReg", "Device"), "cuda": ("CUDA", "GPU")}[device_type]
    text = f"{name} out of memory. Tried to allocate 23.84 GiB. {device} 0 has a total capacity of 79.20 GiB"
    assert answer["out_of_memory_text"].startswith(text)
    assert answer["out_of_memory_text"] in output and answer["spare_bytes"] < 0
    assert 3 * 4 * 80000**2 <= answer["peak_allocated"] < 80 << 30


def test_a_caught_out_of_memory_error_does_not_fit(dry: Dry, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\ntry:\n    torch.empty(1 << 40, device='openreg')\nexcept torch.OutOfMemoryError:\n    pass\n"
    )
    status, output, errors = dry(program)
    assert (status, errors) == (1, "")
    assert f"{program}:3 in <module>" in output and "The program caught the error and went on." in output


def test_a_program_that_fails_is_no_answer(dry: Dry, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\ntorch.ones(1, device='openreg')\nraise ValueError('no')\n")
    status, output, _ = dry(program)
    assert status == 1 and output.startswith("Not known: the program failed with exit status 1")
    assert "ValueError: no" in output


def test_a_program_that_uses_no_device_is_no_answer(dry: Dry, tmp_path: Path) -> None:
    program, answer_file = tmp_path / "train.py", tmp_path / "answer.json"
    program.write_text("import sys, torch\ntorch.ones(1)\nsys.exit(len(sys.argv) - 1)\n")
    status, output, _ = dry("--json", answer_file, program)
    text = "The program made no tensor on a device. Does it choose the device itself? A program that says `cuda` needs"
    assert status == 1 and output.startswith(text)
    answer = json.loads(answer_file.read_text())
    assert answer["fits"] is False and answer["error"].startswith(text)
    program.write_text("import torch\nraise ValueError('no')\n")
    status, output, _ = dry(program)
    assert status == 1 and output.startswith(
        "Not known: the program failed with exit status 1 before its end (no tensor was made on a device).\n"
        "  error             ValueError: no\n"
    )


def test_an_answer_says_how_to_make_the_program_fit() -> None:
    answer, _ = answer_for(200, memory=100)
    answer |= {"categories": {"forward: activations": 60, "optimizer state": 39, "other": 5}}
    answer |= {"peak_reserved": 100, "peak_allocated": 80}
    head, *hints = _dry_table.hints(answer)
    assert head == "To make it fit:"
    assert [each.split()[0] for each in hints] == ["activations:", "optimizer", "20", "--try"]
    assert all(each in command.table(answer) for each in hints)
    assert not any("To make it fit" in each for each in command.table(answer_for(20, memory=100)[0]))


@pytest.mark.parametrize(
    ("options", "count"), [((), 1), (("--device-count", "3"), 3), (("--world", "4"), 4), (("--world", "64"), 8)]
)
def test_a_program_sees_one_device_or_the_devices_of_a_host(
    dry: Dry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], count: int
) -> None:
    monkeypatch.delenv("OPENREG_DEVICE_COUNT", raising=False)
    program = tmp_path / "train.py"
    program.write_text("import torch\ntorch.ones(1, device='openreg')\nprint(torch.accelerator.device_count())\n")
    status, output, errors = dry(*options, program)
    assert (status, errors) == (0, "") and output.startswith(f"{count}\n")


def test_a_wrong_limit_is_refused_at_import() -> None:
    done = programs.python("import torch; torch.ones(1, device='openreg')", OPENREG_DRY="much")
    assert done.returncode == 1
    assert "OPENREG_DRY is 'much'. Set it to a number of bytes, such as 1M, or unset it." in done.stderr


def answer_for(
    size: int, memory: int, context: int = 0, compiled: bool = False
) -> tuple[dict[str, object], list[object]]:
    """What the command's _run() returns for a program that allocates `size` bytes."""
    failed = {"line": "train.py:2 in step", "size": size, "free": memory} if size > memory else None
    used = {
        "index": 0,
        "total": memory,
        "context": context,
        "groups": 0,
        "communicators": 0,
        "peak_allocated": size,
        "peak_reserved": size,
        "alloc_retries": 0,
    }
    report = {"devices": [used], "out_of_memory": failed, "assumed": [], "changed": {}, "error": None, "time": None}
    report["compiled"] = compiled
    return command._answer(report, [], status=1 if failed else 0), []


def test_spare_memory_is_what_neither_tensors_nor_the_context_have() -> None:
    answer, _ = answer_for(20, memory=100, context=30)
    assert (answer["fits"], answer["spare_bytes"], answer["context_bytes"]) == (True, 50, 30)
    assert "  context           30 B, which the sizes above do not contain" in command.table(answer)


def test_an_answer_says_that_compiled_code_is_not_that_of_cuda() -> None:
    assert _dry_table.COMPILED in command.table(answer_for(20, memory=100, compiled=True)[0])
    assert _dry_table.COMPILED not in command.table(answer_for(20, memory=100)[0])


def test_random_numbers_of_the_host_are_counted_together() -> None:
    rows = [("train.py:3 in init", "random numbers of a large CPU tensor", 5), ("train.py:9 in step", "item()", 3)]
    rows += [("train.py:4 in init", "random numbers of a large CPU tensor", 2)]
    assumed = [dict(zip(("line", "how", "count"), row, strict=True)) for row in rows]
    assert _dry_table.assumed_lines(assumed) == [
        "Values that were not computed: zeros, or what was assumed in their place (10):",
        "       3 x item()  train.py:9 in step",
        "       7 x random numbers of a large CPU tensor  train.py:3 in init  and at 1 more lines",
    ]
    assert _dry_table.assumed_lines([]) == []


def test_several_models_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    memory = {"cuda-t4": 15_000_000_000, "cuda-h100": 85_000_000_000}
    monkeypatch.setenv("OPENREG_MODEL", "")
    monkeypatch.setattr(
        command, "_run", lambda options, output: answer_for(20_000_000_000, memory[os.environ["OPENREG_MODEL"]])
    )
    assert command.main(["--model", "cuda-t4,cuda-h100", "--json", str(tmp_path / "answer.json"), "train.py"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "model      fits  allocated  reserved  memory   ends at",
        "cuda-t4    no    20.0 GB    20.0 GB   15.0 GB  train.py:2 in step",
        "cuda-h100  yes   20.0 GB    20.0 GB   85.0 GB",
    ]
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["fits"] is False
    assert [each["fits"] for each in answer["models"].values()] == [False, True]


@pytest.mark.parametrize("fitting", [0, 1, 2, 7, 8, 9, 15, 16, 20, 21, 99])
def test_the_largest_number_that_fits_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], fitting: int
) -> None:
    asked = []

    def run(options: argparse.Namespace, output: int | None) -> tuple[dict[str, object], list[object]]:
        asked.append(int(options.arguments[1]))
        return answer_for(asked[-1] << 30, fitting << 30)

    monkeypatch.setenv("OPENREG_MODEL", "")
    monkeypatch.setattr(command, "_run", run)
    arguments = ("--json", str(tmp_path / "answer.json"), "--find", "batch=1:20", "train.py", "--batch", "{batch}")
    assert command.main(arguments) == (0 if fitting else 1)
    found = min(fitting, 20) or None
    assert json.loads((tmp_path / "answer.json").read_text())["found"] == {"batch": found}
    assert asked[-1] == (found or 1)  # the answer is that of this number
    assert len(asked[:-1]) == len(set(asked)) <= 9
    assert f"batch={asked[0]}: {'fits' if fitting else 'does not fit'}" in capsys.readouterr().out


def test_the_search_ends_if_the_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, _ = answer_for(1, 1)
    failed = answer | {"fits": False, "exit_status": 1, "error": "ValueError: no"}
    monkeypatch.setenv("OPENREG_MODEL", "")
    monkeypatch.setattr(command, "_run", lambda options, output: (failed, []))
    with pytest.raises(SystemExit, match="with batch=1 the program failed: ValueError: no"):
        command.main(["--find", "batch=1:20", "train.py", "{batch}"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--limit", "much", "train.py"], "'much' is not valid: expected a number of bytes, such as 1M"),
        (["--model", "cuda-h10", "train.py"], "There is no device model 'cuda-h10'. Did you mean 'cuda-h100'?"),
        (["--assume", "no.json", "train.py"], "The assumed values in no.json cannot be read: [Errno 2] No such file"),
        (["--find", "batch=3", "train.py"], "'batch=3' is not valid: expected NAME=LOW:HIGH, such as batch=1:256"),
        (["--find", "batch=1:3", "train.py"], "no argument of the program contains {batch}, which --find replaces"),
        (["--world", "0", "train.py"], "'0' is not valid: expected a number of ranks, such as 8"),
        (["--world", "2", "--rank", "2", "train.py"], "--rank '2' is not valid: expected all, worst, or a number"),
        (["--rank", "1", "train.py"], "--rank '1' is not valid"),
        (
            ["torchrun", "train.py"],
            "torchrun would start processes. Give the script itself, with --world N in its place",
        ),
        (["-m", "torch.distributed.run", "train.py"], "torch.distributed.run would start processes. Give the script"),
        ([], "the following arguments are required: SCRIPT"),
    ],
)
def test_wrong_usage_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err
