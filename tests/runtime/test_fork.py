"""The device in a child process: refused after a fork that follows its start, as CUDA does; spawned children use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from comparison import NAME, PRELUDE
from environments import run

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BAD_FORK = (
    f"Cannot re-initialize {NAME} in forked subprocess. To use {NAME} with multiprocessing, "
    "you must use the 'spawn' start method"
)

# The child prints to the same stdout as its parent, which then prints the child's exit status.
FORK = """
import os, sys
{parent}
pid = os.fork()
if pid == 0:
    try:
        {child}
    except RuntimeError as error:
        print(error, flush=True)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print("child exited with", status)
assert {parent_still_works}
"""


def fork(run_python: Run, child: str, parent: str = "x = torch.ones(4, device=DEVICE)") -> str:
    still = "(torch.ones(4, device=DEVICE) * 2).cpu().tolist() == [2.0] * 4"
    result = run_python(PRELUDE + FORK.format(parent=parent, child=child, parent_still_works=still))
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


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


# LEFT OUT OF A NEW BACKEND START: faults
# If fork() did not wait, the child could inherit a lock that the copying thread holds, and nobody would release the
# lock. Python holds the GIL during os.fork(), so a copy that needed the GIL would make fork() wait in vain.
def test_a_fork_waits_for_the_copy_that_runs_and_lets_no_other_begin(run_python: Run) -> None:
    parent = (
        "openreg.execution_mode('async')\n"
        "x, pinned = torch.ones(2, device=DEVICE), torch.zeros(2).pin_memory()\n"
        "openreg.synchronize()\n"
        "faults = openreg.faults.inject('copy~300ms').__enter__()\n"
        "for i in range(2): pinned[i].copy_(x[i], non_blocking=True)\n"
        "while faults.counts[0].fired == 0: pass"
    )
    assert fork(run_python, "print(pinned.tolist(), flush=True)", parent) == "[1.0, 0.0]\nchild exited with 0\n"


# LEFT OUT OF A NEW BACKEND END
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


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_are_not_forked_from_us_use_the_device(tmp_path: Path, method: str) -> None:
    # These children import the main program again, so it must be a file.
    (tmp_path / "program.py").write_text(PRELUDE + CHILD)
    result = run([sys.executable, "program.py", method], tmp_path, {})
    assert (result.returncode, result.stdout) == (0, "[1.0, 2.0, 3.0]\n0\n"), result.stderr


def test_a_dataloader_with_forked_workers_feeds_the_device(run_python: Run) -> None:
    code = """
from torch.utils.data import DataLoader, TensorDataset
x = torch.ones(2, device=DEVICE)
data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2, pin_memory=True)
print([batch.to(DEVICE, non_blocking=True).sum().item() for (batch,) in data])
"""
    result = run_python(PRELUDE + code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[6.0, 22.0]\n", "")
