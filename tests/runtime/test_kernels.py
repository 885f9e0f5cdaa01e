"""Every operator enters the kernel scope (orKernelBegin): on the right stream, in turn, with its operands."""

from __future__ import annotations

import ctypes
import gc
import json
import threading
from collections.abc import Callable
from pathlib import Path

import openreg_c as c
import programs
import pytest
import torch
from comparison import DEVICE, PRELUDE
from programs import SUPPORT, Run

from tests.runtime.kernel_scope.watch import native_handle, watch
from torch_openreg import openreg

MODES = pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_kernels_of_every_operator_and_network_run_in_a_kernel_scope() -> None:
    """The float32 operators of PyTorch's database and the networks of the zoo, forward and backward.

    One process, because the database takes seconds to import. Chaos queues all kernels, as async does.
    """
    samples = {"inline": 2, "chaos": 1}
    code = f"""
import json
from tests.runtime.kernel_scope.__main__ import run
print(json.dumps([run(mode, most, []) for mode, most in {samples!r}.items()]))
"""
    result = programs.python(code, cwd=ROOT, OPENREG_DEVICE_MEMORY="1G", status=0)
    for report, most in zip(json.loads(result.stdout), samples.values(), strict=True):
        assert report["faults"] == {}
        assert {name.partition(":")[0].partition("_")[0] for name in report["skipped"]} == {"jiterator"}  # CUDA only
        assert report["calls"] > 650 * most and report["kernels"] > 2000 * most


@pytest.fixture
def stream() -> torch.Stream:
    gc.collect()
    openreg.empty_cache()  # watch() copies all memory, also what other tests have left behind
    return openreg.Stream()


def test_a_write_outside_of_a_kernel_scope_is_found(stream: torch.Stream) -> None:
    x = torch.zeros(100, device=DEVICE)

    def beside() -> None:
        ctypes.memset(c.lib.orGetKernelPointer(x.data_ptr()), 1, 400)

    _, kernels, faults = watch(beside, native_handle(stream))
    assert kernels == 0
    assert faults == [
        f"400 bytes changed that no operand covers, from {x.data_ptr():#x} on; kernels: []",
        "memory changed, and no kernel was told",
    ]


def test_a_write_beyond_the_operands_is_found(stream: torch.Stream) -> None:
    x = torch.zeros(100, device=DEVICE)
    handle = native_handle(stream)

    def kernel(end: int) -> Callable[[], None]:
        def run() -> None:
            def operands(_: int | None, visit: Callable[..., None], context: int | None) -> None:
                visit(ctypes.byref(c.Operand(x.data_ptr(), 200, 0, None, None, c.WRITE)), context)

            scope, what = c.KernelScope(), c.Kernel(b"mine", c.OperandsFn(operands), None)
            c.call("orKernelBegin", ctypes.byref(scope), handle, ctypes.byref(what))
            ctypes.memset(c.lib.orGetKernelPointer(x.data_ptr()), end, end)
            c.lib.orKernelEnd(ctypes.byref(scope), False)

        return run

    assert watch(kernel(200), handle)[1:] == (1, [])
    message = f"10 bytes changed that no operand covers, from {x.data_ptr() + 200:#x} on; kernels: ['mine']"
    _, kernels, faults = watch(kernel(210), handle)
    assert (kernels, faults) == (1, [message])


def test_a_kernel_on_another_stream_is_found(stream: torch.Stream) -> None:
    x = torch.zeros(100, device=DEVICE)
    current = native_handle(openreg.current_stream())
    _, kernels, faults = watch(lambda: x.add_(1), native_handle(stream))
    assert (kernels, faults) == (1, [f"aten::add_.Tensor ran on stream {current}, not on {native_handle(stream)}"])


