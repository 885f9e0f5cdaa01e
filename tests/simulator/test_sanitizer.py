"""The sanitizer finds each bug of sanitizer_pairs.py by the right check, and reports no repaired program."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import operator
import re
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import openreg_process
import programs
import pytest
import torch
from comparison import DEVICE
from openreg_c import (
    DEVICE_TO_HOST,
    call,
    get_pointer,
    ipc_event,
    ipc_event_handle,
    ipc_event_open,
    ipc_handle,
    ipc_open,
    malloc,
)
from openreg_work import Gate, kernel
from programs import COMPILER, Done, Peer, importing
from sanitizer_pairs import (
    PAIRS,
    Pair,
    captured,
    current,
    forget,
    get_kernel_pointer,
    half_written,
    launch_kernel,
    new_stream,
    ones,
    pinned,
    race,
    reports_of,
    run_kernel,
    upload,
)

from torch_openreg import openreg
from torch_openreg.openreg import sanitizer
from torch_openreg.simulator import _bindings, _growth

EVERYTHING = "race,init,memory,leak"


@pytest.fixture(params=("inline", "async", "chaos"), autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=3):
        yield request.param
        forget()


# For tests whose result does not depend on the mode of this process.
runs_once = pytest.mark.parametrize("mode", ["inline"], indirect=True)


def name(pair: Pair) -> str:
    return pair.body.__name__


# ---- bugs and repairs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_a_bug_is_found_by_the_check_that_names_its_cause(pair: Pair) -> None:
    reports = reports_of(pair, fixed=False)
    assert {report.kind for report in reports} == {pair.kind}, "\n".join(map(str, reports))


@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_a_repaired_program_is_not_reported(pair: Pair) -> None:
    assert [str(report) for report in reports_of(pair, fixed=True)] == []


def test_the_table_of_pairs_has_what_was_found_and_what_it_costs(mode: str) -> None:
    command = [sys.executable, Path(__file__).with_name("sanitizer_table.py"), "--repeat", "1", "--mode", mode]
    pairs = ["even_and_odd_rows", "empty_instead_of_zeros"]
    result = programs.run(*command, *pairs)
    rows = [re.sub(r"\d+\.\d", "TIMES", line).split() for line in result.stdout.splitlines()]
    assert rows == [
        ["pair", "check", "caught", "false", "alarm", "cost"],
        ["even_and_odd_rows", "race", "yes", "none", "TIMES"],
        ["empty_instead_of_zeros", "init", "yes", "none", "TIMES"],
        ["1", "pairs", "race", "1", "0", "TIMES", "(median)"],
        ["1", "pairs", "init", "1", "0", "TIMES", "(median)"],
        ["2", "pairs", "all", "2", "0", "TIMES", "(median)"],
    ]
    assert (result.returncode, result.stderr) == (0, "")


@runs_once
def test_at_least_40_pairs_exist_and_15_come_from_public_bugs() -> None:
    assert len(PAIRS) >= 40
    assert len({pair.link for pair in PAIRS if pair.link}) >= 15


LEAP = """
from sanitizer_pairs import ones, run_kernel
from torch_openreg.openreg import sanitizer
with sanitizer.enable("memory"):
    neighbours = [ones(1 << 20) for _ in range(3)]
    for x in neighbours:
        run_kernel("scatter", x, 1, first={})
"""


def test_a_kernel_that_leaps_over_the_red_zone_of_a_large_block_faults(mode: str) -> None:
    def scatter(first: int) -> Done:
        return programs.python(LEAP.format(first), OPENREG_EXECUTION=mode, PYTHONPATH=importing(__file__))

    result = scatter((1 << 20) + 2048)  # 8,192 bytes past the end of x, whose block has 512 bytes of red zone
    assert re.fullmatch(
        r"openreg: the kernel scatter accessed memory of device 0 at 0x\w+, 7680 bytes past the end of an allocation "
        r"of 4194816 bytes: an index is out of bounds\.\n",
        result.stderr,
    )
    assert result.returncode == -signal.SIGSEGV
    repaired = scatter((1 << 20) - 1)
    assert (repaired.returncode, repaired.stderr) == (0, "")


def test_memory_that_is_kept_from_reuse_is_there_before_the_device_runs_out_of_memory() -> None:
    size = 40 << 20
    openreg.memory.empty_cache()
    total = openreg.memory.mem_get_info()[1]
    try:
        with sanitizer.enable("memory"):
            first = torch.ones(size, dtype=torch.uint8, device=DEVICE)
            address = first.data_ptr()
            reserved = openreg.memory.memory_reserved()
            del first
            second = torch.ones(size, dtype=torch.uint8, device=DEVICE)
            assert second.data_ptr() != address
            del second
            openreg.memory.set_per_process_memory_fraction(2 * reserved / total)
            kept = [torch.ones(size, dtype=torch.uint8, device=DEVICE) for _ in range(2)]
            assert address in {each.data_ptr() for each in kept}
    finally:
        openreg.memory.set_per_process_memory_fraction(1.0)


FRONT = """
from sanitizer_pairs import ones, run_kernel
from torch_openreg.openreg import sanitizer
with sanitizer.enable("memory"):
    tensors = [ones({size}) for _ in range(2)]
    run_kernel("shift", tensors[{which}], 1, first=-1)
