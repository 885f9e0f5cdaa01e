"""The device in a child process: refused after a fork that follows its start, as CUDA does; spawned children use it."""

from __future__ import annotations

import sys
from pathlib import Path

import programs
import pytest
from comparison import NAME, PRELUDE
from forks import fork
from programs import Run

BAD_FORK = (
    f"Cannot re-initialize {NAME} in forked subprocess. To use {NAME} with multiprocessing, "
    "you must use the 'spawn' start method"
)


@pytest.mark.parametrize(
    "use",
    [
        "torch.ones(2, device=DEVICE)",
        "torch.ones(2).to(DEVICE_1)",
        "x + 1",
        "x.cpu()",
        "print(x)",
        "openreg.synchronize()",
        "openreg.init()",
        "openreg.mem_get_info()",
        "openreg.set_device(1)",
        "openreg.Stream()",
        "openreg.set_sync_debug_mode('warn')",
        "import torch_openreg; torch_openreg.openreg.record_launch_sites()",
        "torch.accelerator.synchronize()",
    ],
)
def test_using_the_device_in_a_forked_child_is_refused_in_cudas_words(run_python: Run, use: str) -> None:
    assert fork(run_python, use) == f"{BAD_FORK}\nchild exited with 0\n"


def test_the_child_of_a_parent_that_only_initialised_is_refused_too(run_python: Run) -> None:
    output = fork(run_python, "torch.ones(2, device=DEVICE)", parent="openreg.init()")
    assert output == f"{BAD_FORK}\nchild exited with 0\n"


def test_a_forked_child_knows_that_it_is_one(run_python: Run) -> None:
    child = "o = openreg; print(o._is_in_bad_fork(), o.is_initialized(), o.device_count(), flush=True)"
    assert fork(run_python, child) == "True False 2\nchild exited with 0\n"


def test_a_forked_child_may_drop_what_it_inherited(run_python: Run) -> None:
    parent = """
x = torch.ones(4, device=DEVICE)
y = x[1:]
pinned = torch.ones(4).pin_memory()
stream = openreg.Stream()
event = openreg.Event()
event.record(stream)
"""
    assert fork(run_python, "del x, y, pinned, stream, event", parent) == "child exited with 0\n"


def test_a_forked_child_uses_the_cpu_and_seeds_as_before(run_python: Run) -> None:
    child = "torch.manual_seed(0); print((torch.ones(2) + 1).tolist(), flush=True)"
    assert fork(run_python, child) == "[2.0, 2.0]\nchild exited with 0\n"


def test_a_forked_child_reads_pinned_memory(run_python: Run) -> None:
    parent = "x = torch.ones(4, device=DEVICE); pinned = torch.ones(2).pin_memory()"
    assert fork(run_python, "print(pinned.tolist(), flush=True)", parent) == "[1.0, 1.0]\nchild exited with 0\n"


STAGED = """
import os, torch
staging = torch.ones(1 << 16, device=torch.accelerator.current_accelerator()).to("cpu", non_blocking=True).pin_memory()
torch.accelerator.synchronize()
wake, wakes = os.pipe()
if os.fork() == 0:
    os.read(wake, 1)
    print("the writer sees", staging[0].item(), flush=True)
    os._exit(0)
address = staging.data_ptr()
del staging
reused = torch.full((1 << 16,), 2.0).pin_memory()
os.write(wakes, b".")
print(os.wait()[1], reused.data_ptr() == address)
"""


@pytest.mark.parametrize("name", ["openreg", "cuda"])
def test_a_forked_writer_of_a_checkpoint_sees_what_reuses_its_pinned_memory(run_python: Run, name: str) -> None:
    run_python(STAGED, TORCH_OPENREG_AS=name, status=0, output="the writer sees 2.0\n0 True\n", errors="")


@pytest.mark.parametrize("parent", ["", "torch.manual_seed(0)", "openreg.is_available()", "openreg.device_count()"])
def test_a_fork_before_the_first_use_leaves_the_device_to_the_child(run_python: Run, parent: str) -> None:
    child = "print(torch.ones(2, device=DEVICE).cpu().tolist(), flush=True)"
    assert fork(run_python, child, parent) == "[1.0, 1.0]\nchild exited with 0\n"


CHILD = """
import sys, torch.multiprocessing as mp

def work(queue):
    queue.put((torch.arange(3.0, device=DEVICE_1) + 1).cpu().tolist())

if __name__ == "__main__":
    x = torch.ones(2, device=DEVICE)
    context = mp.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_are_not_forked_from_us_use_the_device(tmp_path: Path, method: str) -> None:
    # These children import the main program again, so it must be a file.
    (tmp_path / "program.py").write_text(PRELUDE + CHILD)
    programs.run(sys.executable, "program.py", method, cwd=tmp_path, status=0, output="[1.0, 2.0, 3.0]\n0\n")


def test_a_dataloader_with_forked_workers_feeds_the_device(run_python: Run) -> None:
    code = """
from torch.utils.data import DataLoader, TensorDataset
x = torch.ones(2, device=DEVICE)
data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2, pin_memory=True)
print([batch.to(DEVICE, non_blocking=True).sum().item() for (batch,) in data])
"""
    run_python(PRELUDE + code, status=0, output="[6.0, 22.0]\n", errors="")
