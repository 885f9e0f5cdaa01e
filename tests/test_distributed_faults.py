"""Faults of torch.distributed on the device, with real processes: what each rank hears, and that nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import distributed_faults
import pytest
from distributed_group import Group, free_port

MODULE = distributed_faults.__name__
NO_ERROR = "no error"


@pytest.fixture(scope="module")
def three() -> Iterator[Group]:
    made = Group(3)
    yield made
    made.close()


def fingerprint(of: str) -> str:
    return f"CollectiveFingerPrint(SequenceNumber=1, OpType={of})"


def sentence(rank: int, own: str, other: int, others: str) -> str:
    return (
        f"DistBackendError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: "
        f"{fingerprint(own)}, but Rank {other} is running collective: {fingerprint(others)}."
    )


SUM = "ALLREDUCE, TensorShape=[{}], TensorDtypes={}, ReduceOp={}"
OF_ALL = {
    "shapes": (SUM.format("2, 5", "Float", "SUM"), SUM.format("3, 5", "Float", "SUM")),
    "large shapes": (SUM.format(20000, "Float", "SUM"), SUM.format(30000, "Float", "SUM")),
    "small and large": (SUM.format(20000, "Float", "SUM"), SUM.format(3, "Float", "SUM")),
    "dtypes": (SUM.format(2, "Float", "SUM"), SUM.format(2, "Int", "SUM")),
    "reductions": (SUM.format(2, "Float", "SUM"), SUM.format(2, "Float", "MAX")),
    "operators": (SUM.format(2, "Float", "SUM"), "_ALLGATHER_BASE, TensorShape=[2], TensorDtypes=Float"),
    "barrier": (SUM.format(2, "Float", "SUM"), "BARRIER"),
}


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
@pytest.mark.parametrize("what", OF_ALL)
def test_every_rank_hears_of_a_mismatch_where_all_wait_for_all(three: Group, what: str, mode: str) -> None:
    usual, last = OF_ALL[what]
    heard = three.run(MODULE, "mismatched", what, mode=mode)
    assert heard == [
        sentence(0, usual, 2, last),
        sentence(1, usual, 2, last),
        sentence(2, last, 0, usual),
    ]


def test_every_rank_hears_which_two_do_not_fit(three: Group) -> None:
    heard = three.run(MODULE, "mismatched", "splits")
    longer, usual = (f"ALLTOALL_BASE, TensorShape=[{rows}], TensorDtypes=Float" for rows in (4, 3))
    assert heard == [sentence(0, longer, 1, usual), sentence(1, usual, 0, longer), sentence(1, usual, 0, longer)]
    heard = three.run(MODULE, "mismatched", "gathered sizes")
    assert all("OpType=ALLGATHER, TensorShape=[3]" in text and "TensorShape=[2]" in text for text in heard)


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_the_receiver_hears_of_a_mismatch_where_data_goes_one_way(three: Group, mode: str) -> None:
    def run(what: str) -> list[str]:
        return three.run(MODULE, "mismatched", what, mode=mode)

    two, more = ("{}, TensorShape=[{}], TensorDtypes=Float{}".format("{}", n, "{}") for n in (2, 3))
    assert run("broadcast") == [
        NO_ERROR,
        NO_ERROR,
        sentence(2, more.format("BROADCAST", ", Root=0"), 0, two.format("BROADCAST", ", Root=0")),
    ]
    assert [text == NO_ERROR for text in run("large broadcast")] == [True, True, False]
    assert run("gather") == [
        sentence(0, two.format("GATHER", ", Root=0"), 2, more.format("GATHER", ", Root=0")),
        NO_ERROR,
        NO_ERROR,
    ]
    assert run("reduce") == [
        sentence(0, two.format("REDUCE", ", ReduceOp=SUM, Root=0"), 2, more.format("REDUCE", ", ReduceOp=SUM, Root=0")),
        NO_ERROR,
        NO_ERROR,
    ]
    assert [text == NO_ERROR for text in run("scatter")] == [True, True, False]
    assert run("send") == [
        NO_ERROR,
        sentence(1, more.format("RECV", ""), 0, two.format("SEND", "")),
        NO_ERROR,
    ]
    assert run("send of another type") == [
        NO_ERROR,
        sentence(1, "RECV, TensorShape=[2], TensorDtypes=Int", 0, two.format("SEND", "")),
        NO_ERROR,
    ]


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_the_failure_reaches_who_waits_for_the_stream(three: Group, mode: str) -> None:
    for text in three.run(MODULE, "item_raises_the_failure", mode=mode):
        assert "DistBackendError: Detected mismatch between collectives on ranks." in text
    assert three.run(MODULE, "work_has_the_exception", mode=mode) == [True] * 3


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_a_failure_that_nobody_waits_for_is_the_callers_streams(three: Group, mode: str) -> None:
    for text in three.run(MODULE, "unheard_failure_of_an_async_collective", mode=mode):
        assert "DistBackendError: Detected mismatch between collectives on ranks." in text


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_ddp_does_not_train_on_when_a_rank_is_missing(mode: str) -> None:
    group = Group(2)
    heard, absent = group.run(MODULE, "ddp_failure_is_heard", mode=mode)
    assert heard.startswith("DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=")
    assert absent == "absent"
    group.close()


@pytest.mark.parametrize("numel", [2, 100_000])
def test_a_rank_that_was_killed_before_a_collective_fails_it(numel: int) -> None:
    group = Group(3)
    group.start(MODULE, "die", ranks=[2])
    group.processes[2].join(30)
    group.start(MODULE, "collective_without_the_last", 20.0, numel, ranks=[0, 1])
    for text, seconds in group.results(ranks=[0, 1]):
        assert text.startswith("DistBackendError: [Rank ")
        assert "collective operation failed: WorkOCCL(SeqNum=1, OpType=ALLREDUCE, TensorShape=[" in text
        assert "Another rank has ended, or has given up." in text
        assert seconds < 10
    port = free_port()
    group.start(MODULE, "begin_again", port, 2, ranks=[0, 1])
    assert group.results(ranks=[0, 1]) == [[2.0, 2.0], [2.0, 2.0]]
    group.close()


def test_a_rank_that_is_killed_during_a_collective_fails_it() -> None:
    group = Group(3)
    group.start(MODULE, "die_during_a_collective", ranks=[2])
    group.start(MODULE, "collective_without_the_last", 20.0, 32_000_000, ranks=[0, 1])
    for text, seconds in group.results(ranks=[0, 1]):
        assert text.startswith("DistBackendError: [Rank ")
        assert "Another rank has ended, or has given up." in text
        assert seconds < 15
    group.close()


def test_a_collective_that_a_rank_does_not_call_times_out_and_says_which() -> None:
    group = Group(2)
    group.start(MODULE, "collective_without_the_last", 1.0, ranks=[0])
    ((text, seconds),) = group.results(ranks=[0])
    assert text.startswith(
        "DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLREDUCE, "
        "TensorShape=[2], Timeout(ms)=1000). Another rank has not called it, calls another collective, or has ended."
    )
    assert 0.9 < seconds < 5
    group.close()


def test_abort_ends_what_waits() -> None:
    group = Group(2)
    (text, seconds), _ = group.run(MODULE, "abort")
    assert text == "DistBackendError: The process group was aborted"
    assert seconds < 5
    group.close()


def test_out_of_memory_on_one_rank_is_a_timeout_of_the_others() -> None:
    group = Group(2)
    first, second = group.run(MODULE, "out_of_memory")
    assert first.startswith("OutOfMemoryError: OpenReg out of memory.")
    assert second.startswith(
        "DistBackendError: [Rank 1] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLREDUCE"
    )
    group.close()


def test_a_forked_child_of_a_rank_is_refused() -> None:
    group = Group(2)
    assert group.run(MODULE, "fork") == [17, 17]
    group.close()


def test_the_detail_of_torch_distributed_debug_works() -> None:
    group = Group(2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    for result, error in group.run(MODULE, "detail"):
        assert result == "[2.0, 2.0]"
        assert "Detected mismatch between collectives on ranks." in error
    group.close()


def test_a_process_ends_with_a_collective_in_flight() -> None:
    program = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group(device_id=torch.device("openreg", 0))
    if os.environ["RANK"] == "1":
        dist.irecv(torch.ones(4, device="openreg"), 0)
        print("end")
    else:
        sys.stdin.read()  # until the other has ended
    """
    port = str(free_port())
    silent, receiver = (
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    output, errors = receiver.communicate(timeout=60)
    assert (receiver.returncode, output) == (0, "end\n"), errors
    _, errors = silent.communicate(timeout=60)
    assert silent.returncode == 0, errors


# ---- on demand: torch_openreg.openreg.faults -------------------------------------------------------------------------


def test_a_message_that_is_dropped_is_missed_by_the_others() -> None:
    group = Group(2)
    (missed, seconds), (unaware, _) = group.run(MODULE, "sum_under_faults", "rank1@message:1=drop", 1.0)
    assert missed.startswith(
        "DistBackendError: [Rank 0] collective operation timeout: WorkOCCL(SeqNum=1, OpType=ALLRED"
    )
    assert unaware == NO_ERROR and seconds > 0.9
    group.close()


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_message_that_is_late_holds_up_all(mode: str) -> None:
    group = Group(2)
    for heard, seconds in group.run(MODULE, "sum_under_faults", "rank1@message~300ms", 20.0, mode=mode):
        assert heard == NO_ERROR and seconds >= 0.3
    group.close()


def test_a_message_that_fails_names_the_fault() -> None:
    group = Group(2)
    (missed, _), (failed, _) = group.run(MODULE, "sum_under_faults", "rank1@message:1=failure", 1.0)
    assert missed.startswith("DistBackendError: [Rank 0] collective operation ")
    assert failed.startswith(
        "DistBackendError: [Rank 1] collective operation failed: WorkOCCL(SeqNum=1, OpType=ALLREDUCE"
    )
    assert "unspecified launch failure (injected by rank1@message:1=failure)" in failed
    group.close()


def test_a_rank_that_a_fault_kills_is_missed_by_the_others() -> None:
    group = Group(3)
    group.start(MODULE, "sum_under_faults", "rank2@message:1=kill", 20.0)
    for heard, seconds in group.results(ranks=[0, 1]):
        assert heard.startswith("DistBackendError: [Rank ") and "Another rank has ended, or has given up." in heard
        assert seconds < 15
    group.processes[2].join(30)
    assert group.processes[2].exitcode == -signal.SIGKILL
    group.close()
