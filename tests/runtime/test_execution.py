"""The execution modes inline, async and chaos: when operators and copies run, and which calls wait for them.

The tests hold a stream with a host function that waits. Work that is queued behind this function cannot have run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, NAME, PRELUDE, assert_same
from openreg_c import HostFn, call
from programs import PYTEST, Run

from torch_openreg import _C, openreg

MODES = ("inline", "async", "chaos")
QUEUEING = ("async", "chaos")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=7):
        yield request.param
        torch.accelerator.synchronize()


@pytest.fixture(params=QUEUEING)
def queueing(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=7):
        yield request.param
        torch.accelerator.synchronize()


@contextlib.contextmanager
def held(stream: torch.Stream | None = None) -> Iterator[torch.Stream]:
    """Work that the block queues on the stream (default: the current one) runs only after the end of the block."""
    stream = stream or torch.accelerator.current_stream()
    go = threading.Event()
    function = HostFn(lambda _: (go.wait(600), None)[1])
    call("orLaunchHostFunc", stream.native_handle, function, None)
    try:
        yield stream
    finally:
        go.set()
        event = stream.record_event()
        while not event.query():  # keeps `function` alive until it has returned; query() reports no failure
            pass


def new(*values: float) -> torch.Tensor:
    tensor = torch.tensor(values, dtype=torch.float32).to(DEVICE_0)
    torch.accelerator.synchronize()
    return tensor


# ---- The mode ------------------------------------------------------------------------------------------------------


def test_the_mode_is_a_function_and_a_context_manager() -> None:
    before = openreg.get_execution_mode()
    with openreg.execution_mode("chaos", seed=3):
        assert openreg.get_execution_mode() == "chaos"
        with openreg.execution_mode("async"):
            assert openreg.get_execution_mode() == "async"
        assert openreg.get_execution_mode() == "chaos"
    assert openreg.get_execution_mode() == before
    openreg.execution_mode("async")
    assert openreg.get_execution_mode() == "async"
    openreg.execution_mode(before)


def test_the_mode_is_restored_when_an_error_leaves_it() -> None:
    before = openreg.get_execution_mode()
    with pytest.raises(KeyError), openreg.execution_mode("async"):
        raise KeyError
    assert openreg.get_execution_mode() == before


def test_another_mode_is_refused() -> None:
    before = openreg.get_execution_mode()
    for name in ("turbo", "random", "random:0", "random:x", f"random:{2**64}", "late:1"):
        with pytest.raises(
            ValueError, match=f'^there is no execution mode "{name}": expected inline, async, '
        ) as caught:
            openreg.execution_mode(name)
        assert str(caught.value).endswith(" or random:SEED with a SEED from 1 to 18446744073709551615")
    assert openreg.get_execution_mode() == before


def test_a_schedule_has_a_name_and_is_restored() -> None:
    with openreg.execution_mode("random:7"):
        for name, mode in (("early", "inline"), ("late", "chaos"), ("random:8", "chaos")):
            with openreg.execution_mode(name, seed=5):
                assert openreg.get_execution_mode() == mode
        assert _C._get_execution_mode() == ("chaos", 7)


def test_changing_the_mode_waits_for_what_is_queued(queueing: str) -> None:
    x = new(1, 2)
    with openreg.execution_mode("async"):
        for _ in range(100):
            x = x + 1
    assert torch.accelerator.current_stream().query()
    assert_same(x, torch.tensor([101.0, 102.0]))


@pytest.mark.slow
def test_the_environment_chooses_the_mode(run_python: Run) -> None:
    show = PRELUDE + "print(openreg.get_execution_mode())"
    assert run_python(show, OPENREG_EXECUTION="chaos").stdout == "chaos\n"


# ---- What is queued ------------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a functional operator": lambda x: x + 1,
    "a reduction": lambda x: x.sum(0),
    "a matrix product": lambda x: torch.mm(x.view(1, 3), x.view(3, 1)),
    "an in-place operator": lambda x: x.mul_(3),
    "an operator with out=": lambda x: torch.add(x, x, out=torch.empty_like(x)),
    "several results": lambda x: torch.sort(x, descending=True)[1],
    "a list of operands": lambda x: torch.cat([x, x]),
    "a conversion": lambda x: x.to(torch.float64),
    "a copy of strides": lambda x: x.expand(2, 3).contiguous(),
    "a random operator": lambda x: torch.empty_like(x).fill_(0.5),
    "a CPU scalar": lambda x: x * torch.tensor(2.0),
    "a view, then an operator": lambda x: x[1:].neg_(),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operator_returns_before_it_has_run(
    queueing: str, operation: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = new(3, 1, 2)
    expected = operation(x.cpu())
    with held() as stream:
        result = operation(x)
        assert not stream.query()
    assert_same(result, expected)


def test_inline_an_operator_has_run_when_it_returns() -> None:
    with openreg.execution_mode("inline"):
        x = new(3, 1, 2) + 1
        assert torch.accelerator.current_stream().query()
        assert_same(x, torch.tensor([4.0, 2.0, 3.0]))


def test_which_operators_are_queued_can_be_asked() -> None:
    queueable = openreg._C._is_queueable
    for name, overload in (("add", "Tensor"), ("add_", "Tensor"), ("add", "out"), ("mm", ""), ("sort", "stable")):
        assert queueable(f"aten::{name}", overload), name
    for name, overload in (("nonzero", ""), ("equal", ""), ("masked_select", ""), ("view", ""), ("no_such", "")):
        assert not queueable(f"aten::{name}", overload), name
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")]
    assert sum(queueable(s.name, s.overload_name) for s in schemas) > 650


def test_a_shape_that_does_not_fit_is_an_error_of_the_call(mode: str) -> None:
    with pytest.raises(RuntimeError, match=r"^(mm: )?mat1 and mat2 shapes cannot be multiplied \(1x3 and 2x2\)$"):
        torch.ones(1, 3, device=DEVICE_0) @ torch.ones(2, 2, device=DEVICE_0)
    with pytest.raises(RuntimeError, match="^The size of tensor a .2. must match the size of tensor b .3. at non-sin"):
        new(1, 2).add_(new(1, 2, 3))
    with pytest.raises(RuntimeError, match="^unsupported operation: some elements of the input tensor and the written"):
        x = new(1, 2, 3)
        x[1:].add_(x[:-1])


def test_devices_that_do_not_fit_are_an_error_of_the_call(mode: str) -> None:
    with pytest.raises(RuntimeError, match="^Expected all tensors to be on the same device, but found at least two"):
        new(1, 2) + torch.ones(2)


def test_an_output_of_another_size_is_resized(mode: str) -> None:
    out = torch.empty(0, device=DEVICE_0)
    torch.add(new(1, 2), new(1, 2), out=out)
    assert_same(out, torch.tensor([2.0, 4.0]))


def test_operators_that_look_at_the_data_see_what_was_queued(mode: str) -> None:
    x = torch.zeros(1000, device=DEVICE_0)
    for _ in range(20):
        x = x + 1
    assert x.nonzero().shape == (1000, 1)
    assert torch.equal(x, torch.full((1000,), 20.0, device=DEVICE_0))
    assert x[x > 3].shape == (1000,)
    assert x.unique().tolist() == [20.0]
    assert bool((x == 20).all())
    assert "20" in repr(x)


# ---- What the host may do meanwhile --------------------------------------------------------------------------------


def test_operands_may_go_and_their_memory_be_used_again(queueing: str) -> None:
    x = new(*range(1000))
    with held():
        for _ in range(50):
            x = (x + 1) * 1
    assert_same(x, torch.arange(1000.0) + 50)


def test_a_storage_may_grow_while_a_kernel_of_its_old_memory_is_queued(queueing: str) -> None:
    x = new(1, 2)
    with held():
        y = x + 1
        x.add_(10)
        x.resize_(1000)
        z = x[:2] * 2
    assert_same(y, torch.tensor([2.0, 3.0]))
    assert_same(z, torch.tensor([22.0, 24.0]))


def test_data_may_be_swapped_while_a_kernel_is_queued(queueing: str) -> None:
    x = new(1, 2)
    with held():
        y = x + 1
        x.data = new_data = torch.zeros(2, device=DEVICE_0)
    assert_same(y, torch.tensor([2.0, 3.0]))
    assert_same(x, new_data.cpu())


def test_a_cpu_scalar_counts_as_it_was_at_the_call(queueing: str) -> None:
    x, scalar = new(1, 2), torch.tensor(2.0)
    with held():
        y = x * scalar
        scalar.fill_(100)
    assert_same(y, torch.tensor([2.0, 4.0]))


def test_cpu_indices_count_as_they_were_at_the_call(queueing: str) -> None:
    """The host waits for the copy of the index, as on CUDA, so the stream is not held(). The kernel may be queued."""
    x = new(1, 2, 3)
    for _ in range(50):
        index = torch.tensor([2, 0])
        y = x[index]
        index.zero_()
        assert_same(y, torch.tensor([3.0, 1.0]))


def test_the_source_of_a_copy_from_pageable_memory_has_been_read(queueing: str) -> None:
    x, y = torch.empty(3, device=DEVICE_0), torch.empty(2, 2, device=DEVICE_0)
    source, strided = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1, 2], [3, 4]])
    with held():
        x.copy_(source, non_blocking=True)
        y.copy_(strided.T, non_blocking=True)
        source.zero_()
        strided.zero_()
    assert_same(x, torch.tensor([1.0, 2.0, 3.0]))
    assert_same(y, torch.tensor([[1.0, 3.0], [2.0, 4.0]]))


def test_the_source_of_a_copy_from_pinned_memory_has_not(queueing: str) -> None:
    x, source = torch.empty(3, device=DEVICE_0), torch.tensor([1.0, 2.0, 3.0]).pin_memory()
    with held():
        x.copy_(source, non_blocking=True)
        source.fill_(9)
    assert_same(x, torch.full((3,), 9.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["plain", "converting"])
def test_a_copy_to_pinned_memory_is_not_finished_when_it_returns(queueing: str, dtype: torch.dtype) -> None:
    x, there = new(1, 2, 3), torch.zeros(3, dtype=dtype).pin_memory()
    with held() as stream:
        there.copy_(x, non_blocking=True)
        assert not stream.query()
        if queueing == "async":
            assert there.tolist() == [0, 0, 0]
    assert there.tolist() == [1, 2, 3]


def test_blocking_copies_wait(mode: str) -> None:
    x = torch.zeros(1000, device=DEVICE_0)
    for _ in range(20):
        x = x + 1
    assert x.cpu().sum() == 20_000
    pinned = torch.empty(1000).pin_memory()
    assert pinned.copy_(x + 1).sum() == 21_000
    assert torch.empty(1000, dtype=torch.float64).copy_(x + 1, non_blocking=True).sum() == 21_000


def test_a_pinned_block_is_not_used_again_before_its_copy_has_run(queueing: str) -> None:
    x = torch.empty(3, device=DEVICE_0)
    with held():
        x.copy_(torch.tensor([1.0, 2.0, 3.0]).pin_memory(), non_blocking=True)
        gc.collect()
        torch.empty(3, pin_memory=True).fill_(7)
    assert_same(x, torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.skipif(openreg.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("convert", [False, True], ids=["plain", "converting"])
def test_a_copy_between_devices_waits_for_both(queueing: str, convert: bool) -> None:
    x, there = new(1, 2, 3), torch.zeros(3, device=DEVICE_1, dtype=torch.float64 if convert else torch.float32)
    torch.accelerator.synchronize(1)
    other = torch.accelerator.current_stream(1)
    with held():
        x.add_(1)
        there.copy_(x)
        after = there * 2
        assert not other.query()
    assert_same(after, torch.tensor([4, 6, 8], dtype=there.dtype))
    with held(other):
        there.fill_(5)
        there.copy_(x)
        x.zero_()
        assert not torch.accelerator.current_stream(0).query()
    assert_same(there, torch.tensor([2, 3, 4], dtype=there.dtype))


# ---- Failures ------------------------------------------------------------------------------------------------------

OUT_OF_BOUNDS = r"^index 7 is out of bounds for dimension 0 with size 3 \(raised by aten::gather\)$"


def fail() -> None:
    torch.gather(new(1, 2, 3), 0, torch.tensor([7]).to(DEVICE_0))


WAITS: dict[str, Callable[[], object]] = {
    "the device": torch.accelerator.synchronize,
    "the module": lambda: openreg.synchronize(),
    "the stream": lambda: torch.accelerator.current_stream().synchronize(),
    "an event": lambda: torch.accelerator.current_stream().record_event().synchronize(),
    "item": lambda: torch.ones((), device=DEVICE_0).item(),
    "a blocking copy": lambda: torch.ones(1, device=DEVICE_0).cpu(),
    "an operator that is not queued": lambda: torch.ones(1, device=DEVICE_0).nonzero(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_failure_is_raised_by_the_next_call_that_waits_once(queueing: str, wait: Callable[[], object]) -> None:
    fail()
    with pytest.raises(RuntimeError, match=OUT_OF_BOUNDS):
        wait()
    wait()
    torch.accelerator.synchronize()
    assert_same(new(1, 2) + 1, torch.tensor([2.0, 3.0]))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_a_result_that_its_kernel_leaves_conjugated_has_the_right_values(mode: str, left: bool, adjoint: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    lu, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64, generator=draw))
    b = torch.randn(3, 3, dtype=torch.complex64, generator=draw)

    def solve(device: str) -> list[torch.Tensor]:
        operands, out = (lu.to(device), pivots.to(device), b.to(device)), torch.empty_like(b, device=device)
        torch.linalg.lu_solve(*operands, left=left, adjoint=adjoint, out=out)
        solution = torch.linalg.lu_solve(*operands, left=left, adjoint=adjoint)
        return [out, solution, torch.linalg.solve(solution, operands[2], left=left)]

    for actual, expected in zip(solve(DEVICE), solve("cpu"), strict=True):
        assert actual.is_conj() == expected.is_conj()
        assert torch.equal(actual.cpu(), expected)


def test_a_dot_product_of_conjugates_is_lazily_conjugated(mode: str) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    actual, expected = torch.dot(x.to(DEVICE).conj(), x.to(DEVICE).conj()), torch.dot(x.conj(), x.conj())
    assert actual.is_conj() and expected.is_conj()
    assert torch.equal(actual.cpu(), expected)


def test_an_output_that_is_resized_warns_once(mode: str) -> None:
    x = torch.ones(3, device=DEVICE)
    with pytest.warns(UserWarning, match="^An output with one or more elements was resized") as caught:
        torch.add(x, x, out=torch.ones(2, device=DEVICE))
    assert len(caught) == 1


def test_an_empty_output_that_is_an_input_is_read_before_it_is_resized(mode: str) -> None:
    x = torch.empty(1, 0, 3, device=DEVICE)
    torch.sum(x, 1, out=x)
    openreg.synchronize()
    assert_same(x, torch.zeros(1, 3))


def test_inline_a_failure_is_an_error_of_the_call() -> None:
    with openreg.execution_mode("inline"):
        with pytest.raises(RuntimeError, match="^index 7 is out of bounds for dimension 0 with size 3$"):
            fail()
        torch.accelerator.synchronize()


def test_a_failure_keeps_its_type(queueing: str) -> None:
    new(1, 2).index_add_(0, torch.tensor([5]).to(DEVICE_0), new(1))
    with pytest.raises(IndexError, match=r"^index out of range in self \(raised by aten::index_add_\)$"):
        torch.accelerator.synchronize()


def test_of_several_failures_the_first_is_raised(queueing: str) -> None:
    with held():
        x, index = torch.ones(3, device=DEVICE_0), torch.full((1,), 7, device=DEVICE_0)
        torch.gather(x, 0, index)
        x.index_add_(0, index, torch.ones(1, device=DEVICE_0))
    with pytest.raises(RuntimeError, match=OUT_OF_BOUNDS):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()


def test_failures_are_kept_for_each_stream(queueing: str) -> None:
    good, bad = torch.Stream(DEVICE_0), torch.Stream(DEVICE_0)
    x, index = new(1, 2, 3), torch.tensor([7]).to(DEVICE_0)
    with bad:
        torch.gather(x, 0, index)
    with good:
        y = x + 1
    good.synchronize()
    assert_same(y, torch.tensor([2.0, 3.0, 4.0]))
    with pytest.raises(RuntimeError, match=OUT_OF_BOUNDS):
        bad.synchronize()
    bad.synchronize()


def test_query_reports_no_failure(queueing: str) -> None:
    fail()
    stream = torch.accelerator.current_stream()
    while not stream.query():
        pass
    with pytest.raises(RuntimeError, match=OUT_OF_BOUNDS):
        stream.synchronize()


def test_a_failure_names_the_line_that_launched_it_if_asked(queueing: str) -> None:
    openreg.record_launch_sites()
    try:
        fail()
        line = fail.__code__.co_firstlineno + 1
        where = rf"^index 7 .* \(raised by aten::gather, launched at .*test_execution.py:{line} in fail\)$"
        with pytest.raises(RuntimeError, match=where):
            torch.accelerator.synchronize()
    finally:
        openreg.record_launch_sites(False)
    fail()
    with pytest.raises(RuntimeError, match=OUT_OF_BOUNDS):
        torch.accelerator.synchronize()


def test_the_environment_asks_for_launch_sites(run_python: Run) -> None:
    code = (
        PRELUDE + "x = torch.ones(3, device=DEVICE)\n"
        "y = x.gather(0, torch.tensor([7]).to(DEVICE))\n"
        "try:\n    openreg.synchronize()\n"
        "except RuntimeError as error:\n    print(error)"
    )
    result = run_python(code, OPENREG_EXECUTION="async", TORCH_OPENREG_LAUNCH_TRACEBACK="1")
    assert result.stdout == (
        "index 7 is out of bounds for dimension 0 with size 3 (raised by aten::gather, launched at <string>:3 in "
        "<module>)\n"
    )
    result = run_python(PRELUDE + "torch.ones(1, device=DEVICE)", TORCH_OPENREG_LAUNCH_TRACEBACK="yes")
    assert (
        "ValueError: TORCH_OPENREG_LAUNCH_TRACEBACK is 'yes'. Set it to 0 (the default) or 1, or unset it."
        in result.stderr
    )


# ---- Random numbers ------------------------------------------------------------------------------------------------


def draw() -> list[torch.Tensor]:
    torch.manual_seed(3)
    streams = [torch.Stream(DEVICE_0) for _ in range(3)]
    drawn = []
    for number in range(12):
        with streams[number % 3]:
            drawn.append(torch.rand(50, device=DEVICE_0))
            drawn.append(torch.empty(50, device=DEVICE_0).exponential_())
            if number % 5 == 0:
                drawn.append(torch.multinomial(torch.ones(9, device=DEVICE_0), 4))
    torch.accelerator.synchronize()
    return [tensor.cpu() for tensor in drawn]


def test_random_operators_draw_in_the_order_of_their_launch_on_any_stream(mode: str) -> None:
    host = torch.get_rng_state()
    seen = draw()
    torch.set_rng_state(host)
    with openreg.execution_mode("inline"):
        expected = draw()
    for here, there in zip(seen, expected, strict=True):
        assert torch.equal(here, there)


def test_the_generators_state_is_that_after_all_launches(mode: str) -> None:
    openreg.manual_seed(5)
    x = torch.empty(100_000, device=DEVICE_0)
    for _ in range(3):
        x.normal_()
    state = openreg.get_rng_state()
    first = torch.rand(5, device=DEVICE_0)
    openreg.set_rng_state(state)
    assert_same(torch.rand(5, device=DEVICE_0), first.cpu())
    torch.manual_seed(5)
    host = torch.Generator().manual_seed(5)
    y = torch.empty(100_000)
    for _ in range(3):
        y.normal_(generator=host)
    assert_same(x, y)
    assert torch.equal(state, host.get_state())


# ---- Streams -------------------------------------------------------------------------------------------------------


def handed_over(wait: bool, seed: int) -> torch.Tensor:
    """The values that one stream reads from a buffer that another stream writes, in chaos mode."""
    with openreg.execution_mode("chaos", seed):
        producer, consumer = torch.Stream(DEVICE_0), torch.Stream(DEVICE_0)
        source = torch.ones(1000).pin_memory()
        buffer = torch.zeros(1000, device=DEVICE_0)
        torch.accelerator.synchronize()
        with producer:
            buffer.copy_(source, non_blocking=True)
            buffer.add_(1)
        if wait:
            consumer.wait_stream(producer)
        with consumer:
            seen = buffer.clone()
        torch.accelerator.synchronize()
        return seen.cpu()


def test_in_chaos_a_missing_wait_gives_garbage() -> None:
    right = torch.full((1000,), 2.0)
    wrong = sum(not torch.equal(handed_over(False, seed), right) for seed in range(20))
    assert wrong >= 5
    for seed in range(20):
        assert torch.equal(handed_over(True, seed), right)


def test_in_chaos_a_missing_synchronize_gives_garbage() -> None:
    def read(wait: bool, seed: int) -> bool:
        with openreg.execution_mode("chaos", seed):
            x = torch.ones(1000, device=DEVICE_0)
            torch.accelerator.synchronize()
            pinned = torch.zeros(1000).pin_memory()
            pinned.copy_(x, non_blocking=True)
            if wait:
                torch.accelerator.synchronize()
            return bool((pinned == 1).all())

    assert not all(read(False, seed) for seed in range(20))
    assert all(read(True, seed) for seed in range(20))


def test_a_stream_waits_for_an_event_of_another(queueing: str) -> None:
    first, second = torch.Stream(DEVICE_0), torch.Stream(DEVICE_0)
    x = new(1, 2)
    with held(first):
        with first:
            x.add_(1)
        second.wait_event(first.record_event())
        with second:
            y = x * 10
        assert not second.query()
    second.synchronize()
    assert_same(y, torch.tensor([20.0, 30.0]))


def test_a_stream_does_not_wait_for_what_was_not_asked(queueing: str) -> None:
    first, second = torch.Stream(DEVICE_0), torch.Stream(DEVICE_0)
    x = new(1, 2)
    with held(first):
        with first:
            slow = x + 1
        with second:
            fast = x + 2
        second.synchronize()
        assert not first.query()
        assert_same(fast, torch.tensor([3.0, 4.0]))
    assert_same(slow, torch.tensor([2.0, 3.0]))


def test_an_operator_that_is_not_queued_waits_for_its_stream_only(queueing: str) -> None:
    first, second = torch.Stream(DEVICE_0), torch.Stream(DEVICE_0)
    x = new(1, 0)
    with held(first), second:
        assert (x * 1).nonzero().tolist() == [[0]]
        assert not first.query()


def test_events_measure_the_devices_time(queueing: str) -> None:
    start, end = (torch.Event(DEVICE_0, enable_timing=True) for _ in range(2))
    a = torch.rand(300, 300, device=DEVICE_0)
    torch.accelerator.synchronize()
    start.record()
    for _ in range(10):
        a = a @ a
    end.record()
    torch.accelerator.synchronize()
    assert start.elapsed_time(end) > 0.1


def test_memory_recorded_on_another_stream_is_not_used_again_too_early(queueing: str) -> None:
    other = torch.Stream(DEVICE_0)
    x = torch.full((1000,), 1.0, device=DEVICE_0)
    torch.accelerator.synchronize()
    with held(other):
        with other:
            y = x + 1
        x.record_stream(other)
        del x
        for _ in range(5):
            torch.full((1000,), 9.0, device=DEVICE_0)
        torch.accelerator.current_stream().synchronize()
    other.synchronize()
    assert_same(y, torch.full((1000,), 2.0))


def test_backward_is_queued_on_the_forwards_stream(queueing: str) -> None:
    stream = torch.Stream(DEVICE_0)
    x = new(1, 2, 3).requires_grad_()
    with held(stream):
        with stream:
            loss = (x * x).sum()
        loss.backward()
        assert not stream.query()
    torch.accelerator.synchronize()
    assert_same(x.grad, torch.tensor([2.0, 4.0, 6.0]))


def test_each_result_gets_its_reserved_memory_whatever_the_kernel_allocates_before(queueing: str) -> None:
    torch.manual_seed(0)
    image, weight = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)  # the sizes of the gradients depend on `side`
    for masks in ([True] * 3, [True, False, True], [False, True, False], [True] * 3, [True, True, False]):
        for side in (8, 3):
            inputs = [image[..., :side, :side].contiguous(), weight, torch.randn(2, 4, side, side)]

            def gradients(inputs: list[torch.Tensor], masks: list[bool]) -> list[torch.Tensor | None]:
                data, kernel, gradient = inputs
                settings = ([4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, masks)
                return list(torch.ops.aten.convolution_backward(gradient, data, kernel, *settings))

            found = gradients([each.to(DEVICE_0) for each in inputs], masks)
            for wanted, mine, expected in zip(masks, found, gradients(inputs, masks), strict=True):
                assert (mine is not None) == wanted  # the CPU also returns gradients that nobody asked for
                if wanted:
                    assert_same(mine, expected)


@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_the_lists_of_a_convolution_have_one_number_or_one_for_each_dimension(queueing: str, numbers: int) -> None:
    torch.manual_seed(0)
    image, weight = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)
    one, none = [1] * numbers, [0] * numbers

    def both(device: str | torch.device) -> list[torch.Tensor] | str:
        x, w = image.to(device), weight.to(device)
        try:
            y = torch.ops.aten.convolution(x, w, None, one, one, one, False, none, 1)
            settings = ([4], one, one, one, False, none, 1, [True] * 3)
            return [y, *torch.ops.aten.convolution_backward(torch.ones_like(y), x, w, *settings)]
        except RuntimeError as error:
            return str(error)

    found, expected = both(DEVICE_0), both("cpu")
    assert isinstance(expected, str) == (numbers == 3)
    assert_same(found, expected)


def test_several_threads_launch_on_one_stream(queueing: str) -> None:
    results: dict[int, list[torch.Tensor]] = {}

    def work(number: int) -> None:
        mine = []
        for turn in range(40):
            x = torch.full((200,), float(number), device=DEVICE_0)
            x = x + turn
            if turn % 8 == 0:
                assert x.nonzero().shape[0] == (0 if number + turn == 0 else 200)  # nonzero() runs on this thread
            mine.append(x * 2)
        results[number] = mine

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, turn in itertools.product(range(4), range(40)):
        assert_same(results[number][turn], torch.full((200,), 2.0 * (number + turn)))


class MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]  # fmt: skip


def test_threads_that_end_keep_no_memory_of_queued_kernels() -> None:
    """The memory of a kernel that has run goes to the next thread that queues one."""
    x = new(1.0)
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = MallocInfo

    def queue(number: int) -> None:
        for _ in range(number):
            x + 1
        torch.accelerator.synchronize()

    used = []
    with openreg.execution_mode("chaos", seed=7):  # in async it is a matter of time how many kernels are queued
        for _ in range(12):
            queue(900)
            thread = threading.Thread(target=queue, args=(1,))
            thread.start()
            thread.join()
            used.append(libc.mallinfo2().uordblks)
    assert used[-1] - used[3] < 1 << 20  # 900 kernels are more


def train() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.2),
        torch.nn.Flatten(), torch.nn.Linear(4 * 36, 16), torch.nn.LayerNorm(16), torch.nn.GELU(),
        torch.nn.Linear(16, 5),
    ).to(DEVICE_0)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images, labels = torch.rand(8, 1, 8, 8, device=DEVICE_0), torch.randint(5, (8,), device=DEVICE_0)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.accelerator.synchronize()
    return [tensor.detach().cpu() for tensor in (*losses, *model.state_dict().values())]


def test_training_gives_the_same_numbers_in_every_mode(queueing: str) -> None:
    seen = train()
    with openreg.execution_mode("inline"):
        expected = train()
    for here, there in zip(seen, expected, strict=True):
        assert torch.equal(here, there)


# ---- Hidden waits --------------------------------------------------------------------------------------------------

POSITIONS = partial(torch.zeros, 2, dtype=torch.int64, device=DEVICE_0)
SYNCHRONIZING: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x[0].item(),
    "nonzero": lambda x: x.nonzero(),
    "a mask as index": lambda x: x[x > 1],
    "a mask as index, written": lambda x: x.__setitem__(x > 1, new(0)[0]),
    "a mask as index, added to": lambda x: x.index_put_((x > 1,), torch.tensor(1.0), accumulate=True),
    "a number of the CPU, written": lambda x: x.index_put_((POSITIONS(),), torch.tensor(1.0)),
    "an index of the CPU": lambda x: x[torch.tensor([0, 2])],
    "an index of the CPU, written": lambda x: x.index_put_((torch.tensor([0, 2]),), x[:2].clone()),
    "where, with a number of the CPU": lambda x: torch.where(x > 1, x, torch.tensor(1.0)),
    "masked_select": lambda x: x.masked_select(x > 1),
    "unique": lambda x: x.unique(),
    "to_sparse": lambda x: x.to_sparse(),
    "to_sparse_csr": lambda x: x.expand(2, 3).to_sparse_csr(),
    "normal, with deviations": lambda x: torch.normal(0.0, x),
    "eig": lambda x: torch.linalg.eig(x.diag()),
    "eigvals": lambda x: torch.linalg.eigvals(x.diag()),
    "cholesky": lambda x: torch.linalg.cholesky(x.diag()),
    "eigh": lambda x: torch.linalg.eigh(x.diag()),
    "svd": lambda x: torch.linalg.svd(x.diag()),
    "equal": lambda x: torch.equal(x, x.clone()),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x.diag()),
    "cholesky_ex, checked": lambda x: torch.linalg.cholesky_ex(x.diag(), check_errors=True),
    "searchsorted, with a sorter": lambda x: torch.searchsorted(x, x, sorter=x.argsort()),
    "isin, with many elements": lambda x: torch.isin(x, torch.zeros(100, device=DEVICE_0)),
    "histc, without bounds": lambda x: x.histc(4),
    "bernoulli_, with a probability of the CPU": lambda x: x.bernoulli_(torch.tensor(0.5)),
    "repeat_interleave": lambda x: torch.repeat_interleave(POSITIONS()),
    "to the CPU": lambda x: x.cpu(),
    "from the CPU": lambda x: x.copy_(torch.zeros(3)),
    "to the CPU, converting": lambda x: torch.zeros(3, dtype=torch.int64).copy_(x),
    "Stream.synchronize": lambda x: torch.accelerator.current_stream().synchronize(),
}
SPARSE = partial(
    torch.sparse_coo_tensor, POSITIONS().expand(2, 2), torch.ones(2, device=DEVICE_0), (3, 3), is_coalesced=True
)
NOT_SYNCHRONIZING: dict[str, Callable[[torch.Tensor], object]] = {
    "an operator": lambda x: (x + 1).sum(),
    "an index": lambda x: x[POSITIONS()],
    "an index, written": lambda x: x.index_put_((POSITIONS(),), x[:1].clone()),
    "a mask of the CPU as index": lambda x: x[torch.tensor([True, False, True])],
    "a mask as index, filled with a number of the CPU": lambda x: x.index_put_((x > 1,), torch.tensor(1.0)),
    "where, with a number": lambda x: torch.where(x > 1, x, 1.0),
    "equal, with itself": lambda x: torch.equal(x, x),
    "equal, with another size": lambda x: torch.equal(x, x[:2]),
    "cholesky_ex": lambda x: torch.linalg.cholesky_ex(x.diag()),
    "searchsorted": lambda x: torch.searchsorted(x, x),
    "isin, with few elements": lambda x: torch.isin(x, x),
    "histc, with bounds": lambda x: x.histc(4, 0, 6),
    "bernoulli_, with probabilities": lambda x: x.bernoulli_(torch.zeros_like(x)),
    "unique of no elements": lambda x: x[:0].unique(),
    # These wait on CUDA in a way that CUDA's backend does not report, or on this device alone.
    "unique of rows": lambda x: x.expand(2, 3).unique(dim=0),
    "unique_consecutive of rows": lambda x: x.expand(2, 3).unique_consecutive(dim=0),
    "repeat_interleave, with output_size": lambda x: torch.repeat_interleave(POSITIONS(), output_size=0),
    "to_sparse_csr of a sparse tensor": lambda x: SPARSE().to_sparse_csr(),
    "an event": lambda x: torch.accelerator.current_stream().record_event().synchronize(),
    "the device": lambda x: torch.accelerator.synchronize(),
    "on the device": lambda x: torch.empty_like(x).copy_(x),
    "from pinned memory, non_blocking": lambda x: x.copy_(torch.zeros(3).pin_memory(), non_blocking=True),
    "a stream that waits": lambda x: torch.accelerator.current_stream().wait_stream(torch.Stream(DEVICE_0)),
}


@pytest.fixture
def sync_debug_mode() -> Iterator[Callable[[int | str], None]]:
    yield openreg.set_sync_debug_mode
    openreg.set_sync_debug_mode("default")


@pytest.mark.parametrize("operation", SYNCHRONIZING.values(), ids=SYNCHRONIZING)
def test_a_hidden_wait_is_an_error_or_a_warning(
    mode: str, operation: Callable[[torch.Tensor], object], sync_debug_mode: Callable[[int | str], None]
) -> None:
    x = new(1, 2, 3)
    sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=f"^called a synchronizing {NAME} operation$"):
        operation(x)
    sync_debug_mode("warn")
    with pytest.warns(UserWarning, match=f"^called a synchronizing {NAME} operation"):
        operation(x)
    sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        operation(x)


@pytest.mark.parametrize("operation", NOT_SYNCHRONIZING.values(), ids=NOT_SYNCHRONIZING)
def test_an_operation_that_does_not_wait_is_not_reported_as_a_wait(
    mode: str, operation: Callable[[torch.Tensor], object], sync_debug_mode: Callable[[int | str], None]
) -> None:
    x = new(1, 2, 3)
    sync_debug_mode("error")
    operation(x)


@pytest.mark.parametrize(
    "name", ["an index of the CPU", "an index of the CPU, written", "where, with a number of the CPU"]
)
def test_the_host_waits_where_cuda_copies_an_operand_from_the_cpu(name: str, queueing: str) -> None:
    x, wide = new(1, 2, 3), torch.ones(1500, 1500, device=DEVICE_0)
    before = (wide @ wide @ wide).amax()
    event = torch.accelerator.current_stream().record_event()
    SYNCHRONIZING[name](x)
    assert event.query()
    assert before.item() == 1500.0**2


def test_the_sync_debug_mode_is_named_or_numbered(sync_debug_mode: Callable[[int | str], None]) -> None:
    assert openreg.get_sync_debug_mode() == 0
    for number, name in enumerate(("default", "warn", "error")):
        sync_debug_mode(name)
        assert openreg.get_sync_debug_mode() == number
        sync_debug_mode(0)
        sync_debug_mode(number)
        assert openreg.get_sync_debug_mode() == number
    with pytest.raises(RuntimeError, match="^invalid value of debug_mode, expected one of `default`, `warn`, `error`$"):
        sync_debug_mode("loud")
    with pytest.raises(RuntimeError, match="^invalid value of debug_mode, expected one of 0,1,2$"):
        sync_debug_mode(3)
    for wrong in (None, True, 1.0):
        with pytest.raises(RuntimeError, match="^invalid argument to set_sync_debug_mode$"):
            sync_debug_mode(wrong)  # type: ignore[arg-type]


# ---- Processes -----------------------------------------------------------------------------------------------------

QUEUE_A_LOT = (
    PRELUDE + "import os, sys\n"
    "a = torch.rand(400, 400, device=DEVICE)\n"
    "b = [a]\n"
    "for _ in range(300): b.append((b[-1] @ a).clamp(max=1))\n"
)


@pytest.mark.parametrize(("mode", "end"), [("async", "sys.exit(0)"), ("async", "os._exit(0)"), ("chaos", "")])
def test_the_interpreter_ends_with_work_queued(run_python: Run, mode: str, end: str) -> None:
    run_python(
        QUEUE_A_LOT + "assert not torch.accelerator.current_stream().query()\n" + end,
        OPENREG_EXECUTION=mode,
        status=0,
        errors="",
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "late"])
def test_a_fork_with_work_queued_leaves_both_processes_well(run_python: Run, mode: str) -> None:
    code = QUEUE_A_LOT + (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try: a + 1\n"
        "    except RuntimeError as error: print(str(error).partition(' To ')[0], flush=True)\n"
        "    assert (torch.ones(3) * 2).tolist() == [2, 2, 2]\n"
        "    del a, b\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "print(bool(b[-1].sum() > 0))\n"
    )
    result = run_python(code, OPENREG_EXECUTION=mode, status=0, errors="")
    assert result.stdout == f"Cannot re-initialize {NAME} in forked subprocess.\nTrue\n"


def test_pytorchs_tracer_is_told_of_streams_and_events(run_python: Run) -> None:
    code = """