"""


@pytest.mark.parametrize(("size", "which"), [(32, 0), (1 << 20, 0), (1 << 20, 1)])
def test_a_kernel_that_writes_before_the_first_tensor_of_a_segment_faults(mode: str, size: int, which: int) -> None:
    code = FRONT.format(size=size, which=which)
    result = programs.python(code, OPENREG_EXECUTION=mode, PYTHONPATH=importing(__file__))
    assert re.match(r"openreg: the .* accessed .*memory .*at 0x\w+", result.stderr)
    assert result.returncode == -signal.SIGSEGV


# ---- what a report says ----------------------------------------------------------------------------------------------


def test_the_figures_of_memory_do_not_count_red_zones() -> None:
    before = openreg.memory_allocated()
    with sanitizer.enable("memory"):
        for elements, counted in ((1, 512), (128, 512), (1 << 20, 4 << 20)):
            x = ones(elements)
            assert openreg.memory_allocated() - before == counted
            assert openreg.memory_stats()["active_bytes.all.current"] == openreg.memory_allocated()
            del x
            assert openreg.memory_allocated() == before
        x = ones(1 << 20)
    del x
    assert openreg.memory_allocated() == before


def test_a_report_names_both_accesses() -> None:
    with sanitizer.enable("race", mode="report") as session:
        race()
    (report,) = session.reports
    assert report.kind == "race"
    now, before = report.accesses
    assert (now.operator, now.action, now.shape) == ("aten::sum", "reads", (4, 8))
    assert (before.operator, before.action, before.shape) == ("aten::mul_.Tensor", "writes", (4, 8))
    assert now.stream == f"the default stream of {DEVICE}:0"
    assert before.stream.startswith("stream ")
    file, line = race.__code__.co_filename, race.__code__.co_firstlineno
    assert now.site == f"{file}:{line + 6} in race"
    assert before.site == f"{file}:{line + 5} in race"
    text = str(report)
    assert "allocated at" in text
    assert "nothing orders the default stream" in text
    assert "wait_stream" in text


def test_by_default_a_finding_stops_the_work_that_it_is_about() -> None:
    x = ones(4)
    side = new_stream()
    with sanitizer.enable("race"):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            x.mul_(2)
        with pytest.raises(sanitizer.Error, match="race: aten::mul_") as caught:
            x.mul_(3)
        assert caught.value.report.kind == "race"
        torch.accelerator.synchronize()
    assert x.tolist() == [2, 2, 2, 2]  # mul_(3) has not run


def test_every_finding_stops_its_work_even_if_its_line_was_reported_before() -> None:
    x = ones(4)
    with sanitizer.enable("init"):
        unwritten = torch.empty(4, device=DEVICE)
        for _ in range(2):
            with pytest.raises(sanitizer.Error, match="init: aten::add_.Tensor reads 16 bytes"):
                x.add_(unwritten)
    assert x.tolist() == [1, 1, 1, 1]


def test_one_line_that_reads_two_unwritten_weights_is_reported_twice() -> None:
    with sanitizer.enable("init", mode="report") as session:
        first = torch.empty(4, 4, device=DEVICE)
        second = torch.empty(4, 4, device=DEVICE)
        for weight in (first, second, first):
            ones(2, 4) @ weight
    assert [report.kind for report in session.reports] == ["init", "init"]


def test_work_that_was_stopped_races_with_nothing_later() -> None:
    x = ones(4)
    side = new_stream()
    with sanitizer.enable("race"):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            x.mul_(2)
        with pytest.raises(sanitizer.Error, match="race: aten::mul_"):
            x.mul_(3)
        with side:
            x.mul_(2)  # no race: mul_(3) was stopped, so only the side stream has used x
        torch.accelerator.synchronize()
    assert x.tolist() == [4, 4, 4, 4]


def test_host_memory_that_was_pinned_before_the_session_is_known() -> None:
    buffer = pinned(64)
    for fixed in (False, True):
        with sanitizer.enable("race", mode="report") as session:
            buffer.copy_(ones(64), non_blocking=True)
            if fixed:
                torch.accelerator.synchronize()
            buffer.sum()
            torch.accelerator.synchronize()
        assert [report.kind for report in session.reports] == ([] if fixed else ["race"])


def test_a_write_of_the_host_that_is_no_operator_is_reported_with_the_copy() -> None:
    staging, x = pinned(64), ones(64)
    line = sys._getframe().f_lineno + 1
    with sanitizer.enable("race", mode="report") as session:
        x.copy_(staging, non_blocking=True)
        staging.numpy()[0] = 7
        torch.accelerator.synchronize()
        staging.numpy()[0] = 8
    (report,) = session.reports
    assert str(report).startswith(
        "race: the host has overwritten pinned memory that aten::copy_ may still be reading, before it waited for the "
        f"default stream of {DEVICE}:0.\n"
    )
    assert [(each.operator, each.action, each.bytes) for each in report.accesses] == [
        ("the host", "writes", 256),
        ("aten::copy_", "reads", 256),
    ]
    name = sys._getframe().f_code.co_name
    assert [each.site for each in report.accesses] == [f"{__file__}:{line + n} in {name}" for n in (2, 1)]
    assert f"Tensor.numpy gave out the memory, at {report.accesses[0].site}." in str(report)
    array = staging.numpy()
    with sanitizer.enable("race", mode="report") as session:
        x.copy_(staging, non_blocking=True)
        array[0] = 7
        torch.accelerator.synchronize()
    (report,) = session.reports
    assert "its line is not known. It happened after the copy's line." in str(report)


def test_a_copy_is_reported_with_its_operator_and_the_shape_of_its_tensor() -> None:
    host = pinned(4, 8)
    line = sys._getframe().f_lineno
    with sanitizer.enable("race", "init", mode="report") as session:
        host.copy_(ones(4, 8), non_blocking=True)
        host.sum()
        torch.accelerator.synchronize()
        torch.empty(2, 3, device=DEVICE).cpu()
    race, unwritten = session.reports
    assert [(each.operator, each.action, each.shape, each.site) for each in race.accesses] == [
        ("aten::sum", "reads", (4, 8), f"{__file__}:{line + 3} in {sys._getframe().f_code.co_name}"),
        ("aten::copy_", "writes", (4, 8), f"{__file__}:{line + 2} in {sys._getframe().f_code.co_name}"),
    ]
    assert [(each.operator, each.shape) for each in unwritten.accesses] == [("aten::copy_", (2, 3))]


def test_a_fill_is_reported_with_its_operator_and_the_shape_of_its_tensor() -> None:
    x, side = ones(4, 8), new_stream()
    with sanitizer.enable("race", mode="report") as session:
        with side:
            x.t().zero_()
        x.sum()
        torch.accelerator.synchronize()
    (report,) = session.reports
    assert [(each.operator, each.shape) for each in report.accesses] == [("aten::sum", (4, 8)), ("aten::zero_", (8, 4))]


def test_a_copy_of_a_custom_operator_is_reported_with_its_name() -> None:
    x, host, side = ones(64), pinned(64), new_stream()
    with torch.library._scoped_library("sanitized", "DEF") as library:
        library.define("upload(Tensor(a!) target, Tensor source) -> ()")
        library.impl("upload", upload, "CompositeExplicitAutograd")
        with sanitizer.enable("race", mode="report") as session:
            torch.ops.sanitized.upload(x, host)
            with side:
                x.sum()
            torch.accelerator.synchronize()
    (report,) = session.reports
    assert [(each.operator, each.shape) for each in report.accesses] == [
        ("aten::sum", (64,)),
        ("sanitized::upload", (64,)),
    ]


def test_a_copy_of_the_device_into_a_buffer_that_is_being_uploaded_is_no_write_of_the_host() -> None:
    buffer, x, y = pinned(64), ones(64), torch.zeros(64, device=DEVICE)
    with sanitizer.enable("race", mode="report") as session:
        for _ in range(2):
            buffer.copy_(x, non_blocking=True)
            y.copy_(buffer, non_blocking=True)
            x.add_(1)
        torch.accelerator.synchronize()
    assert [str(report) for report in session.reports] == []


def kinds_of(program: Callable[[torch.Tensor, torch.Stream], object], *checks: str) -> list[str]:
    """The kinds of the findings about a program that gets a tensor, and a stream that waits for the current one.

    What the program returns lives until the work is done.
    """
    x, side = ones(8, 8), new_stream()
    with sanitizer.enable(*checks, mode="report") as session:
        side.wait_stream(torch.accelerator.current_stream())
        kept = program(x, side)
        torch.accelerator.synchronize()
        del kept
    return [report.kind for report in session.reports]


# On a GPU these operators wait for a count, a bound or a value, and then launch the kernels that write the results.
WAITS_FIRST: dict[str, Callable[[torch.Tensor], object]] = {
    "index_put_ with a mask": lambda x: x.index_put_((x > 0,), torch.zeros(64, device=DEVICE)),
    "x[mask] += 1": lambda x: x.__setitem__(x > 0, x[x > 0] + 1),
    "x[index] = number": lambda x: x.__setitem__(torch.tensor([1, 2], device=DEVICE), 1.0),
    "x[mask]": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "nonzero": lambda x: x.nonzero(),
    "bincount": lambda x: x.view(-1).long().bincount(),
    "histc": lambda x: x.histc(4),
    "unique of rows": lambda x: x.unique(dim=0),
    "repeat_interleave": lambda x: torch.repeat_interleave(x[0].long()),
}


@pytest.mark.parametrize("name", list(WAITS_FIRST))
def test_a_wait_in_the_middle_of_an_operator_does_not_order_what_it_writes_afterwards(name: str) -> None:
    def program(x: torch.Tensor, side: torch.Stream, *, waits: bool) -> object:
        with side:
            y = WAITS_FIRST[name](x)
        if waits:
            torch.accelerator.current_stream().wait_stream(side)
        return y, (y if isinstance(y, torch.Tensor) else x).sum()

    assert kinds_of(partial(program, waits=False), "race") == ["race"]
    assert kinds_of(partial(program, waits=True), "race") == []


def test_a_wait_at_the_end_of_an_operator_orders_what_it_wrote() -> None:
    def program(x: torch.Tensor, side: torch.Stream) -> object:
        with side:
            y, eigenvalues = x.unique(), torch.linalg.eigvalsh(x)
        return y, y.sum(), eigenvalues, eigenvalues.sum()

    assert kinds_of(program, "race") == []


USES_OF_A_GENERATOR: dict[str, Callable[[torch.Generator], object]] = {
    "get_state": lambda generator: generator.get_state(),
    "set_state": lambda generator: generator.set_state(torch.Generator(DEVICE).get_state()),
    "manual_seed": lambda generator: generator.manual_seed(2),
    "initial_seed": lambda generator: generator.initial_seed(),
    "another stream": lambda generator: torch.rand(4, device=DEVICE, generator=generator),
}


@pytest.mark.parametrize("use", list(USES_OF_A_GENERATOR))
def test_a_generator_orders_no_work(mode: str, use: str) -> None:
    def program(x: torch.Tensor, side: torch.Stream) -> object:
        generator = torch.Generator(DEVICE).manual_seed(1)
        with side:
            x.bernoulli_(0.5, generator=generator)
        return USES_OF_A_GENERATOR[use](generator), x.sum()

    assert kinds_of(program, "race") == ["race"]


def test_a_sparse_tensor_is_made_without_reading_its_values() -> None:
    def program(x: torch.Tensor, side: torch.Stream) -> object:
        index = torch.arange(3, device=DEVICE).expand(2, 3)
        with side:
            values = torch.empty(3, device=DEVICE)
            values.fill_(1)
        sparse = torch.sparse_coo_tensor(index, values, (3, 3), check_invariants=False)
        unwritten = torch.sparse_coo_tensor(index, torch.empty(3, device=DEVICE), (3, 3), check_invariants=False)
        unwritten._values().fill_(1)
        torch.accelerator.current_stream().wait_stream(side)
        return values, sparse.to_dense(), unwritten.to_dense()

    assert kinds_of(program, "race", "init") == []


def test_the_methods_of_tensors_that_read_are_watched_only_during_a_session() -> None:
    def methods() -> list[object]:
        return [torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__reduce_ex__]

    before, inherited = methods(), set(torch.Tensor.__dict__)
    with sanitizer.enable("race"), sanitizer.enable("race", "init"):
        assert all(map(operator.is_not, methods(), before))
        assert torch.ones(2).numpy().tolist() == torch.ones(2).tolist() == [1, 1]
    assert all(map(operator.is_, methods(), before))
    assert set(torch.Tensor.__dict__) == inherited


def test_an_overrun_is_reported_with_the_bytes_that_it_damaged() -> None:
    x = ones(90)
    with sanitizer.enable("memory", mode="report") as session:
        x = ones(90)
        run_kernel("over", x, 91)
        run_kernel("under", x, 1, first=92)
    assert [(each.accesses[0].operator, each.accesses[0].bytes) for each in session.reports] == [
        ("over", 4),
        ("under", 4),
    ]
    assert f"\n  over writes 4 bytes on the default stream of {DEVICE}:0, at " in str(session.reports[0])


def test_the_access_of_an_operator_in_place_is_the_read_that_is_reported() -> None:
    with sanitizer.enable("init", mode="report") as session:
        torch.empty(4, device=DEVICE).add_(1)
    (report,) = session.reports
    assert [access.action for access in report.accesses] == ["reads"]
    assert "\n  aten::add_.Tensor reads a tensor of shape [4], 4 bytes an element on " in str(report)


def test_moves_of_pinned_copies_are_no_reads_and_numpy_may_write_them() -> None:
    with sanitizer.enable("init", mode="report") as session:
        on_host = half_written(8).to("cpu", non_blocking=True)
        current().synchronize()
        on_host.clone(), on_host.flip(0)
        torch.add(torch.ones(8), 1, out=on_host)
        on_host.sum()
        on_host.copy_(half_written(8), non_blocking=True)
        current().synchronize()
        on_host.numpy()[4:] = 1
        on_host.sum()
    assert [str(report) for report in session.reports] == []


def test_rows_that_belong_to_no_group_are_not_read() -> None:
    rows, matrices = half_written(32, 16, dtype=torch.bfloat16), ones(2, 16, 16).bfloat16()
    ends = torch.tensor([8, 16], dtype=torch.int32, device=DEVICE)
    with sanitizer.enable("init", mode="report") as session:
        rows = half_written(32, 16, dtype=torch.bfloat16)
        torch._grouped_mm(rows, matrices, offs=ends)
        rows.sum()
    assert [report.accesses[0].operator for report in session.reports] == ["aten::sum"]


def test_an_overrun_of_a_queued_kernel_is_raised_by_the_wait_or_by_the_next_work_of_any_thread() -> None:
    with sanitizer.enable("memory"):
        x = ones(90)
        waits = (torch.accelerator.synchronize, current().synchronize, lambda: current().record_event().synchronize())
        for wait in waits:
            kept = launch_kernel("over", x, 91)
            with pytest.raises(sanitizer.Error, match="over wrote past the end of a tensor's memory"):
                wait()
            torch.accelerator.synchronize()
        thread = threading.Thread(target=lambda: kept_in_thread.append(launch_kernel("over", x, 91)))
        kept_in_thread: list[object] = []
        thread.start(), thread.join()
        call("orDeviceSynchronize")
        with pytest.raises(sanitizer.Error, match="over wrote past the end of a tensor's memory"):
            x.add_(1)
        x.add_(2)
    assert x.tolist() == [2] * 90
    del kept


def test_an_overrun_at_the_end_of_the_block_is_raised_there() -> None:
    with pytest.raises(sanitizer.Error, match="over wrote past the end"), sanitizer.enable("memory"):
        x = ones(90)
        kept = launch_kernel("over", x, 91)
    del kept


# ---- with another process --------------------------------------------------------------------------------------------

PEER = """
import sys
memory, mine, stream = malloc(4096), ipc_event(), get_pointer("orStreamCreate")
print(ipc_handle(memory).hex(), ipc_event_handle(mine).hex(), flush=True)
for line in sys.stdin:
    event = ipc_event_open(bytes.fromhex(line))
    call("orStreamWaitEvent", stream, event, 0)
    call("orEventRecord", mine, stream)
    call("orStreamSynchronize", stream)
    print("recorded", flush=True)
