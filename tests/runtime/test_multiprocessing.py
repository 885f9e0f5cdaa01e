"""torch.multiprocessing with the device: as on CUDA, spawned processes get handles and use the same memory."""

from __future__ import annotations

import gc
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import programs
import pytest
import sharing_worker
import torch
import torch.multiprocessing as mp
from comparison import DEVICE, DEVICE_1, assert_same
from programs import Done

from torch_openreg import _C

pytestmark = pytest.mark.only_on("openreg", reason="the programs of the other process name the device")

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
        self.process.join(600)
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
def test_a_tensor_arrives_on_the_device_that_it_was_sent_from(ask: Worker) -> None:
    ask(keep, "a", torch.ones(2, device=DEVICE_1))
    assert ask(describe, "a") == ("Tensor", torch.float32, DEVICE_1, (2,), False)
    ask(drop, "a")


def test_views_arrive_as_views_of_one_storage(ask: Worker) -> None:
    base = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    view = base[1:].t()
    ask(keep, "base", base)  # in a message each
    ask(keep, "view", view)
    ask(keep, "both", [base, view])  # both in one message
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
    ask(sharing_worker.make, "own", 0.0)  # starts the device of the worker
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


def test_memory_is_kept_until_the_receiver_dropped_every_message(ask: Worker) -> None:
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
    # The process that sent the message cannot open it, as on CUDA.
    with pytest.raises(RuntimeError, match="the handle is of this process's own memory; it is for other processes"):
        queue.get()


@pytest.mark.slow
def test_an_allocation_collects_released_messages_before_it_fails(ask: Worker) -> None:
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


# ---- Messages: opened once, by whom they were sent to, or given up ---------------------------------------------------

REFUSED = (
    "AcceleratorError: This message was opened before, or its sender has given it up because no process was left that "
    "could open it. A message can be opened once: send the tensor in a message of its own to each process."
)


def message_of(tensor: torch.Tensor) -> bytes:
    return bytes(ForkingPickler.dumps(tensor))


def refuses(worker: Worker, function: Callable[..., Any], *arguments: Any) -> str:
    """The message of the error that the worker raises."""
    with pytest.raises(RuntimeError) as raised:
        worker(function, *arguments)
    return str(raised.value)


def check_that_it_is_kept(receiver: Worker, before: int) -> None:
    """The receiver's "a" still has its memory, which is not handed out again until the receiver drops it."""
    assert allocated() == before + 4 * MIB
    other = torch.zeros(MIB, device=DEVICE)
    assert receiver(values, "a")[:2] == [1, 1]
    del other
    receiver(drop, "a")


@pytest.mark.parametrize("keeps", [True, False])
def test_a_process_opens_a_message_once(ask: Worker, keeps: bool) -> None:
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    message = message_of(a)
    ask(sharing_worker.load, "a", message)
    if not keeps:
        ask(drop, "a")
    assert refuses(ask, sharing_worker.load, "b", message) == REFUSED
    del a
    if keeps:
        check_that_it_is_kept(ask, before)
    assert allocated() == before


@pytest.mark.slow
def test_of_two_processes_one_opens_a_message(ask: Worker) -> None:
    second = Worker()
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    message = message_of(a)
    ask(sharing_worker.load, "a", message)
    assert refuses(second, sharing_worker.load, "a", message) == REFUSED
    second.end()
    del a
    check_that_it_is_kept(ask, before)
    assert allocated() == before


def test_a_damaged_message_is_refused_and_the_whole_one_can_still_be_opened(ask: Worker) -> None:
    a = torch.ones(MIB, device=DEVICE)
    good = _C._share_storage(a.untyped_storage(), None)
    device, memory, offset, size, slots, slot, number = good
    unknown = "RuntimeError: Expected what _share_storage() returned in another process, but got something else."
    short = "AcceleratorError: Expected a handle of 64 bytes."
    outside = "AcceleratorError: Expected a storage within its memory of "
    invalid = "AcceleratorError: OpenReg error: orIpcOpenMemHandle: the handle is none "
    damaged = f"{invalid}that orIpcGetMemHandle has filled in"
    both = {
        (256, memory, offset, size, slots, slot, number): "The device index is out of range. It must be in [0, ",
        (2**70, memory, offset, size, slots, slot, number): unknown,
        (device, memory, offset, size, slots[:-1], slot, number): short,
        (device, memory, offset, size, bytes(64), slot, number): damaged,
        (
            device,
            memory,
            offset,
            size,
            slots,
            2**40,
            number,
        ): f"AcceleratorError: Expected the index of one of 8192 slots, but got {2**40}.",
        (
            device,
            memory,
            offset,
            size,
            slots,
            2**61,
            number,
        ): f"AcceleratorError: Expected the index of one of 8192 slots, but got {2**61}.",
        (device, memory, offset, size, slots, 8191 if slot < 8191 else 0, number): REFUSED,
        (device, memory, offset, size, slots, slot, number + 1): REFUSED,
        (device, memory, offset, size, slots, slot, -1): unknown,
        (device, memory, offset, size, slots, slot): unknown,
    }
    only_opened = {
        (device, memory[:-1], offset, size, slots, slot, number): short,
        (device, bytes(64), offset, size, slots, slot, number): damaged,
        (device, memory, 2**63, size, slots, slot, number): outside,
        (device, memory, offset, 2**63, slots, slot, number): outside,
    }
    for description, sentence in {**both, **only_opened}.items():
        assert sentence in refuses(ask, sharing_worker.open_storage, description)
    for description, sentence in both.items():
        assert sentence in refuses(ask, sharing_worker.release_storage, description)
    ask(sharing_worker.open_storage, good)
    assert refuses(ask, sharing_worker.release_storage, good) == REFUSED
    ask(drop, "opened")