trace, seen = openreg._gpu_trace, []
for name in dir(trace):
    if name.startswith("register_callback_for_"):
        getattr(trace, name)(lambda *ids, what=name[len("register_callback_for_"):]: seen.append((what, *ids)))
torch._C._activate_gpu_trace()
first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)
event = first.record_event()
a, b = first.native_handle, second.native_handle
second.wait_event(event)
event.synchronize()
second.synchronize()
torch.accelerator.synchronize()
(e,) = {ids[0] for what, *ids in seen if what == "event_record"}
names = {a: "first", b: "second", e: "event"}
del event
for what, *ids in seen:
    if not what.startswith("memory"):
        print(what, *(names.get(i, i) for i in ids))
"""
    result = run_python(PRELUDE + code)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "stream_creation first",
        "stream_creation second",
        "event_creation event",
        "event_record event first",
        "event_wait event second",
        "event_synchronization event",
        "stream_synchronization second",
        "device_synchronization",
        "event_deletion event",
    ]


@pytest.mark.slow
def test_the_tests_of_semantics_pass_when_everything_is_queued() -> None:
    files = ["tests/runtime/test_streams_events.py", "tests/operators/test_copy.py", "tests/runtime/test_generator.py"]
    programs.run(*PYTEST, "--execution", "async", *files, status=0)