"""


class Other:
    """Another process with memory and an event. It can wait for an event of this process before it records its own."""

    def __init__(self, process: Peer) -> None:
        self._process = process
        self.memory, self.event = map(bytes.fromhex, process.read().split())

    def wait_and_record(self, event: int) -> None:
        assert self._process.ask(ipc_event_handle(event).hex()) == "recorded"


@pytest.fixture
def peer() -> Iterator[Other]:
    with openreg_process.peer(PEER) as process:
        yield Other(process)


@pytest.mark.parametrize("waits", ["a stream waits", "the host waits", "nobody waits"])
def test_an_order_through_an_event_of_another_process_is_no_race(peer: Other, waits: str) -> None:
    x, side, mine, theirs = ones(64), new_stream(), ipc_event(), ipc_event_open(peer.event)
    with sanitizer.enable("race", mode="report") as session:
        side.wait_stream(current())
        with side:
            x.mul_(2)
        call("orEventRecord", mine, side.native_handle)
        peer.wait_and_record(mine)
        if waits == "a stream waits":
            call("orStreamWaitEvent", current().native_handle, theirs, 0)
        elif waits == "the host waits":
            call("orEventSynchronize", theirs)
        x.sum()
        with side:
            x.mul_(2)  # work after the record, which nobody waits for
        x.sum()
        torch.accelerator.synchronize()
    reads = [(each.accesses[0].operator, each.accesses[1].operator) for each in session.reports]
    raced = [("aten::mul_.Tensor", "aten::sum"), ("aten::sum", "aten::mul_.Tensor")]
    assert reads == (raced if waits != "nobody waits" else raced[1:] + raced)
    for event in (mine, theirs):
        call("orEventDestroy", event)


def test_two_streams_race_for_the_memory_of_another_process(peer: Other) -> None:
    side = new_stream()
    for fixed in (False, True):
        with sanitizer.enable(EVERYTHING, mode="report") as session:
            memory = ipc_open(peer.memory)
            call("orMemsetAsync", memory, 0, 4096, current().native_handle)
            if fixed:
                side.wait_stream(current())
            call("orMemsetAsync", memory, 0, 4096, side.native_handle)
            torch.accelerator.synchronize()
            call("orIpcCloseMemHandle", memory)
        assert [report.kind for report in session.reports] == ([] if fixed else ["race"])


def test_memory_that_was_opened_twice_is_known_until_it_is_closed_twice(peer: Other) -> None:
    side = new_stream()
    with sanitizer.enable("race", "leak", mode="report") as session:
        memory = ipc_open(peer.memory)
        assert ipc_open(peer.memory) == memory
        call("orMemsetAsync", memory, 0, 4096, current().native_handle)
        call("orIpcCloseMemHandle", memory)
        call("orMemsetAsync", memory, 0, 4096, side.native_handle)
        torch.accelerator.synchronize()
    assert [report.kind for report in session.reports] == ["race", "leak"]
    assert "1 results of orIpcOpenMemHandle were never destroyed." in str(session.reports[1])
    call("orIpcCloseMemHandle", memory)


def test_memory_that_another_process_may_have_written_is_not_unwritten(peer: Other) -> None:
    with sanitizer.enable("init", mode="report") as session:
        theirs, mine, on_host = ipc_open(peer.memory), malloc(4096), ctypes.create_string_buffer(4096)
        call("orMemcpy", on_host, theirs, 4096, DEVICE_TO_HOST)
        ipc_handle(mine)  # whoever gets the handle may write
        call("orMemcpy", on_host, mine, 4096, DEVICE_TO_HOST)
        call("orFree", mine)
        call("orIpcCloseMemHandle", theirs)
    assert [str(report) for report in session.reports] == []


def test_opened_memory_of_another_process_that_nobody_closes_is_a_leak(peer: Other) -> None:
    for fixed in (False, True):
        with sanitizer.enable("leak", mode="report") as session:
            memory = ipc_open(peer.memory)
            if fixed:
                call("orIpcCloseMemHandle", memory)
        assert [str(report).split("\n")[0] for report in session.reports] == (
            [] if fixed else ["leak: 1 results of orIpcOpenMemHandle were never destroyed."]
        )
        if not fixed:
            call("orIpcCloseMemHandle", memory)


# ---- what a report of a leak says ------------------------------------------------------------------------------------


def test_a_leak_of_device_memory_names_its_device() -> None:
    with sanitizer.enable("leak", mode="report") as session:
        x = torch.ones(64, device=f"{DEVICE}:1")
    del x
    (report,) = session.reports
    (access,) = report.accesses
    assert (access.operator, access.action, access.stream) == ("the device allocator", "allocates", f"{DEVICE}:1")
    assert f"\n  the device allocator allocates {access.bytes} bytes on {DEVICE}:1, at {__file__}:" in str(report)


def test_a_leak_of_a_handle_names_the_function_that_made_it() -> None:
    with sanitizer.enable("leak", mode="report") as session:
        stream = get_pointer("orStreamCreate")
    call("orStreamDestroy", stream)
    (report,) = session.reports
    (access,) = report.accesses
    assert (access.operator, access.action, access.stream, access.bytes) == ("orStreamCreate", "makes", "", 0)
    assert "\n  orStreamCreate makes a handle, at " in str(report)


def test_a_leak_of_pinned_memory_names_its_line() -> None:
    with sanitizer.enable("leak", mode="report") as session:
        buffer = torch.empty(1000, pin_memory=True)
    del buffer
    (report,) = map(str, session.reports)
    assert report.startswith("leak: 4000 bytes of pinned memory in 1 blocks are still allocated.")
    line = inspect.currentframe().f_lineno - 4  # type: ignore[union-attr]
    assert f"at {__file__}:{line} in test_a_leak_of_pinned_memory_names_its_line" in report


def test_an_index_behind_work_that_waits_for_this_thread_is_not_waited_for_without_end(mode: str) -> None:
    stream = current().native_handle
    with sanitizer.enable("init", mode="report") as session:
        index = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        with Gate(stream) if mode != "inline" else contextlib.nullcontext():
            x = torch.empty(6, 4, device=DEVICE)
            y = x[index]  # async, chaos: the index is not known in time, so the row counts as written
        y.sum()
    assert [report.kind for report in session.reports] == (["init"] if mode == "inline" else [])


def put_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    x[index] = ones(len(index), 4)
    return x


MOVES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_put": put_rows,
    "scatter": lambda x, index: x.scatter_(0, index[:, None].expand(-1, 4), 1.0),
    "index_copy": lambda x, index: x.index_copy_(0, index, ones(len(index), 4)),
    "index_fill": lambda x, index: x.index_fill_(0, index, 1.0),
    "index": lambda x, index: put_rows(x, index)[torch.arange(6, device=DEVICE)],
    "embedding": lambda x, index: torch.nn.functional.embedding(torch.arange(6, device=DEVICE), put_rows(x, index)),
    "masked_fill": lambda x, index: x.masked_fill_(torch.arange(6, device=DEVICE)[:, None] < len(index), 1.0),
    "where": lambda x, index: torch.where(torch.arange(6, device=DEVICE)[:, None] < len(index), 1.0, x),
}


@pytest.mark.parametrize("move", list(MOVES))
def test_rows_that_no_index_names_stay_unwritten(move: str) -> None:
    for rows, expected in (([0, 2, 3, 5], ["init"]), ([0, 1, 2, 3, 4, 5], [])):
        with sanitizer.enable("init", mode="report") as session:
            x = torch.empty(6, 4, device=DEVICE)
            MOVES[move](x, torch.tensor(rows, device=DEVICE)).sum()
        assert [report.kind for report in session.reports] == expected


def test_a_reduction_without_the_first_operand_writes_the_rows_that_the_index_names() -> None:
    for row, expected in ((0, []), (1, ["init"])):
        with sanitizer.enable("init", mode="report") as session:
            x = torch.empty(3, 4, device=DEVICE)
            index = torch.zeros(1, 4, dtype=torch.int64, device=DEVICE)
            x.scatter_reduce_(0, index, ones(1, 4), "mean", include_self=False)
            x[row].sum()
        assert [report.kind for report in session.reports] == expected


def test_an_argument_that_a_helper_only_writes_is_not_reported() -> None:
    with sanitizer.enable("init"):
        ones(3, 3).cummin(0), ones(3, 3).cummax(0)
        weight = ones(3).requires_grad_()
        weight.grad = ones(3)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
        optimizer.step()  # makes the buffer of the momentum with empty()
        optimizer.step()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("inplace", [True, False])
def test_noise_that_an_operator_only_writes_is_not_reported(training: bool, inplace: bool) -> None:
    x = torch.randn(40, device=DEVICE, requires_grad=True)
    with sanitizer.enable("init"):
        torch.nn.functional.rrelu(x * 1, training=training, inplace=inplace).sum().backward()


def test_memory_that_a_kernel_allocates_counts_as_written_if_the_kernel_does_not_tell_its_operands() -> None:
    with sanitizer.enable("init", mode="report") as session:
        with kernel(current().native_handle):  # type: ignore[attr-defined]
            x = torch.empty(64, device=DEVICE)
            ctypes.memset(get_kernel_pointer(x.data_ptr()), 0, 256)
        x.sum()
        torch.empty(64, device=DEVICE).sum()
    assert [report.accesses[0].operator for report in session.reports] == ["aten::sum"]


@pytest.mark.parametrize("checks", ["race", "race,memory"])
def test_a_finding_about_a_free_is_raised_at_the_end_of_the_block(checks: str) -> None:
    with pytest.raises(sanitizer.Error, match="is freed while"), sanitizer.enable(checks):
        x = ones(64)
        side = new_stream()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x * 2
        del x
    del y


def test_an_exception_of_the_block_is_not_replaced() -> None:
    with pytest.raises(KeyError), sanitizer.enable("race"):
        x = torch.ones(64, device=DEVICE).to("cpu", non_blocking=True)
        x.sum()
        raise KeyError


def test_a_session_within_a_session_interrupts_it() -> None:
    with sanitizer.enable("race", mode="report") as outer:
        race()
        with sanitizer.enable("init", mode="report") as inner:
            race()
            torch.empty(4, device=DEVICE).add_(1)
        race()
    assert [report.kind for report in inner.reports] == ["init"]
    assert [report.kind for report in outer.reports] == ["race", "race"]


def test_reports_are_written_as_json(tmp_path: Path) -> None:
    with sanitizer.enable("race", mode="report") as session:
        race()
    session.write_json(tmp_path / "reports.json")
    (report,) = json.loads((tmp_path / "reports.json").read_text())
    assert report["kind"] == "race"
    assert [access["operator"] for access in report["accesses"]] == ["aten::sum", "aten::mul_.Tensor"]


@runs_once
def test_unknown_checks_and_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="has no check 'rice'. There are race, init, memory, leak."):
        sanitizer.enable("rice")
    for none in ("", ","):
        with pytest.raises(ValueError, match="The sanitizer was given no check. There are race, init, memory, leak."):
            sanitizer.enable(none)
    with pytest.raises(ValueError, match="mode is 'warn', but must be 'raise' or 'report'."):
        sanitizer.enable("race", mode="warn")  # type: ignore[arg-type]


def test_the_line_is_the_programs_not_pytorchs() -> None:
    model = torch.nn.Linear(4, 4).to(DEVICE)
    x = torch.empty(2, 4, device=DEVICE)
    with sanitizer.enable("init", mode="report") as session:
        x = torch.empty(2, 4, device=DEVICE)
        model(x)
    (report,) = session.reports
    assert report.accesses[0].site.startswith(__file__)


@pytest.mark.parametrize("folder", ["/home/user/torch_openreg/examples", "/srv/torch"])
def test_the_line_of_a_program_whose_folder_has_a_librarys_name_is_found(folder: str) -> None:
    code = compile("x = ones(4)\n\nx.add_(1)", f"{folder}/program.py", "exec")
    with sanitizer.enable("init", mode="report") as session:
        exec(code, {"ones": lambda size: torch.empty(size, device=DEVICE)})
    (report,) = session.reports
    assert report.accesses[0].site == f"{folder}/program.py:3 in <module>"


# ---- other ways to switch it on --------------------------------------------------------------------------------------


run = programs.python

PROGRAM = f"""
import torch
x = torch.empty(4, device={DEVICE!r})
x.add_(1)
"""


@runs_once
def test_the_environment_enables_it_for_a_process() -> None:
    result = run(PROGRAM, OPENREG_SANITIZER="init")
    assert result.returncode == 1
    assert "Error: init: aten::add_.Tensor reads 16 bytes that nobody has written" in result.stderr
    assert run(PROGRAM, OPENREG_SANITIZER="race").returncode == 0
    sentence = "Set it to race, init, memory, leak, graph (separated by commas), or unset it."
    for value in (",", "rase"):
        assert f"ValueError: OPENREG_SANITIZER is '{value}'. {sentence}" in run(PROGRAM, OPENREG_SANITIZER=value).stderr


LEAK = """
import sys
from torch_openreg.openreg import memory
x = memory.caching_allocator_alloc(64)
"""


@runs_once
def test_findings_that_are_printed_at_the_end_of_the_process_change_a_status_of_0() -> None:
    leaked = run(LEAK, OPENREG_SANITIZER="leak")
    assert leaked.returncode == 1
    assert re.fullmatch(
        r"OPENREG_SANITIZER: leak: \d+ bytes of device memory in 1 blocks are still allocated\. They were allocated at "
        rf"the line below\.\n  the device allocator allocates \d+ bytes on {DEVICE}:0, at <string>:4 in <module>\n"
        r"  Drop the references to them: .*\n",
        leaked.stderr,
    )
    kept = run(LEAK + "print('done')\nsys.exit(3)", OPENREG_SANITIZER="leak")
    assert (kept.returncode, kept.stdout) == (3, "done\n")
    repaired = run(LEAK + "memory.caching_allocator_delete(x)", OPENREG_SANITIZER="leak")
    assert (repaired.returncode, repaired.stderr) == (0, "")


HELD = f"""
import torch
device, kept = {DEVICE!r}, []
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.Adam(model.parameters())
event, buffer = torch.Event(device=device), torch.ones(64).pin_memory()
event.record()
for step in range(8):
    loss = model(torch.ones(16, 64, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(KEEP)
"""


@pytest.mark.slow
@runs_once
def test_what_a_program_holds_at_its_end_is_no_leak_but_what_grows_with_each_step_is() -> None:
    held = run(HELD.replace("KEEP", "loss.detach()"), OPENREG_SANITIZER="leak")
    assert (held.returncode, held.stderr) == (0, "")
    grows = run(HELD.replace("KEEP", "torch.ones(1000, device=device)"), OPENREG_SANITIZER="leak")
    assert grows.returncode == 1 and grows.stderr.startswith(
        "OPENREG_SANITIZER: leak: the memory that one line allocates grows from step to step: 1, 2, 3, 5, 7 blocks after the "
        f"steps 2, 3, 4, 6, 8.\n  the device allocator allocates 28000 bytes on {DEVICE}:0, at <string>:13 in <module>\n"
    )


GROUP = f"""
import torch
import torch.distributed as dist
dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
group = dist.group.WORLD  # as a module of DDP keeps it
dist.all_reduce(torch.ones(4, device={DEVICE!r}))
dist.destroy_process_group()
"""
STREAM = """
from openreg_c import get_pointer
stream = get_pointer("orStreamCreate")
"""


@runs_once
def test_the_streams_of_a_process_group_that_the_program_holds_are_no_leak_but_others_are() -> None:
    held = run(GROUP, OPENREG_SANITIZER="leak")
    assert (held.returncode, held.stderr) == (0, "")
    leaked = run(GROUP + STREAM, OPENREG_SANITIZER="leak", PYTHONPATH=importing(__file__))
    assert leaked.returncode == 1
    assert "leak: 1 results of orStreamCreate were never destroyed." in leaked.stderr


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(8)).to(DEVICE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)  # LAYER
        return x


def serve(requests: int, keep: Callable[[torch.Tensor], object], grad: bool) -> None:
    stack = Stack()
    with torch.set_grad_enabled(grad):
        for _ in range(requests):
            x = torch.ones(4, 32).to(DEVICE)
            keep(stack(x))


def growing_lines(loop: Callable[[], object]) -> set[str]:
    """The lines whose memory grows while ``loop`` runs."""
    with sanitizer.enable("leak", mode="report"):
        kept = loop()
        growing = _bindings._sanitizer_growing(set())
        found = {line for _, line, rounds, _, size in growing if size > _growth.NUMBER * rounds}
        del kept
    return found


def line_of(mark: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(number for number, line in enumerate(lines, 1) if line.endswith(mark))} in "


def test_memory_that_grows_with_each_round_of_a_loop_without_an_optimizer_is_a_leak() -> None:
    kept: list[torch.Tensor] = []
    layer = f"{line_of('# LAYER')}forward"
    assert growing_lines(lambda: serve(8, kept.append, False)) == {layer}
    kept.clear()
    assert layer in growing_lines(lambda: serve(8, lambda y: kept.append(y.mean()), True))  # its graph
    kept.clear()

    def kept_until_it_ends() -> None:
        local: list[torch.Tensor] = []
        serve(10, local.append, False)

    assert growing_lines(kept_until_it_ends) == {layer}


def test_no_memory_grows_in_a_loop_whose_results_are_used_later_or_bounded_or_small() -> None:
    kept: list[torch.Tensor] = []
    window: deque[torch.Tensor] = deque(maxlen=4)
    state = [torch.zeros(4, 32, device=DEVICE)]

    def collect() -> torch.Tensor:
        kept.clear()
        serve(8, kept.append, False)
        return torch.cat(kept)

    def carry(y: torch.Tensor) -> None:
        state[0] = state[0] + y

    for loop in (
        collect,
        lambda: serve(12, window.append, False),
        lambda: serve(8, carry, False),
        lambda: serve(8, lambda y: kept.append(y.sum()), False),
        lambda: serve(8, lambda y: kept.append(y.cpu()), False),
        lambda: serve(1, kept.append, True),  # the layers of one call are no rounds
        lambda: [torch.ones(32, device=DEVICE) for _ in range(8)],  # one statement
    ):
        assert growing_lines(loop) == set()
        kept.clear()


NUMBERS = f"""
import torch
weight, kept = torch.ones(8, device={DEVICE!r}, requires_grad=True), []
for _ in range(8):
    loss = (weight.abs() * 2).sum()  # line 5
    doubled = loss * 2
    kept.append(KEEP)
"""


@pytest.mark.slow
@runs_once
def test_numbers_that_a_loop_keeps_are_a_leak_if_they_keep_their_graphs() -> None:
    leaked = run(NUMBERS.replace("KEEP", "loss"), OPENREG_SANITIZER="leak")
    assert leaked.returncode == 1 and leaked.stderr.startswith(
        "OPENREG_SANITIZER: leak: the memory that one line allocates grows with each round of a loop: "
    )
    assert f"on {DEVICE}:0, at <string>:5 in <module>\n" in leaked.stderr
    repaired = run(NUMBERS.replace("KEEP", "loss.detach()"), OPENREG_SANITIZER="leak")
    assert (repaired.returncode, repaired.stderr) == (0, "")


GROWING = f"""
import torch
from torch_openreg.openreg import sanitizer

def train(keep):
    sanitizer._watch_growth()
    model = torch.nn.Linear(8, 1).to({DEVICE!r})
    optimizer = torch.optim.Adam(model.parameters())
    kept, total = [], 0
    for step in range(6):
        x = torch.ones(4, 8).to({DEVICE!r})
        loss = model(x).square().mean()  # line 12
        loss.backward()
        optimizer.step()
        exec(keep)
        if keep == "":
            total += loss  # line 17
    (*found,) = map(str, sanitizer._grown())
    print("\\n".join(found))
    return found

assert train("kept.append(loss.detach())") == train("kept.append(loss.item())") == []
train("kept.append(loss)")
train("")
train("kept.append((x + 1, x + 2))")
"""


@pytest.mark.slow
@runs_once
def test_a_graph_that_grows_with_each_step_is_a_leak_with_its_line_and_so_are_small_blocks() -> None:
    losses, total, small = run(GROWING, imports=COMPILER).stdout.strip().split("\nleak: ")
    assert losses.startswith("leak: the graph that the tensors of one line keep grows from step to step: ")
    assert "at <string>:12 in train\n  Keep loss.detach() or loss.item() instead." in losses
    assert total.startswith("the graph that") and "at <string>:17 in train" in total
    assert small.startswith("the memory that one line allocates grows from step to step: 2, 4, 6, 10 blocks after the ")


CYCLES = f"""
import torch
from torch_openreg.openreg import sanitizer

class Item:
    def __init__(self, data, back):
        self.data, self.back = data, back and self

class Trainer:
    def __init__(self, model):
        self.model, self.batches, self.me = model, [], self
        for layer in model:
            layer.register_forward_hook(layer.forward)

def run(source):
    sanitizer._watch_growth()
    exec(source, globals())
    sanitizer._look_for_leaks()
    print(*map(str, sanitizer._grown()), sep="\\n")

def ones(size):
    return torch.ones(size, device={DEVICE!r})  # line 22

run("for each in range(300): Item(ones(1000), True)")
run("for each in range(300): Item(ones(1000), False)")
run("for each in range(3): Item(ones(1000), True)")
run("for each in range(10): Item(ones(4), True)")
run("kept = [Item(ones(1000), True) for each in range(10)]")
run("last = None\\nfor each in range(10): last = Item((ones(1000), last), True)")
run("trainer = Trainer(torch.nn.Sequential(*(torch.nn.Linear(9, 9) for _ in range(9))).to(ones(1).device)); del trainer")
run("trainer = Trainer([])\\nfor each in range(10): trainer.batches.append(ones(1000))\\ndel trainer")
"""


@pytest.mark.slow
@runs_once
def test_what_many_cycles_hold_is_a_leak_but_what_one_object_or_the_program_holds_is_not() -> None:
    assert run(CYCLES, imports=COMPILER).stdout == (
        "leak: nothing but Python's garbage collector frees the memory that one line allocates: the program has dropped it "
        "in 300 reference cycles.\n"
        f"  the device allocator allocates 1200000 bytes on {DEVICE}:0, at <string>:22 in ones\n"
        "  Break the cycles: with weakref, or without an attribute that leads back to its own object.\n" + 7 * "\n"
    )


POISONED = f"""
import torch
for size in (100, 1 << 20, 100):  # each is poisoned as a new segment, as a freed block, and when it is given back
    x = torch.empty(size, device={DEVICE!r})
    del x
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
y = torch.empty(4, device={DEVICE!r})
y + 1
"""


@runs_once
@pytest.mark.parametrize("execution", ["inline", "async", "chaos"])
def test_poison_is_no_use_and_no_write_of_the_program(execution: str) -> None:
    result = run(POISONED, OPENREG_POISON="1", OPENREG_EXECUTION=execution, OPENREG_SANITIZER="race,init,memory")
    assert result.returncode == 1
    assert "Error: init: aten::add.Tensor reads 16 bytes that nobody has written" in result.stderr


def test_a_member_of_a_sparse_tensor_is_a_view_which_reads_nothing() -> None:
    x = torch.eye(4).to_sparse_csr().to(DEVICE)
    with sanitizer.enable("init", mode="report") as session:
        torch.zeros_like(x)
        columns = torch.empty_like(x.col_indices())
        y = torch.sparse_csr_tensor(x.crow_indices(), columns, x.values(), x.shape).col_indices()
        assert session.reports == []
        y + 1
    assert [report.accesses[0].operator for report in session.reports] == ["aten::add.Tensor"]


@runs_once
def test_it_starts_no_device() -> None:
    code = f"""
import os, sys, torch
if os.fork() == 0:
    print((torch.ones(2, device="{DEVICE}") * 2).tolist(), flush=True)
    os._exit(0)
os.wait()
"""
    result = run(code, OPENREG_SANITIZER=EVERYTHING)
    assert (result.stdout, result.stderr) == ("[2.0, 2.0]\n", "")
    senseless = run("import torch", OPENREG_SANITIZER=EVERYTHING, OPENREG_DEVICE_COUNT="many")
    assert (senseless.returncode, senseless.stderr) == (0, "")


@runs_once
def test_a_forked_child_reports_nothing_when_it_ends() -> None:
    code = f"""
import os, sys, torch
torch.empty(4, device="{DEVICE}")
if os.fork() == 0:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    programs.python(code, output="7\n", errors="", OPENREG_SANITIZER="race,init")


# ---- what other tools are told ---------------------------------------------------------------------------------------


def test_item_and_blocking_copies_tell_pytorchs_tracer_that_they_wait(mode: str) -> None:
    program = f"""
import torch
from torch.cuda import _gpu_trace

x = torch.ones(4, device={DEVICE!r})
waited = []
torch._C._activate_gpu_trace()
_gpu_trace.register_callback_for_stream_synchronization(waited.append)
for wait in (x.sum().item, x.cpu, x.nonzero, lambda: x[x > 0]):
    before = len(waited)
    wait()
    assert len(waited) > before, wait
print(set(waited))
"""
    programs.python(program, output="{0}\n", errors="", OPENREG_EXECUTION=mode)


# ---- graphs


def test_a_replay_that_would_read_the_memory_of_a_graph_that_was_reset_does_not_run() -> None:
    x, between, results = ones(64), [], []
    with sanitizer.enable("memory"):
        one = captured(lambda: between.append(x * 2))
        other = captured(lambda: results.append(between[0] + 1))
        one.replay()
        torch.accelerator.synchronize()
        between.clear()
        one.reset()
        with pytest.raises(sanitizer.Error) as error:
            other.replay()
    assert str(error.value).startswith(
        "memory: a replay of aten::add.Tensor reads memory that was freed after the capture.\n"
    )
    assert [access.action for access in error.value.report.accesses] == ["reads", "captures"]


def test_a_race_between_branches_of_a_graph_is_raised_at_the_second_call_of_the_capture() -> None:
    x, side = ones(64), torch.Stream(device=DEVICE)

    def compute() -> None:
        side.wait_stream(torch.accelerator.current_stream())
        x.sum()
        with side:
            x.add_(1)

    with sanitizer.enable("race"), pytest.raises(sanitizer.Error) as error:
        captured(compute)
    lines = str(error.value).splitlines()
    stream = rf"stream \d+ of {DEVICE}:0"
    problem = r"race: aten::add_\.Tensor overwrites what aten::sum may still be reading: at each replay, nothing in the"
    assert re.fullmatch(rf"{problem} graph orders {stream} after {stream}\.", lines[0])
    assert re.fullmatch(
        rf"  aten::add_\.Tensor writes a tensor of shape .* on {stream}, at .*:\d+ in compute", lines[1]
    )
    assert re.fullmatch(rf"  aten::sum reads a tensor of shape .* on {stream}, at .*:\d+ in compute", lines[2])
    assert [access.action for access in error.value.report.accesses] == ["writes", "reads"]


def test_joined_branches_and_the_reads_of_several_branches_are_no_race() -> None:
    x, results = ones(64), []
    sides = [torch.Stream(device=DEVICE) for _ in range(3)]

    def compute() -> None:
        main = torch.accelerator.current_stream()
        for _ in range(4):
            for side in sides:
                side.wait_stream(main)
                with side:
                    results.append(x.sum())
            for side in sides:
                main.wait_stream(side)
            x.add_(1)

    with sanitizer.enable("race", mode="report") as session:
        graph = captured(compute)
        graph.replay()
        graph.replay()
        torch.accelerator.synchronize()
    assert [str(report) for report in session.reports] == []
    assert [result.item() for result in results] == [64.0 * n for n in (5, 6, 7, 8) for _ in sides]


def test_a_hint_about_a_number_of_a_capture_has_the_lines_of_the_replay_and_of_the_capture() -> None:
    rate, x = 0.5, ones(4)
    with sanitizer.enable("graph", mode="report") as session:
        graph = captured(lambda: x.mul_(rate))
        graph.replay()
        rate = 0.25
        graph.replay()
    (report,) = session.reports
    lines = str(report).splitlines()
    assert lines[0] == "graph: rate was 0.5 at the capture and is 0.25 now; the replay computes with the old value."
    where = r"  the program replays a graph on the default stream of \w+:0, at .*:\d+ in test_a_hint.*"
    assert re.fullmatch(where, lines[1])
    assert re.fullmatch(r"  the program captures a value on the host, at .*:\d+ in <lambda>", lines[2])
    assert lines[3] == "  Keep the value in a tensor on the device, and change it there: value.fill_(new)."


def test_a_hint_about_an_input_has_the_line_of_the_tensor_that_the_replay_does_not_read() -> None:
    with sanitizer.enable("graph", mode="report") as session:
        x = ones(64)
        graph = captured(lambda: x.mul(2))
        batch = torch.full((64,), 2.0, device=DEVICE)
        graph.replay()
    (report,) = session.reports
    lines = str(report).splitlines()
    problem = (
        "graph: nobody has written an input of the graph since its last replay or its capture, but the program has "
    )
    assert lines[0] == problem + "written another tensor of the same size, which the replay does not read."
    assert [access.action for access in report.accesses] == ["replays", "captures", "allocates"]
    assert all(" in test_a_hint_about_an_input" in report.accesses[n].site for n in (0, 2))
    del batch


def test_a_hint_about_a_scalar_of_the_host_has_both_values() -> None:
    x, scale = ones(64), torch.full((), 2.0)
    with sanitizer.enable("graph", mode="report") as session:
        graph = captured(lambda: x.mul(scale))
        scale.fill_(3)
        graph.replay()
    (report,) = session.reports
    problem = "graph: a tensor of the host was 2 at the capture and is 3 now; the replay computes with the old value."
    assert str(report).splitlines()[0] == problem
    assert [access.action for access in report.accesses] == ["replays", "captures"]


def test_numbers_are_followed_in_attributes_and_modules_and_no_object_is_kept() -> None:
    class Scale:
        factor = 1.0

        def __init__(self) -> None:
            self.factor = 2.0

        def compute(self) -> None:
            x.mul_(self.factor)

    x, scale = ones(4), Scale()
    with sanitizer.enable("graph", mode="report") as session:
        graph = captured(scale.compute)
        graph.replay()
        scale.factor = 3.0
        graph.replay()
        assert [str(report).splitlines()[0] for report in session.reports] == [
            "graph: self.factor was 2.0 at the capture and is 3.0 now; the replay computes with the old value."
        ]
        gone = weakref.ref(scale)
        del scale
        assert gone() is None
        graph.replay()
    assert len(session.reports) == 1
