"""Faults of torch.distributed on the device, in real processes: the error that each rank raises; no rank hangs."""

from __future__ import annotations

import re
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import distributed_collectives
import distributed_faults
import programs
import pytest
import torch.distributed as dist
from distributed_group import Group, free_port
from programs import Peer

MODULE = distributed_faults.__name__
NO_ERROR = "no error"
LONG = 300.0  # the seconds of a timeout that must not be what ends a collective: it has to end in under half of them


@pytest.fixture(scope="module")
def three() -> Iterator[Group]:
    made = Group(3)
    yield made
    made.close()


def fingerprint(of: str) -> str:
    return f"CollectiveFingerPrint(SequenceNumber=1, OpType={of})"


def mismatch(rank: int, operation: str, other_rank: int, other_operation: str) -> str:
    return (
        f"DistBackendError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: "
        f"{fingerprint(operation)}, but Rank {other_rank} is running collective: {fingerprint(other_operation)}."
    )


SUM = "ALLREDUCE, TensorShape=[{}], TensorDtypes={}, ReduceOp={}"
# Kind of mismatch -> the call of the ranks 0 and 1, and the call of rank 2.
MISMATCHES = {
    "shapes": (SUM.format("2, 5", "Float", "SUM"), SUM.format("3, 5", "Float", "SUM")),
    "large shapes": (SUM.format(20000, "Float", "SUM"), SUM.format(30000, "Float", "SUM")),
    "small and large": (SUM.format(20000, "Float", "SUM"), SUM.format(3, "Float", "SUM")),
    "dtypes": (SUM.format(2, "Float", "SUM"), SUM.format(2, "Int", "SUM")),
    "reductions": (SUM.format(2, "Float", "SUM"), SUM.format(2, "Float", "MAX")),
    "operators": (SUM.format(2, "Float", "SUM"), "_ALLGATHER_BASE, TensorShape=[2], TensorDtypes=Float"),
    "barrier": (SUM.format(2, "Float", "SUM"), "BARRIER"),
}


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
@pytest.mark.parametrize("what", MISMATCHES)
def test_in_a_collective_of_all_with_all_every_rank_reports_the_mismatch(three: Group, what: str, mode: str) -> None:
    usual, last = MISMATCHES[what]
    heard = three.run(MODULE, "mismatched", what, mode=mode)
    assert heard == [
        mismatch(0, usual, 2, last),
        mismatch(1, usual, 2, last),
        mismatch(2, last, 0, usual),
    ]


