"""torch.multiprocessing with the device: tensors go to spawned processes by handle, as CUDA's; the memory is one."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sharing_worker
import torch
import torch.multiprocessing as mp
from comparison import DEVICE, DEVICE_1, assert_same
from conftest import run

pytestmark = pytest.mark.skipif(DEVICE != "openreg", reason="the other process uses this device")

MIB = 1 << 20


class Worker:
    """A spawned process that keeps what it is sent."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.requests, self.replies = context.SimpleQueue(), context.SimpleQueue()
        self.process = context.Process(target=sharing_worker.serve, args=(self.requests, self.replies))
        self.process.start()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.requests.put((function.__name__, arguments))
        del arguments
        result, error = self.replies.get()
        if error:
            raise RuntimeError(error)
        return result

    def end(self) -> None:
        self.requests.put(None)
        self.process.join(60)
        assert self.process.exitcode == 0


@pytest.fixture(scope="module")
def ask() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


keep, drop, values, describe, geometry, add = (
    sharing_worker.keep,
    sharing_worker.drop,
    sharing_worker.values,
    sharing_worker.describe,
    sharing_worker.geometry,
    sharing_worker.add,
)


def allocated() -> int:
    gc.collect()
    torch.openreg.ipc_collect()
    return torch.accelerator.memory_allocated()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8], ids=str
)
def test_a_tensor_arrives(ask: Worker, dtype: torch.dtype) -> None:
    base = torch.arange(6).reshape(2, 3).to(dtype)
    ask(keep, "a", base.to(DEVICE))
    assert ask(values, "a") == base.tolist()
    assert ask(describe, "a") == ("Tensor", dtype, "openreg:0", (2, 3), False)
    ask(drop, "a")


def test_both_processes_use_the_same_memory(ask: Worker) -> None:
    a = torch.zeros(4, device=DEVICE)
    ask(keep, "a", a)
    a.add_(1)
    ask(add, "a", 2)
    assert ask(values, "a") == [3] * 4
    assert_same(a, torch.full((4,), 3.0))
    ask(drop, "a")


@pytest.mark.skipif(torch.openreg.device_count() < 2, reason="needs two devices")
def test_it_arrives_on_the_same_device(ask: Worker) -> None:
    ask(keep, "a", torch.ones(2, device=DEVICE_1))
    assert ask(describe, "a") == ("Tensor", torch.float32, DEVICE_1, (2,), False)
    ask(drop, "a")


def test_views_arrive_as_views_of_one_storage(ask: Worker) -> None:
    base = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    view = base[1:].t()
    ask(keep, "base", base)  # one after the other, ...
    ask(keep, "view", view)
    ask(keep, "both", [base, view])  # ... and together
    assert ask(sharing_worker.same_storage, "base", "view")
    assert ask(geometry, "view") == ((1, 4), 4, 48)
    assert ask(values, "view") == view.tolist()
    ask(add, "view", 10)
    assert ask(values, "both", 0) == ask(values, "base") == base.tolist()
    assert base.tolist()[0] == [0, 1, 2, 3]
    assert base.tolist()[1] == [14, 15, 16, 17]
    for name in ("base", "view", "both"):
        ask(drop, name)


def test_parameters_and_leaves_keep_requires_grad(ask: Worker) -> None:
    ask(keep, "a", torch.nn.Parameter(torch.ones(2, device=DEVICE)))
    assert ask(describe, "a") == ("Parameter", torch.float32, "openreg:0", (2,), True)
    ask(keep, "a", torch.ones(2, device=DEVICE, requires_grad=True))
    assert ask(describe, "a") == ("Tensor", torch.float32, "openreg:0", (2,), True)
    ask(drop, "a")


def test_a_tensor_with_a_history_is_refused(ask: Worker) -> None:
    with pytest.raises(RuntimeError, match="^Cowardly refusing to serialize non-leaf tensor which requires_grad, "):
        ask(keep, "a", torch.ones(2, device=DEVICE, requires_grad=True) * 2)


@pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
def test_tensors_of_few_elements_arrive(ask: Worker, shape: tuple[int, ...]) -> None:
    ask(keep, "a", torch.ones(shape, device=DEVICE))
    assert ask(describe, "a") == ("Tensor", torch.float32, "openreg:0", shape, False)
    assert ask(values, "a") == torch.ones(shape).tolist()
    ask(drop, "a")


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse_tensors_arrive(ask: Worker, layout: torch.layout) -> None:
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    ask(keep, "a", dense.to(DEVICE).to_sparse(layout=layout))
    assert ask(values, "a") == dense.tolist()
    assert ask(describe, "a")[2] == "openreg:0"
    ask(drop, "a")


def test_storages_and_modules_arrive(ask: Worker) -> None:
    ask(keep, "a", torch.tensor([1, 2], dtype=torch.uint8, device=DEVICE).untyped_storage())
    module = torch.nn.Linear(2, 1, device=DEVICE)
    ask(keep, "b", module.state_dict())
    assert ask(values, "b", "weight") == module.weight.tolist()
    for name in "ab":
        ask(drop, name)


def test_a_result_comes_back(ask: Worker) -> None:
    a = ask(sharing_worker.make, "a", 7.0)
    assert_same(a, torch.full((4,), 7.0))
    ask(add, "a", 1.0)
    assert_same(a, torch.full((4,), 8.0))
    del a
    ask(drop, "a")


def test_cpu_tensors_go_as_before(ask: Worker) -> None:
    a = torch.zeros(3)
    ask(keep, "a", a)
    ask(add, "a", 1)
    assert a.tolist() == [1, 1, 1]
    ask(drop, "a")


# ---- Who owns the memory -------------------------------------------------------------------------------------------


def test_the_receiver_is_not_charged(ask: Worker) -> None:
    ask(sharing_worker.make, "own", 0.0)  # its device has started
    before = ask(sharing_worker.memory)
    ask(keep, "a", torch.ones(MIB, device=DEVICE))
    assert ask(sharing_worker.memory) == before
    for name in ("a", "own"):
        ask(drop, name)


