"""Exchange with other libraries: DLPack in both directions, and NumPy, which gets copies and no device memory."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same
from programs import SUPPORT
from torch import Tensor
from torch.utils.dlpack import DLDeviceType, to_dlpack

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")
ONLY_OPENREG = pytest.mark.only_on("openreg", reason="PyTorch's own devices have their own codes and messages")

EXCHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": torch.from_dlpack,
    "capsule": lambda t: torch.from_dlpack(to_dlpack(t)),
    "versioned capsule": lambda t: torch.from_dlpack(t.__dlpack__(max_version=(1, 0))),
}


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_memory_is_shared_both_ways(exchange: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    base = torch.arange(12).reshape(3, 4).to(dtype)
    a = base.to(DEVICE)
    b = exchange(a)
    assert_same(b, base)
    assert (b.data_ptr(), b.device) == (a.data_ptr(), a.device)
    b.fill_(1)
    assert_same(a, torch.ones_like(base))
    a.zero_()
    assert_same(b, torch.zeros_like(base))


@pytest.mark.parametrize(
    "view", [lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[2], lambda t: t[:0], lambda t: t[1, 1]]
)
def test_sizes_strides_and_offset_survive_the_exchange(view: Callable[[Tensor], Tensor]) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    assert_same(torch.from_dlpack(view(base.to(DEVICE))), view(base))


def test_the_memory_lives_as_long_as_either_side() -> None:
    before = torch.accelerator.memory_allocated()
    a = torch.arange(1 << 18, device=DEVICE)
    held = torch.accelerator.memory_allocated()
    assert held >= before + (1 << 21)
    b = torch.from_dlpack(a)
    del a
    assert torch.accelerator.memory_allocated() == held
    assert b[-1].item() == (1 << 18) - 1
    capsule = to_dlpack(b)
    del b
    assert torch.accelerator.memory_allocated() == held
    del capsule  # never imported
    assert torch.accelerator.memory_allocated() == before


def test_from_dlpack_copies_only_if_asked() -> None:
    a = torch.arange(3.0, device=DEVICE)
    copy = torch.from_dlpack(a, copy=True)
    assert copy.data_ptr() != a.data_ptr()
    assert_same(copy, torch.arange(3.0))
    assert torch.from_dlpack(a, copy=False).data_ptr() == a.data_ptr()


def test_to_and_from_another_kind_of_device() -> None:
    a = torch.arange(3.0, device=DEVICE)
    assert_same(torch.from_dlpack(a, device="cpu"), torch.arange(3.0), device="cpu")
    assert_same(torch.from_dlpack(torch.arange(3.0), device=torch.device(DEVICE_0)), torch.arange(3.0))
    assert_same(torch.from_dlpack(np.arange(3.0), device=DEVICE_0), torch.arange(3.0, dtype=torch.double))
    with pytest.raises(ValueError, match="^cannot move DLPack tensor from device .* to .* without copying. "):
        torch.from_dlpack(a, device="cpu", copy=False)


def test_pinned_memory_is_exchanged_as_host_memory() -> None:
    pinned = torch.arange(3.0).pin_memory()
    assert pinned.__dlpack_device__()[0] is DLDeviceType.kDLCUDAHost  # PyTorch's name for all pinned memory
    assert torch.from_dlpack(pinned).data_ptr() == pinned.data_ptr()


@ONLY_OPENREG
@pytest.mark.parametrize(("where", "index"), [(DEVICE_0, 0), pytest.param(DEVICE_1, 1, marks=TWO_DEVICES)])
def test_the_device_is_an_extension_device_with_an_index(where: str, index: int) -> None:
    assert torch.ones(1, device=where).__dlpack_device__() == (DLDeviceType.kDLExtDev, index)


@TWO_DEVICES
def test_a_tensor_of_another_device_than_the_current_one_is_refused_as_on_cuda() -> None:
    a = torch.ones(2, device=DEVICE_1)
    name = "CUDA" if DEVICE == "cuda" else DEVICE
    message = f"^Can't export tensors on a different {name} device index. Expected: 1. Current device: 0.$"
    with pytest.raises(BufferError, match=message):
        torch.from_dlpack(a)
    with MODULE.device(1):
        assert torch.from_dlpack(a).device == torch.device(DEVICE_1)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (lambda: torch.ones(2, device=DEVICE, requires_grad=True), "export tensors that require gradient"),
        (lambda: torch.ones(2, dtype=torch.cfloat, device=DEVICE).conj(), "export tensors with the conjugate bit set"),
        (lambda: torch.ones(2, device=DEVICE).to_sparse(), "export tensors with layout other than torch.strided"),
    ],
    ids=["gradient", "conj", "sparse"],
)
def test_what_cannot_be_exported_is_refused(tensor: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(BufferError, match=f"^Can't {message}"):
        torch.from_dlpack(tensor())


def test_other_tensors_are_exchanged_as_before() -> None:
    a = torch.arange(3.0)
    assert a.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert torch.from_dlpack(a).data_ptr() == a.data_ptr()
    with pytest.raises(ValueError, match="^Unknown device type meta for Dlpack$"):
        torch.ones(1, device="meta").__dlpack_device__()


def test_a_subclass_sees_the_calls() -> None:
    calls = []

    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    a = torch.arange(3.0, device=DEVICE).as_subclass(Seen)
    b = torch.from_dlpack(a)
    assert b.data_ptr() == a.data_ptr()
    assert {"__dlpack__", "__dlpack_device__"} <= set(calls)


# ---- The stream of the consumer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [None, -1])
def test_the_default_stream_or_none_may_be_named(stream: int | None) -> None:
    a = torch.arange(3.0, device=DEVICE)
    assert_same(torch.from_dlpack(a.__dlpack__(stream=stream)), torch.arange(3.0))


@ONLY_OPENREG
@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_the_consumers_stream_waits_for_the_current_one(run_python: Callable[..., object], mode: str) -> None:
    # A host function delays a copy to pinned memory on the producer's stream. The consumer's stream must wait for it.
    code = """