def test_the_error_names_two_ranks_that_differ(three: Group) -> None:
    heard = three.run(MODULE, "mismatched", "splits")
    longer, usual = (f"ALLTOALL_BASE, TensorShape=[{rows}], TensorDtypes=Float" for rows in (4, 3))
    assert heard == [mismatch(0, longer, 1, usual), mismatch(1, usual, 0, longer), mismatch(1, usual, 0, longer)]
    heard = three.run(MODULE, "mismatched", "gathered sizes")
    assert all("OpType=ALLGATHER, TensorShape=[3]" in text and "TensorShape=[2]" in text for text in heard)


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_in_a_collective_with_one_direction_the_ranks_that_know_report_the_mismatch(three: Group, mode: str) -> None:
    def run(what: str) -> list[str]:
        return three.run(MODULE, "mismatched", what, mode=mode)

    def two(operation: str, rest: str = "") -> str:
        return f"{operation}, TensorShape=[2], TensorDtypes=Float{rest}"

    def three_elements(operation: str, rest: str = "") -> str:
        return f"{operation}, TensorShape=[3], TensorDtypes=Float{rest}"

    assert run("broadcast") == [
        NO_ERROR,
        NO_ERROR,
        mismatch(2, three_elements("BROADCAST", ", Root=0"), 0, two("BROADCAST", ", Root=0")),
    ]
    assert [text == NO_ERROR for text in run("large broadcast")] == [True, True, False]
    for name, rest in (
        ("gather", ", Root=0"),
        ("reduce", ", ReduceOp=SUM, Root=0"),
    ):  # every rank reads what every rank plans to send
        at_root = mismatch(0, two(name.upper(), rest), 2, three_elements(name.upper(), rest))
        assert run(name) == [
            at_root,
            at_root,
            mismatch(2, three_elements(name.upper(), rest), 0, two(name.upper(), rest)),
        ]
    assert [text == NO_ERROR for text in run("scatter")] == [True, True, False]
    assert run("send") == [
        NO_ERROR,
        "RuntimeError: " + mismatch(1, three_elements("RECV"), 0, two("SEND")),
        NO_ERROR,
    ]
    assert run("send of another type") == [
        NO_ERROR,
        "RuntimeError: " + mismatch(1, "RECV, TensorShape=[2], TensorDtypes=Int", 0, two("SEND")),
        NO_ERROR,
    ]
    assert [text == NO_ERROR for text in run("large send")] == [True, False, True]
    assert [text == NO_ERROR for text in run("large recv")] == [True, False, True]


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_of_two_roots_of_a_broadcast_the_later_one_reports_the_mismatch(three: Group, mode: str) -> None:
    call = "BROADCAST, TensorShape=[2], TensorDtypes=Float, Root={}"
    first, second, third = three.run(MODULE, "mismatched", "two roots", mode=mode)
    assert first in (NO_ERROR, mismatch(0, call.format(0), 1, call.format(1)))
    assert second in (NO_ERROR, mismatch(1, call.format(1), 0, call.format(0)))
    assert (first, second) != (NO_ERROR, NO_ERROR) and third == NO_ERROR


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_the_call_that_waits_for_the_stream_raises_the_failure(three: Group, mode: str) -> None:
    for text in three.run(MODULE, "item_raises_the_failure", mode=mode):
        assert "DistBackendError: Detected mismatch between collectives on ranks." in text
    assert three.run(MODULE, "work_has_the_exception", mode=mode) == [True] * 3


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_without_wait_the_callers_stream_raises_the_failure_of_an_async_collective(three: Group, mode: str) -> None:
    for text in three.run(MODULE, "unheard_failure_of_an_async_collective", mode=mode):
        assert "DistBackendError: Detected mismatch between collectives on ranks." in text


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async"])
def test_ddp_does_not_train_on_when_a_rank_is_missing(mode: str) -> None:
    group = Group(2)
    heard, absent = group.run(MODULE, "ddp_failure_is_heard", mode=mode)
    assert heard.startswith("DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=")
    assert absent == "absent"
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize("numel", [2, 100_000])
def test_a_collective_fails_if_a_rank_was_killed_before(numel: int) -> None:
    group = Group(3)
    group.start(MODULE, "die", ranks=[2])
    group.processes[2].wait(600)
    group.start(MODULE, "collective_without_the_last", LONG, numel, ranks=[0, 1])
    for text, seconds in group.results(ranks=[0, 1]):
        assert text.startswith("DistBackendError: [Rank ")
        assert "collective operation failed: WorkOCCL(SeqNum=1, OpType=ALLREDUCE, TensorShape=[" in text
        assert "Another rank has exited, or its part of the collective has timed out or was aborted." in text
        assert seconds < LONG / 2
    port = free_port()
    group.start(MODULE, "begin_again", port, 2, ranks=[0, 1])
    assert group.results(ranks=[0, 1]) == [[2.0, 2.0], [2.0, 2.0]]
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize("numel", [2, 4_000_000])
def test_a_collective_is_complete_if_a_rank_is_killed_after_it(numel: int) -> None:
    group = Group(3)
    group.start(MODULE, "die_after_a_collective", numel, ranks=[2])
    group.start(MODULE, "collective_before_a_death", numel, ranks=[0, 1])
    assert group.results(ranks=[0, 1]) == [True, True]
    group.start(MODULE, "collective_without_the_last", LONG, numel, ranks=[0, 1])
    for text, seconds in group.results(ranks=[0, 1]):
        assert "collective operation failed: WorkOCCL(SeqNum=2, OpType=ALLREDUCE, TensorShape=[" in text
        assert seconds < LONG / 2
    group.start(MODULE, "begin_again", free_port(), 2, ranks=[0, 1])
    assert group.results(ranks=[0, 1]) == [[2.0, 2.0], [2.0, 2.0]]
    group.close()