def kill(worker: Worker) -> None:
    """Kills the worker, as a crash would. The process stays a zombie until somebody waits for it."""
    assert worker.process.pid
    os.kill(worker.process.pid, signal.SIGKILL)
    stat = Path(f"/proc/{worker.process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


@pytest.mark.slow
def test_memory_of_a_receiver_that_was_killed_is_collected() -> None:
    worker = Worker()
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    worker(keep, "a", a)
    del a
    assert allocated() == before + 4 * MIB
    kill(worker)
    assert torch.accelerator.memory_allocated() == before + 4 * MIB
    assert allocated() == before
    worker.process.join()


@pytest.mark.slow
def test_memory_of_a_receiver_that_was_killed_goes_with_the_senders_tensor_and_with_the_next_message() -> None:
    worker = Worker()
    before = allocated()
    a, b = torch.ones(MIB, device=DEVICE), torch.ones(MIB, device=DEVICE)
    worker(keep, "a", a)
    worker(keep, "b", b)
    del a
    kill(worker)
    del b
    gc.collect()
    assert torch.accelerator.memory_allocated() == before + 4 * MIB
    message_of(torch.ones(1, device=DEVICE))
    assert torch.accelerator.memory_allocated() < before + MIB
    worker.process.join()
    torch.openreg.ipc_collect()


def start_time(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_process_that_has_got_the_id_of_a_killed_one_holds_nothing() -> None:
    before = allocated()
    a = torch.ones(MIB, device=DEVICE)
    *_, slots, slot, _ = _C._share_storage(a.untyped_storage(), None)
    del a
    _, process, fd = struct.unpack_from("<8sii", slots)
    with open(f"/proc/{process}/fd/{fd}", "r+b") as memory:
        for later, left in ((0, 4 * MIB), (1, 0)):
            os.pwrite(memory.fileno(), struct.pack("<Q", start_time(1) - later << 22 | 1), 8 * slot)
            assert allocated() == before + left


GIVEN_UP = """
import pickle, signal
from multiprocessing.reduction import ForkingPickler

def wait():
    signal.pause()

def receive(message):
    try:
        pickle.loads(message)
    except RuntimeError as error:
        print(f"{type(error).__name__}: {error}", flush=True)

def left(collect):
    if collect:
        torch.openreg.ipc_collect()
    return torch.openreg.memory_allocated()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    first, second = context.Process(target=wait), context.Process(target=wait)
    first.start(), second.start()
    message = bytes(ForkingPickler.dumps(torch.ones(1000, device="openreg")))
    size = left(False)
    first.kill(), first.join()
    print(left(True) == size, "the second one could open it")
    second.kill(), second.join()
    ForkingPickler.dumps(torch.ones(1000, device="openreg"))
    print(left(False) == 2 * size, "sending gives nothing up")
    print(left(True) == size, "the second message has no receiver that anybody knows")
    late = context.Process(target=receive, args=(message,))
    late.start(), late.join()
"""


@pytest.mark.slow
def test_a_message_whose_receivers_have_ended_is_given_up_by_ipc_collect(tmp_path: Path) -> None:
    result = program(tmp_path, GIVEN_UP)
    assert (result.stdout.splitlines(), result.stderr) == (
        [
            "True the second one could open it",
            "True sending gives nothing up",
            "True the second message has no receiver that anybody knows",
            REFUSED,
        ],
        "",
    )


@pytest.mark.slow
def test_a_message_from_a_process_without_children_and_parent_is_kept(tmp_path: Path) -> None:
    code = """
from multiprocessing.reduction import ForkingPickler
ForkingPickler.dumps(torch.ones(1000, device="openreg"))
torch.openreg.ipc_collect()
print(torch.openreg.memory_allocated() >= 4000)
"""
    assert program(tmp_path, code).stdout == "True\n"


def test_a_message_that_the_parent_could_open_is_kept(ask: Worker) -> None:
    assert ask(sharing_worker.send_and_drop, MIB) == MIB


SPAWNED = """
import signal

def receive(tensor):
    print(tensor.sum().item(), flush=True)

def wait():
    signal.pause()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    other = context.Process(target=wait)
    other.start()
    receiver = context.Process(target=receive, args=(torch.ones(1000, device="openreg"),))
    receiver.start()
    other.kill(), other.join()
    KILL
    torch.openreg.ipc_collect()
    receiver.join()
    torch.openreg.ipc_collect()
    print(torch.openreg.memory_allocated())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "printed"), [("", "1000.0\n0\n"), ("receiver.kill()", "0\n")])
def test_the_arguments_of_a_spawned_process_wait_for_it_as_long_as_it_runs(
    tmp_path: Path, kills: str, printed: str
) -> None:
    result = program(tmp_path, SPAWNED.replace("KILL", kills))
    assert (result.stdout, result.stderr) == (printed, "")


def test_is_shared_and_share_memory_change_nothing() -> None:
    a = torch.ones(2, device=DEVICE)
    address = a.data_ptr()
    assert a.is_shared()
    assert a.share_memory_() is a
    assert torch.nn.Linear(2, 2, device=DEVICE).share_memory() is not None
    assert a.data_ptr() == address


# ---- Processes of their own ----------------------------------------------------------------------------------------


def program(folder: Path, code: str, **environment: str) -> Done:
    """Runs code as a file, because spawned processes import the main program again."""
    (folder / "program.py").write_text("import os, sys, torch, torch.multiprocessing as mp\n" + code)
    return programs.run(sys.executable, "program.py", cwd=folder, **environment)


LIFETIME = """
def receive(queue, opened, gone):
    tensor = queue.get()
    opened.set()
    gone.wait(600)
    print(tensor.tolist(), (tensor + 1).tolist(), flush=True)

def send(queue, opened):
    queue.put(torch.arange(3.0, device="openreg"))
    if opened:
        opened.wait(600)

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, opened, gone = context.SimpleQueue(), context.Event(), context.Event()
    receiver = context.Process(target=receive, args=(queue, opened, gone))
    sender = context.Process(target=send, args=(queue, opened if "wait" in os.environ["SENDER"] else None))
    {start}
"""


@pytest.mark.slow
def test_memory_survives_the_process_that_sent_it(tmp_path: Path) -> None:
    start = "receiver.start(), sender.start(), sender.join(), gone.set(), receiver.join(); print(receiver.exitcode)"
    result = program(tmp_path, LIFETIME.format(start=start), SENDER="waits")
    assert (result.returncode, result.stdout) == (0, "[0.0, 1.0, 2.0] [1.0, 2.0, 3.0]\n0\n"), result.stderr


@pytest.mark.slow
def test_memory_of_a_sender_that_has_ended_cannot_be_opened(tmp_path: Path) -> None:
    start = "sender.start(), sender.join(), gone.set(), receiver.start(), receiver.join(); print(receiver.exitcode)"
    result = program(tmp_path, LIFETIME.format(start=start), SENDER="does not stay")
    assert (result.returncode, result.stdout) == (0, "1\n")
    assert (
        "has no such memory: it has freed the memory or has ended, or the handle is damaged. A process must keep what "
        "it shares until it is opened (orErrorInvalidResourceHandle from orIpcOpenMemHandle("
    ) in result.stderr


@pytest.mark.slow
def test_opening_a_message_for_a_missing_device_raises(tmp_path: Path) -> None:
    code = """
def receive(tensor):
    pass

if __name__ == "__main__":
    tensor = torch.ones(2, device="openreg:1")
    os.environ["OPENREG_DEVICE_COUNT"] = "1"  # for the child
    process = mp.get_context("spawn").Process(target=receive, args=(tensor,))
    process.start(), process.join()
    print(process.exitcode, tensor.tolist())
"""
    result = program(tmp_path, code)
    assert (result.returncode, result.stdout) == (0, "1 [1.0, 1.0]\n")
    assert "The device index is out of range. It must be in [0, 1), but got 1." in result.stderr


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_queues_thread_sends_while_the_main_thread_computes(tmp_path: Path) -> None:
    # mp.Queue pickles in a thread of its own. This thread makes the memory shareable while the main thread computes.
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


@pytest.mark.slow
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


@pytest.mark.slow
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
