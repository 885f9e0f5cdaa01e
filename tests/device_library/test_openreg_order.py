"""The order of work in orExecutionChaos is printed, saved and replayed (OPENREG_ORDER)."""

from __future__ import annotations

import threading
from pathlib import Path

import programs
import pytest
from openreg_c import CHAOS, call
from openreg_process import compile_program, cpp_compiler, error_of, output_of, run_python
from openreg_work import forced_count, launch

STRESS = Path(__file__).parent / "stress" / "orders.cpp"
# Two streams. The schedule late runs "b" before "a".
ONE_THREAD = """
    from openreg_work import launch_named
    first, second = get_pointer("orStreamCreate"), get_pointer("orStreamCreate")
    event = get_pointer("orEventCreate")
    launch_named(first, "a")
    call("orEventRecord", event, first)
    launch_named(second, "b")
    call("orStreamWaitEvent", second, event, 0)
    call("orDeviceSynchronize")
"""
ORDER = [
    "# order of openreg, version 1",
    "launch 1 1 a",
    "record 1 1 -",
    "launch 2 1 b",
    "wait 2 1 -",
    "run 2 0 b",
    "run 1 0 a",
]
# The threads launch in the order in which they come.
TWO_THREADS = """
    import threading
    from openreg_work import launch_named
    streams = [get_pointer("orStreamCreate") for _ in range(2)]

    def work(index):
        for number in range(20):
            launch_named(streams[index], f"{index} {number}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    call("orDeviceSynchronize")
"""


def test_the_order_is_printed() -> None:
    printed = run_python(ONE_THREAD, OPENREG_EXECUTION="late", OPENREG_ORDER="print", status=0).stderr
    assert printed.splitlines() == ORDER


def test_a_saved_order_is_replayed_whatever_the_schedule_is(tmp_path: Path) -> None:
    saved, again = tmp_path / "order", tmp_path / "again"
    output_of(ONE_THREAD, OPENREG_EXECUTION="late", OPENREG_ORDER=f"save:{saved}")
    assert saved.read_text().splitlines() == ORDER
    a_first = [*ORDER[:5], ORDER[6], ORDER[5]]
    again.write_text("\n".join(a_first) + "\n")
    for file in (saved, again):
        output_of(ONE_THREAD, OPENREG_EXECUTION="random:3", OPENREG_ORDER=f"replay:{file}")


def test_a_replay_orders_the_calls_of_several_threads(tmp_path: Path) -> None:
    calls = [f"launch {1 + number % 2} {1 + number % 2} {number % 2} {number // 2}" for number in range(40)]
    runs = [f"run {stream} 0 {stream - 1} {number}" for stream in (2, 1) for number in range(20)]
    order = tmp_path / "order"
    order.write_text("\n".join([ORDER[0], *calls, *runs]) + "\n")
    output_of(TWO_THREADS, OPENREG_EXECUTION="late", OPENREG_ORDER=f"replay:{order}")


@pytest.mark.parametrize(
    ("line", "text", "reason"),
    [
        (3, "launch 2 1 c", 'line 4, "launch 2 1 c", because the thread calls: launch 0 1 b'),
        (6, None, "line 7, the end, because the program has more work"),
    ],
)
def test_a_replay_that_cannot_follow_its_file_says_so_and_ends(
    tmp_path: Path, line: int, text: str | None, reason: str
) -> None:
    order = tmp_path / "order"
    order.write_text("\n".join([*ORDER[:line], *filter(None, [text]), *ORDER[line + 1 :]]) + "\n")
    result = run_python(ONE_THREAD, OPENREG_EXECUTION="late", OPENREG_ORDER=f"replay:{order}", status=1)
    assert result.stderr == f"openreg: the replay of {order} stops at {reason}\n"


def test_a_replay_ends_where_the_program_goes_on(tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.write_text("\n".join(ORDER[:4]) + "\n")
    result = run_python(ONE_THREAD, OPENREG_EXECUTION="late", OPENREG_ORDER=f"replay:{order}", status=1)
    reason = "line 5, the end, because the program goes on with: wait 2 1 -"
    assert result.stderr == f"openreg: the replay of {order} stops at {reason}\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("yes", "is not valid: expected print, save:FILE or replay:FILE"),
        ("save:/no/such/folder/f", ": no file can be written there: No such file or directory"),
        ("replay:/no/such/file", ": /no/such/file is not a file that OPENREG_ORDER=save:FILE has written"),
    ],
)
def test_a_wrong_value_is_an_error_of_the_first_call(value: str, message: str) -> None:
    space = "" if message.startswith(":") else " "
    assert error_of("malloc(1)", OPENREG_ORDER=value) == (
        "orErrorInvalidConfiguration",
        f'orMalloc: OPENREG_ORDER="{value}"{space}{message}',
    )


def test_each_rank_has_a_file_of_its_own(tmp_path: Path) -> None:
    output_of(ONE_THREAD, OPENREG_EXECUTION="late", OPENREG_ORDER=f"save:{tmp_path / 'order'}", RANK="3")
    assert (tmp_path / "order.3").read_text().splitlines() == ORDER


def test_runs_of_a_program_beside_busy_processes_have_the_same_order(tmp_path: Path) -> None:
    program = compile_program(cpp_compiler(), tmp_path, STRESS.read_text())
    result = programs.run(program, "--runs", "24", status=0)
    assert result.stdout == "24 runs of 12 programs and schedules, 0 with another order\n"


@pytest.mark.usefixtures("clean_device")
def test_work_that_begins_because_all_threads_are_blocked_is_counted(stream: int) -> None:
    call("orSetExecutionMode", CHAOS, 0)
    before = forced_count()
    ran = threading.Event()
    launch(stream, ran.set)
    call("orStreamSynchronize", stream)
    assert forced_count() == before
    ran.clear()
    launch(stream, ran.set)
    assert ran.wait(600)
    assert forced_count() == before + 1


FORCED = """
    import threading
    from openreg_work import launch
    ran = threading.Event()
    launch(None, ran.set)
    assert ran.wait(600)
"""


def test_the_order_names_work_that_begins_because_all_threads_are_blocked() -> None:
    printed = run_python(FORCED, OPENREG_EXECUTION="late", OPENREG_ORDER="print", status=0).stderr
    assert printed.splitlines()[1:] == ["launch 1 1 -", "force 1 0 -"]