@pytest.mark.slow
def test_groups_on_one_store_do_not_read_the_keys_of_earlier_groups() -> None:
    """As on the store of torchrun's agent, which keeps the keys of all groups."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = Group(3, "none")
    for _ in range(3):
        assert group.run(MODULE, "group_on_a_store", store.port, 3) == [[3.0, 3.0]] * 3
    group.start(MODULE, "die", ranks=[2])
    group.processes[2].wait(600)
    for _ in range(2):
        group.start(MODULE, "group_on_a_store", store.port, 2, ranks=[0, 1])
        assert group.results(ranks=[0, 1]) == [[2.0, 2.0]] * 2
    group.close()


@pytest.mark.slow
def test_a_collective_fails_if_a_rank_is_killed_during_it() -> None:
    group = Group(3)
    group.start(MODULE, "die_during_a_collective", ranks=[2])
    group.start(MODULE, "collective_without_the_last", LONG, 32_000_000, ranks=[0, 1])
    for text, seconds in group.results(ranks=[0, 1]):
        assert text.startswith("DistBackendError: [Rank ")
        assert "Another rank has exited, or its part of the collective has timed out or was aborted." in text
        assert seconds < LONG / 2
    group.start(MODULE, "begin_again", free_port(), 2, ranks=[0, 1])
    assert group.results(ranks=[0, 1]) == [[2.0, 2.0], [2.0, 2.0]]
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed", "after"),
    [
        pytest.param(killed, after, id=f"{killed}-{word}")
        for word, after in (("before", None), ("at its begin", 0.0), ("during it", 0.1))
        for killed in (1, 2)
    ],
)
def test_ranks_of_all_hosts_report_a_rank_that_is_killed(killed: int, after: float | None) -> None:
    """Of the killed ranks, only rank 2 exchanges data with the other host.

    `after`: seconds from the call of the collective to the death; None: the rank dies before the others call. If the
    collective is faster, the others report the death in a later collective.
    """
    group = Group(4, hosts=2)
    others = [rank for rank in range(4) if rank != killed]
    if after is None:
        group.start(MODULE, "die", ranks=[killed])
        group.processes[killed].wait(600)
    group.start(MODULE, "collective_without_the_last", LONG, 32_000_000, ranks=others)
    if after is not None:
        time.sleep(0.5)  # the other ranks wait in the collective: its data moves as soon as the killed rank calls it
        group.start(MODULE, "die_during_a_collective", after, ranks=[killed])
    for text, seconds in group.results(ranks=others):
        assert text.startswith("DistBackendError: [Rank ")
        assert "Another rank has exited, or its part of the collective has timed out or was aborted." in text
        # The other rank of the host says this, unless gloo has told it first that a connection was closed.
        assert set(re.findall(r"Rank (\d+) \(process \d+\) has exited", text)) <= {str(killed)}
        assert seconds < LONG / 2
    group.close()


@pytest.mark.slow
def test_ranks_of_all_hosts_report_a_mismatch() -> None:
    group = Group(3, hosts=2)
    for what in ("large shapes", "small and large", "dtypes"):
        usual, last = MISMATCHES[what]
        expected = [mismatch(0, usual, 2, last), mismatch(1, usual, 2, last), mismatch(2, last, 0, usual)]
        assert group.run(MODULE, "mismatched", what) == expected
    group.close()


def test_a_collective_that_a_rank_does_not_call_times_out_and_the_error_names_the_collective() -> None:
    group = Group(2)
    group.start(MODULE, "collective_without_the_last", 1.0, ranks=[0])
    ((text, seconds),) = group.results(ranks=[0])
    assert text.startswith(
        "DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLREDUCE, "
        "TensorShape=[2], Timeout(ms)=1000). Another rank has not called this collective, has called a different one, "
        "or has exited."
    )
    assert seconds > 0.9
    group.close()


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_wait_with_a_timeout_ends_before_the_collective(three: Group, mode: str) -> None:
    *others, last = three.run(MODULE, "wait_for_a_late_rank", mode=mode)
    sentence = "DistBackendError: Work wait timed out after 300 ms: WorkOCCL(SeqNum=2, OpType=ALLREDUCE)."
    assert others == [(sentence, [3.0, 3.0])] * 2
    assert last == (NO_ERROR, [3.0, 3.0])


@pytest.mark.slow
def test_an_ephemeral_timeout_ends_with_the_next_collective() -> None:
    group = Group(2)
    (first, second, third), (own, _, last) = group.run(MODULE, "a_late_rank_after_an_ephemeral_timeout")
    assert (first, own) == (NO_ERROR, NO_ERROR)
    assert second.startswith(
        "DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=2, OpType=ALLREDUCE"
    )
    # A rank that gave up takes part in no later collective. Otherwise a rank that still waits in the failed collective
    # could take the data of the later one for the data of the failed one.
    for number, text in enumerate((third, last)):
        assert text.startswith(f"DistBackendError: [Rank {number}] collective operation failed: WorkOCCL(SeqNum=3"), (
            text
        )
    assert third.endswith("An earlier collective of this rank failed")
    group.close()


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_an_ephemeral_timeout_lasts_until_the_first_collective_after_it_ends(mode: str) -> None:
    group = Group(2)
    heard, _ = group.run(MODULE, "calls_before_the_end_of_an_extension", mode=mode)
    assert [re.findall(r"SeqNum=(\d+).*Timeout\(ms\)=(\d+)", text) for text in heard] == [
        [("1", "2000")], [("2", "2000")], [("3", "1000")],
    ]  # fmt: skip
    assert "collective operation timeout" in heard[0]
    group.close()


KINDS = pytest.mark.parametrize("kind", ["send", "recv", "recv from any"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "transport"),
    # Not "recv from any" with gloo: while gloo waits for any sender, it does not notice that a rank has ended.
    [("send", "auto"), ("recv", "auto"), ("recv from any", "auto"), ("send", "gloo"), ("recv", "gloo")],
)
def test_a_message_to_or_from_a_rank_that_was_killed_fails(kind: str, transport: str) -> None:
    group = Group(2, environment={"OCCL_TRANSPORT": transport})
    group.start(MODULE, "die", ranks=[1])
    group.processes[1].wait(600)
    group.start(MODULE, "message_with_the_last", kind, LONG, ranks=[0])
    ((text, seconds),) = group.results(ranks=[0])
    assert text.startswith("DistBackendError: [Rank 0] collective operation failed: WorkOCCL(SeqNum=1, OpType=")
    assert "Another rank has exited, or its part of the collective has timed out or was aborted." in text
    assert seconds < LONG / 2
    port = free_port()
    group.start(MODULE, "begin_again", port, 1, ranks=[0])
    assert group.results(ranks=[0]) == [[1.0, 1.0]]
    group.close()


@pytest.mark.slow
@KINDS
def test_a_message_that_nobody_sends_or_takes_times_out(kind: str) -> None:
    group = Group(2)
    group.start(MODULE, "message_with_the_last", kind, 1.0, ranks=[0])
    ((text, seconds),) = group.results(ranks=[0])
    assert text.startswith("DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=1, OpType=")
    assert "TensorShape=[1000000], Timeout(ms)=1000)" in text
    assert seconds > 0.9
    group.close()


@pytest.mark.slow
def test_a_rank_that_is_killed_during_a_message_fails_it() -> None:
    group = Group(2)
    group.start(MODULE, "die_during_a_message", ranks=[1])
    group.start(MODULE, "recv_of_long_messages", ranks=[0])
    (text,) = group.results(ranks=[0])
    assert re.match(r"DistBackendError: \[Rank 0\] collective operation failed: WorkOCCL\(SeqNum=\d, OpType=RECV", text)
    assert "Another rank has exited, or its part of the collective has timed out or was aborted." in text
    group.close()


def test_a_short_message_arrives_after_its_sender_has_ended() -> None:
    group = Group(2, environment={"OCCL_TRANSPORT": "shm"})
    group.start(MODULE, "send_and_end", ranks=[1])
    group.results(ranks=[1])
    group.pipes[1].send(None)
    group.processes[1].wait(600)
    group.start(MODULE, "recv_from_one_that_has_ended", ranks=[0])
    assert group.results(ranks=[0]) == [5000.0]
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "chaos"])
@pytest.mark.parametrize("end", ["destroy", "abort"])
def test_failures_that_nobody_has_heard_end_with_their_group(end: str, mode: str) -> None:
    group = Group(2)
    group.start(MODULE, "die", ranks=[1])
    group.processes[1].wait(600)
    group.start(MODULE, "failures_end_with_the_group", free_port(), end, mode=mode, ranks=[0])
    (((first, *after), printed),) = group.results(ranks=[0])
    assert first.startswith("DistBackendError: [Rank 0] collective operation failed: WorkOCCL(SeqNum=1, OpType=ALLREDU")
    assert after == [NO_ERROR, NO_ERROR, "[1.0, 1.0]"]
    sentence = (
        "Warning: A process group has ended, and the program never waited for a collective that failed: [Rank 0] "
        "collective operation failed: WorkOCCL(SeqNum=2, OpType=ALLREDUCE, TensorShape=[2], Timeout(ms)=300000). "
    )
    assert printed.count("never waited") == printed.count(sentence) == (end == "destroy"), printed
    group.close()


@pytest.mark.parametrize("function", ["abort", "abort_of_a_message"])
def test_abort_makes_what_waits_raise(function: str) -> None:
    group = Group(2)
    text, _ = group.run(MODULE, function)
    assert text == "DistBackendError: The process group was aborted"
    group.close()


def test_an_aborted_group_refuses_collectives_also_if_all_ranks_call_them() -> None:
    group = Group(2)
    assert group.run(MODULE, "collective_after_abort") == ["DistBackendError: The process group was aborted"] * 2
    group.close()


@pytest.mark.slow
def test_out_of_memory_on_one_rank_makes_the_other_ranks_time_out() -> None:
    group = Group(2)
    first, second = group.run(MODULE, "out_of_memory")
    assert first.startswith("OutOfMemoryError: OpenReg out of memory.")
    assert second.startswith(
        "DistBackendError: [Rank 1] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLREDUCE"
    )
    group.close()


@pytest.mark.slow
def test_a_forked_child_of_a_rank_is_refused() -> None:
    group = Group(2)
    assert group.run(MODULE, "fork") == [17, 17]  # the child's exit status if it got the error of a forked child
    group.close()


@pytest.mark.slow
def test_torch_distributed_debug_detail_reports_a_mismatch() -> None:
    group = Group(2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    for result, error in group.run(MODULE, "detail"):
        assert result == "[2.0, 2.0]"
        assert "Detected mismatch between collectives on ranks." in error
    for check in (
        "all_reduce_operators",
        "broadcast",
        "reduce",
        "all_gather",
        "reduce_scatter_tensor",
        "uneven_all_to_all_single",
        "gather",
        "scatter",
        "send_and_recv",
        "batch_isend_irecv",
        "barrier",
        "coalescing_manager",
        "futures",
    ):
        group.run(distributed_collectives.__name__, check, mode="async")
    group.close()


def outputs_of_two(program: str, **settings: Any) -> list[str]:
    """What the processes of ranks 0 and 1, on one device, print. Both must exit with the status 0."""
    settings |= {"OCCL_MULTI_RANK_GPU_ENABLE": "1", "imports": programs.DISTRIBUTED}
    return [result.stdout for result in programs.ranks(2, program, status=0, **settings)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "late"])  # late: the exit waits for queued work, but not for ever
def test_a_process_can_exit_while_a_receive_is_pending(mode: str) -> None:
    program = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group(device_id=torch.device("openreg", 0))
    if os.environ["RANK"] == "1":
        dist.irecv(torch.ones(4, device="openreg"), 0)
        print("end")
    else:
        sys.stdin.read()  # until the test closes stdin, after the receiver has exited
    """
    first, second = (each | {"OPENREG_EXECUTION": mode} for each in programs.variables_of_ranks(2))
    with Peer(sys.executable, "-c", textwrap.dedent(program), **first) as silent:
        programs.python(program, status=0, output="end\n", **second)
        silent.process.communicate(timeout=programs.LIMIT)
        assert silent.process.returncode == 0