def test_every_route_tells_the_operator_and_its_operands(stream: torch.Stream) -> None:
    x = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    first, second = x[:, :2], torch.empty(3, 2, device=DEVICE)

    def of(fn: Callable[[], object]) -> tuple[str, set[tuple[int, int, int]]]:
        with c.Observer(c.KERNEL | c.COPY | c.FILL) as observer:
            fn()
            openreg.synchronize()
        names = {event[5] for event in observer.events}
        assert len(names) == 1
        return names.pop(), {item for event in observer.events for item in event[7]}

    base = x.data_ptr()
    rows = {(base + 16 * i, base + 16 * i + 8) for i in range(3)}
    elements = {(begin + 4 * i, begin + 4 * i + 4) for begin, _ in rows for i in range(2)}
    # A structured operator: PyTorch's iterator calls an inner kernel.
    name, operands = of(lambda: torch.add(first, 1, out=second))
    assert name == "aten::add.out"
    assert {(b, e) for b, e, access in operands if access == c.READ} in (elements, rows)
    assert {access for b, _, access in operands if b >= second.data_ptr() and b < second.data_ptr() + 24} == {c.WRITE}
    # An unboxed kernel, and the boxed fallback: both run the CPU's kernel on aliases of the device tensors.
    for call, expected in (
        (lambda: first.sum(), "aten::sum"),
        (lambda: torch.sort(first, stable=True), "aten::sort.stable"),
    ):
        name, operands = of(call)
        assert name == expected
        assert {(b, e) for b, e, access in operands if access == c.READ} in (elements, rows)
        assert any(access == c.WRITE for _, _, access in operands)
    # in place
    name, operands = of(lambda: x.cumsum_(0))
    assert (name, operands) == ("aten::cumsum_", {(base, base + 48, c.READ | c.WRITE)})
    # a custom kernel, a copy, a fill, a number
    name, operands = of(lambda: torch.ops.openreg.custom_abs(x))
    assert name == "openreg::custom_abs"
    assert (base, base + 48, c.READ) in operands
    name, operands = of(x.cpu)
    assert name == "memcpy"
    assert (base, base + 48, c.READ) in operands
    assert of(x.zero_) == ("memset", {(base, base + 48, c.WRITE)})
    assert of(lambda: x[0, 1].item()) == ("aten::_local_scalar_dense", {(base + 4, base + 8, c.READ)})


def test_two_threads_on_one_stream_lose_no_update() -> None:
    for _ in range(5):
        x = torch.zeros(50_000, device=DEVICE)
        start = threading.Barrier(2)

        def work(x: torch.Tensor = x, start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(100):
                x.add_(1)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert x.eq(200).all().item()


def test_an_operator_waits_for_a_custom_kernel_of_another_thread_on_its_stream(run_python: Run) -> None:
    run_python(
        PRELUDE
        + """
import ctypes, threading
from torch_openreg import _C
import openreg_c as c
x = torch.zeros(1, device=DEVICE)
stream = ctypes.c_void_p(openreg.current_stream().native_handle).value
began, order = threading.Event(), []
def kernel(_):
    began.set()
    threading.Event().wait(0.1)
    order.append("kernel")
fn = c.HostFn(kernel)
thread = threading.Thread(target=lambda: c.call("orLaunch", stream, fn, None, 0))
thread.start()
began.wait()
x.add_(1)
order.append("add")
thread.join()
print(order)
""",
        PYTHONPATH=SUPPORT,
        status=0,
        output="['kernel', 'add']\n",
    )


def test_chaos_shows_a_read_before_a_copy_to_a_buffer_of_zeros_has_ended(run_python: Run) -> None:
    run_python(
        PRELUDE
        + """
early = set()
for strided in (False, True):
    for _ in range(20):
        x = torch.full((64, 64), 3.0, device=DEVICE)
        buffer = torch.zeros(64, 64).pin_memory()
        openreg.synchronize()
        source = x.t()[:, ::2] if strided else x
        target = buffer[:, ::2] if strided else buffer
        target.copy_(source, non_blocking=True)
        seen = target.clone()
        early |= {str(v) for v in seen.unique().tolist()} | ({"nan"} if seen.isnan().any() else set())
        openreg.synchronize()
        assert target.eq(3).all()
        if strided:
            assert buffer[:, 1::2].eq(0).all()
    print(sorted(early - {"3.0"}))
""",
        OPENREG_EXECUTION="chaos",
        OPENREG_CHAOS_SEED="5",
        status=0,
        output="['nan']\n['nan']\n",
    )


@MODES
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["native_batch_norm", "native_batch_norm.out", "_native_batch_norm_legit"])
def test_running_statistics_are_written_in_training_only(mode: str, training: bool, name: str) -> None:
    operator, _, overload = name.partition(".")
    x, mean, var = (
        torch.randn(3, 4, 2, device="openreg"),
        torch.zeros(4, device="openreg"),
        torch.ones(4, device="openreg"),
    )
    results = {key: torch.empty(0, device="openreg") for key in ("out", "save_mean", "save_invstd")} if overload else {}
    call = getattr(getattr(torch.ops.aten, operator), overload or "default")
    with torch.openreg.execution_mode(mode), c.Observer(c.KERNEL) as observer:
        call(x, None, None, mean, var, training, 0.1, 1e-5, **results)
        torch.openreg.synchronize()
    accesses = {
        (begin, access)
        for event in observer.events
        if event[5] == f"aten::{name}" and event[1] == c.BEGIN
        for begin, _, access in event[7]
        if begin in (mean.data_ptr(), var.data_ptr())
    }
    expected = c.READ | c.WRITE if training else c.READ
    assert accesses == {(mean.data_ptr(), expected), (var.data_ptr(), expected)}
    assert mean.any() == training