def test_memory_that_the_receiver_uses_is_not_handed_out_again(ask: Worker) -> None:
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    address = a.data_ptr()
    ask(keep, "a", a)
    del a
    assert allocated() == before + 4 * MIB
    others = [torch.zeros(MIB, device=DEVICE) for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    assert ask(values, "a")[:2] == [1, 1]
    del others
    ask(drop, "a")
    assert allocated() == before


def test_memory_that_the_receiver_let_go_of_goes_with_the_senders_tensor(ask: Worker) -> None:
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    ask(keep, "a", a)
    ask(drop, "a")
    assert allocated() == before + 4 * MIB
    del a
    assert torch.accelerator.memory_allocated() == before, "at once: nothing to collect"


def test_each_message_counts(ask: Worker) -> None:
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    for name in "abc":
        ask(keep, name, a)
    assert ask(sharing_worker.same_storage, "a", "b", "c")
    del a
    for name in "abc":
        assert allocated() == before + 4 * MIB
        ask(drop, name)
    assert allocated() == before


def test_a_sender_may_let_go_of_what_was_not_received_yet() -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    before = allocated()
    queue.put(torch.ones(MIB, device=DEVICE))
    assert allocated() == before + 4 * MIB
    # In the process that sent it, it cannot be opened, as on CUDA.
    with pytest.raises(RuntimeError, match="the handle is of this process's own memory; it is for other processes"):
        queue.get()


def test_being_out_of_memory_collects_first(ask: Worker) -> None:
    torch.openreg.empty_cache()
    free, _ = torch.accelerator.get_memory_info()
    a = torch.empty(free // 2, dtype=torch.uint8, device=DEVICE)
    ask(keep, "a", a)
    del a
    ask(drop, "a")
    assert torch.empty(free // 2 + MIB, dtype=torch.uint8, device=DEVICE).nbytes == free // 2 + MIB


def test_received_memory_is_not_sent_further(ask: Worker) -> None:
    a = ask(sharing_worker.make, "a", 1.0)
    message = (
        "Attempted to send openreg tensor received from another process; this is not currently supported. Consider "
        "cloning before sending."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        ask(keep, "b", a)
    ask(keep, "b", a.clone())
    assert ask(values, "b") == [1] * 4
    del a
    for name in "ab":
        ask(drop, name)


def test_received_memory_is_not_resized(ask: Worker) -> None:
    ask(keep, "a", torch.ones(2, device=DEVICE))
    with pytest.raises(RuntimeError, match="^RuntimeError: Trying to resize storage that is not resizable$"):
        ask(sharing_worker.resize, "a")
    assert ask(values, "a") == [1, 1]
    ask(drop, "a")


def test_is_shared_and_share_memory_change_nothing() -> None:
    a = torch.ones(2, device=DEVICE)
    address = a.data_ptr()
    assert a.is_shared()
    assert a.share_memory_() is a
    assert torch.nn.Linear(2, 2, device=DEVICE).share_memory() is not None
    assert a.data_ptr() == address


# ---- Processes of their own ----------------------------------------------------------------------------------------


def program(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Spawned processes import the program again, so it is a file."""
    (folder / "program.py").write_text("import os, sys, torch, torch.multiprocessing as mp\n" + code)
    return run([sys.executable, "program.py"], folder, environment)


LIFETIME = """
def receive(queue, opened, gone):
    tensor = queue.get()
    opened.set()
    gone.wait(60)
    print(tensor.tolist(), (tensor + 1).tolist(), flush=True)

def send(queue, opened):
    queue.put(torch.arange(3.0, device="openreg"))
    if opened:
        opened.wait(60)

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, opened, gone = context.SimpleQueue(), context.Event(), context.Event()
    receiver = context.Process(target=receive, args=(queue, opened, gone))
    sender = context.Process(target=send, args=(queue, opened if "wait" in os.environ["SENDER"] else None))
    {start}
"""


def test_memory_survives_the_process_that_sent_it(tmp_path: Path) -> None:
    start = "receiver.start(), sender.start(), sender.join(), gone.set(), receiver.join(); print(receiver.exitcode)"
    result = program(tmp_path, LIFETIME.format(start=start), SENDER="waits")
    assert (result.returncode, result.stdout) == (0, "[0.0, 1.0, 2.0] [1.0, 2.0, 3.0]\n0\n"), result.stderr


def test_memory_of_a_sender_that_has_ended_cannot_be_opened(tmp_path: Path) -> None:
    start = "sender.start(), sender.join(), gone.set(), receiver.start(), receiver.join(); print(receiver.exitcode)"
    result = program(tmp_path, LIFETIME.format(start=start), SENDER="does not stay")
    assert (result.returncode, result.stdout) == (0, "1\n")
    assert (
        "which shared it, has freed it or has ended. It must keep the memory until it is opened "
        "(orErrorInvalidResourceHandle from orIpcOpenMemHandle("
    ) in result.stderr


def test_a_device_that_the_receiver_does_not_have(tmp_path: Path) -> None:
    code = """
def receive(tensor):
    pass

if __name__ == "__main__":
    tensor = torch.ones(2, device="openreg:1")
    os.environ["OPENREG_DEVICE_COUNT"] = "1"  # the child's
    process = mp.get_context("spawn").Process(target=receive, args=(tensor,))
    process.start(), process.join()
    print(process.exitcode, tensor.tolist())
"""
    result = program(tmp_path, code)
    assert (result.returncode, result.stdout) == (0, "1 [1.0, 1.0]\n")
    assert "The device index is out of range. It must be in [0, 1), but got 1." in result.stderr


def test_a_forked_child_is_refused_and_may_drop_what_was_sent(tmp_path: Path) -> None:
    code = """
def receive(queue, mine):
    del mine
    try:
        queue.get()
    except RuntimeError as error:
        print(error, flush=True)

if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    tensor = torch.ones(2, device="openreg")
    queue.put(tensor)
    process = context.Process(target=receive, args=(queue, tensor))
    del tensor
    process.start(), process.join()
    print(process.exitcode, torch.ones(1, device="openreg").item())
"""
    result = program(tmp_path, code)
    assert result.stdout == (
        "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the "
        "'spawn' start method\n0 1.0\n"
    ), result.stderr


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_what_is_queued_has_run_when_a_tensor_arrives(tmp_path: Path, mode: str) -> None:
    code = """
def receive(requests, replies):
    for tensor in iter(requests.get, None):
        replies.put((tensor.sum().item(), (tensor.mul_(2)).sum().item()))
        del tensor

if __name__ == "__main__":
    context = mp.get_context("spawn")
    requests, replies = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=receive, args=(requests, replies))
    process.start()
    for turn in range(20):
        tensor = torch.zeros(1000, device="openreg")
        for _ in range(50):
            tensor.add_(1)
        requests.put(tensor)
        assert replies.get() == (50000.0, 100000.0), turn
        assert tensor.sum().item() == 100000.0, turn
        del tensor
    requests.put(None)
    process.join()
    print(process.exitcode)
"""
    result = program(tmp_path, code, OPENREG_EXECUTION=mode)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


def test_a_queues_thread_sends_while_the_main_thread_computes(tmp_path: Path) -> None:
    # mp.Queue pickles in a thread of its own: memory is moved to where others can map it under the main thread's hands.
    code = """
def receive(queue, count):
    for turn in range(count):
        tensor = queue.get()
        assert (tensor == turn).all(), turn

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=receive, args=(queue, 15))
    process.start()
    total, large = torch.zeros(1000, device="openreg"), torch.zeros(2_000_000, device="openreg")
    for turn in range(15):
        queue.put(torch.full((1000 + 200_000 * turn,), float(turn), device="openreg"))
        for _ in range(20):
            total.add_(1)
            large.add_(1)
        assert total.eq(20 * (turn + 1)).all() and large.eq(20 * (turn + 1)).all(), turn
    process.join()
    print(process.exitcode)
"""
    result = program(tmp_path, code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(("method", "device"), [("spawn", "openreg"), ("spawn", "cpu"), ("fork", "cpu")])
def test_dataloader_workers(tmp_path: Path, method: str, device: str) -> None:
    code = f"""
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((2,), float(index), device="{device}")

if __name__ == "__main__":
    torch.ones(1, device="openreg")
    pin = "{device}" == "cpu"
    loader = DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="{method}", pin_memory=pin)
    for batch in loader:
        print(batch.device.type, batch.is_pinned(), batch.to("openreg", non_blocking=True).sum().item())
"""
    result = program(tmp_path, code)
    pinned = device == "cpu"
    assert (result.returncode, result.stdout) == (0, f"{device} {pinned} 12.0\n{device} {pinned} 44.0\n"), result.stderr


def test_processes_train_one_model(tmp_path: Path) -> None:
    # "Hogwild": torch.multiprocessing.spawn gives every process the parameters themselves.
    code = """
def train(rank, model, target):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1000 * rank + step)).to("openreg")
        optimizer.zero_grad()
        (model(x) - x @ target).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
    torch.manual_seed(0)
    model, target = torch.nn.Linear(3, 1, device="openreg"), torch.randn(3, 1, device="openreg")
    before = (model.weight.t() - target).norm().item()
    mp.spawn(train, args=(model, target), nprocs=2)
    after = (model.weight.t() - target).norm().item()
    print(after < before / 10)
"""
    result = program(tmp_path, code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")