# A thread that asks for Python's interpreter in a destructor while the interpreter ends would abort the process. In
# inline execution the thread that completes a collective runs the callbacks of the future and destroys them.
CALLBACK = """
import os, sys, time, torch, torch.distributed as dist
class Slow:
    def __del__(self):
        print("destroyed", flush=True)
        time.sleep(0.5)
def callback(future, slow=Slow()):
    print("called", flush=True)
dist.init_process_group(device_id=torch.device("openreg", 0))
"""
WAITED_FOR = """
result = dist.all_reduce(torch.ones(4, device="openreg"), async_op=True).get_future().then(callback)
del callback
result.wait()
del result
"""
# Python destroys sys.end after all atexit handlers. Rank 1 waits for that with wait_for_the_end(). Then rank 0 waits
# until rank 1 has called os.mkdir("summed"), but for 500 seconds at most.
END = """
import os, sys, time
class End:
    def __del__(self, mkdir=os.mkdir, rmdir=os.rmdir, sleep=time.sleep):
        mkdir("ending")
        for _ in range(50_000):
            try:
                rmdir("summed")
                break
            except:
                sleep(0.01)
        sleep(0.3)
if os.environ["RANK"] == "0":
    sys.end = End()
def wait_for_the_end():
    while not os.path.exists("ending"):
        time.sleep(0.01)
"""
LATE_CALLBACK = """
del callback.__defaults__
x = torch.ones(4, device="openreg")
if os.environ["RANK"] == "0":
    dist.all_reduce(x, async_op=True).get_future().then(callback)
    del callback
else:
    wait_for_the_end()
    dist.all_reduce(x)
    os.mkdir("summed")
"""
LATE_RANK = """
import torch, torch.distributed as dist
dist.init_process_group(device_id=torch.device("openreg", 0))
x = torch.ones(4, device="openreg")
if os.environ["RANK"] == "1":
    wait_for_the_end()
for _ in range(2):
    dist.all_reduce(x)
if os.environ["RANK"] == "1":
    print(x.tolist())
    os.mkdir("summed")
"""