import ctypes, threading, torch
from openreg_c import library_path
lib = ctypes.CDLL(str(library_path()))
producer, consumer = torch.Stream("openreg"), torch.Stream("openreg")
gate = threading.Event()
host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(600) and None)
a = torch.ones(4, device="openreg")
def passed(stream):
    with producer:
        assert lib.orLaunchHostFunc(ctypes.c_void_p(producer.native_handle), host_function, None) == 0
        a.__dlpack__(stream=stream)
    event = consumer.record_event()
    result = event.query()
    return event, result
opener = threading.Timer(0.5, gate.set)
opener.start()
event, result = passed(consumer.native_handle)
print(gate.is_set() or not result, end=" ")
event.synchronize()
print(gate.is_set(), event.query())
opener.join()
"""
    result = run_python(code, OPENREG_EXECUTION=mode, PYTHONPATH=SUPPORT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True True True\n", "")  # type: ignore[attr-defined]


@ONLY_OPENREG
def test_a_stream_that_does_not_exist_is_refused() -> None:
    a = torch.ones(2, device=DEVICE)
    with pytest.raises(TypeError, match="^stream must be ``int`` or ``none``$"):
        a.__dlpack__(stream="default")
    for number in (-2, 1 << 64):
        with pytest.raises(BufferError, match=f"^unsupported stream on openreg: {number}.$"):
            a.__dlpack__(stream=number)
    with pytest.raises(RuntimeError, match="stream 0x3039 does not exist; it was destroyed, or is no stream"):
        a.__dlpack__(stream=12345)
    assert_same(a + 1, torch.full((2,), 2.0))


# ---- NumPy ---------------------------------------------------------------------------------------------------------

TO_NUMPY: dict[str, Callable[[Tensor], object]] = {
    "numpy": lambda t: t.numpy(),
    "__array__": lambda t: t.__array__(),
    "asarray": np.asarray,
    "array of elements": lambda t: np.array([t[0], t[1]]),
    "ufunc": lambda t: np.add(t, 1),
    "operand": lambda t: t * np.ones(3),
}


@pytest.mark.parametrize("use", TO_NUMPY.values(), ids=TO_NUMPY.keys())
def test_numpy_is_refused_in_cudas_words(use: Callable[[Tensor], object]) -> None:
    message = (
        f"can't convert {DEVICE_0} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )
    with pytest.raises(TypeError, match="^" + re.escape(message) + "$"):
        use(torch.ones(3, device=DEVICE))


def test_numpy_does_not_import_device_memory() -> None:
    with pytest.raises((RuntimeError, BufferError), match="^Unsupported device in DLTensor.$"):
        np.from_dlpack(torch.ones(3, device=DEVICE))


def test_numpy_gets_a_copy_by_force() -> None:
    a = torch.arange(3.0, device=DEVICE, requires_grad=True)
    result = a.numpy(force=True)
    assert result.tolist() == [0, 1, 2]
    result[0] = 5
    assert a.tolist() == [0, 1, 2]


def test_numpy_goes_to_the_device() -> None:
    assert_same(torch.as_tensor(np.arange(3), device=DEVICE), torch.arange(3))
    assert_same(torch.ones(3, device=DEVICE) * np.float32(2), torch.full((3,), 2.0))