@pytest.mark.slow
def test_a_process_can_exit_while_a_callback_is_destroyed() -> None:
    assert outputs_of_two(CALLBACK + WAITED_FOR, OPENREG_EXECUTION="inline") == ["called\ndestroyed\n"] * 2


@pytest.mark.slow
def test_a_process_can_exit_before_a_callback_is_called(tmp_path: Path) -> None:
    assert (
        outputs_of_two(CALLBACK + END + LATE_CALLBACK, cwd=tmp_path, OPENREG_EXECUTION="inline") == ["destroyed\n"] * 2
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_process_can_exit_while_a_completion_hook_runs(mode: str) -> None:
    program = """
    import time, torch, torch.distributed as dist
    dist.init_process_group(device_id=torch.device("openreg", 0))
    def hook(info):
        time.sleep(0.2)
        print("called", flush=True)
    dist.distributed_c10d._get_default_group()._register_on_completion_hook(hook)
    for _ in range(3):
        dist.all_reduce(torch.ones(4, device="openreg"))
    torch.accelerator.synchronize()
    """
    assert {line for output in outputs_of_two(program, OPENREG_EXECUTION=mode) for line in output.split()} == {"called"}


@pytest.mark.slow
def test_collectives_go_on_for_a_late_rank_while_a_process_exits(tmp_path: Path) -> None:
    assert outputs_of_two(END + LATE_RANK, cwd=tmp_path, OPENREG_EXECUTION="async") == ["", "[4.0, 4.0, 4.0, 4.0]\n"]


@pytest.mark.slow
def test_a_forked_child_of_a_rank_can_exit() -> None:
    program = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group(device_id=torch.device("openreg", 0))
    x = torch.ones(4, device="openreg")
    dist.all_reduce(x)
    child = os.fork()
    if child == 0:
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    dist.all_reduce(x)
    print(x.tolist())
    """
    assert outputs_of_two(program) == ["3\n[4.0, 4.0, 4.0, 4.0]\n"] * 2


# ---- injected faults: torch_openreg.openreg.faults -------------------------------------------------------------------


@pytest.mark.slow
def test_a_dropped_message_makes_the_receiver_time_out() -> None:
    group = Group(2)
    (missed, begin, end), (unaware, _, _) = group.run(MODULE, "sum_under_faults", "rank1@message:1=drop", 5.0)
    assert missed.startswith(
        "DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLRED"
    )
    assert unaware == NO_ERROR and end - begin > 4.9
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_late_message_delays_every_rank(mode: str) -> None:
    group = Group(2)
    (_, _, end), (_, begin, own_end) = answers = group.run(
        MODULE, "sum_under_faults", "rank1@message~300ms", LONG, mode=mode
    )
    assert [heard for heard, _, _ in answers] == [NO_ERROR] * 2
    assert min(end, own_end) - begin >= 0.3
    group.close()


@pytest.mark.slow
def test_the_error_of_a_message_that_fails_names_the_fault() -> None:
    group = Group(2)
    (missed, *_), (failed, *_) = group.run(MODULE, "sum_under_faults", "rank1@message:1=failure", 5.0)
    assert missed.startswith("DistBackendError: [Rank 0] collective operation ")
    assert failed.startswith(
        "DistBackendError: [Rank 1] collective operation failed: WorkOCCL(SeqNum=1, OpType=ALLREDUCE"
    )
    assert "unspecified launch failure (injected by rank1@message:1=failure)" in failed
    group.close()


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_a_future_that_meets_a_fault_can_be_asked_for_again(three: Group, mode: str) -> None:
    for heard, values in three.run(MODULE, "future_under_a_fault", mode=mode):
        assert "(injected by stream:1=failure)" in heard
        assert values == [3.0, 3.0]


def test_without_memory_for_the_mailboxes_a_group_uses_gloo(three: Group) -> None:
    assert three.run(MODULE, "group_without_memory") == [(NO_ERROR, [3.0, 3.0])] * 3


@pytest.mark.slow
def test_the_other_ranks_report_that_a_fault_has_killed_a_rank() -> None:
    group = Group(3)
    group.start(MODULE, "sum_under_faults", "rank2@message:1=kill", LONG)
    for heard, begin, end in group.results(ranks=[0, 1]):
        assert (
            heard.startswith("DistBackendError: [Rank ")
            and "Another rank has exited, or its part of the collective has timed out or was aborted." in heard
        )
        assert end - begin < LONG / 2
    group.processes[2].wait(600)
    assert group.processes[2].returncode == -signal.SIGKILL
    group.close()


def duplicate(rank: int, other: int) -> str:
    return (
        "DistBackendError: OCCL error: invalid usage. Duplicate Device detected : "
        f"rank {rank} and rank {other} both on device 0. "
        "Several ranks may use one device only if OCCL_MULTI_RANK_GPU_ENABLE=1. "
        "Call set_device() with LOCAL_RANK before the first collective."
    )


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_call_that_uses_one_device_on_two_ranks_fails_on_each_rank_that_gets_data(transport: str) -> None:
    group = Group(2, environment={"OCCL_TRANSPORT": transport})
    first, second = group.run(MODULE, "calls_on_device_0")
    assert first == [duplicate(0, 1), duplicate(0, 1), NO_ERROR, NO_ERROR]
    assert second == [duplicate(1, 0)] * 4
    group.close()


@pytest.mark.parametrize("allowed", ["by the setting", "on two hosts"])
def test_two_ranks_may_use_one_device(allowed: str) -> None:
    settings = {"OCCL_MULTI_RANK_GPU_ENABLE": "1"} if allowed == "by the setting" else {}
    group = Group(2, environment=settings, hosts=1 if settings else 2)
    assert group.run(MODULE, "calls_on_device_0") == [[NO_ERROR] * 4] * 2
    group.close()


def test_ranks_that_see_different_devices_under_one_index_use_different_devices() -> None:
    program = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("occl")
    dist.all_reduce(total := torch.ones(1, device="openreg:0"))
    print(total.item())
    """
    ranks = programs.variables_of_ranks(2)
    visible = [partial(programs.python, program, OPENREG_VISIBLE_DEVICES=each["RANK"], **each) for each in ranks]
    assert [(rank.stdout, rank.stderr) for rank in programs.at_once(*visible)] == [("2.0\n", "")] * 2
