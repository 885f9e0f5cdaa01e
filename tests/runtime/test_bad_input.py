"""Wrong use raises PyTorch's or CUDA's own error, and the device is as usable afterwards as before."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator

import programs
import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, DEVICE_0, DEVICE_1, OURS, assert_same, out_of_range
from programs import Done, Run
from torch import Tensor

MODULE = torch.get_device_module(DEVICE)


@pytest.fixture(autouse=True)
def _the_device_is_usable_afterwards() -> Iterator[None]:
    gc.collect()
    before = torch.accelerator.memory_allocated()
    yield
    a = torch.arange(6.0).reshape(2, 3)
    assert_same(a.to(DEVICE) @ a.to(DEVICE).T, a @ a.T)
    del a
    gc.collect()
    MODULE.synchronize()
    assert torch.accelerator.memory_allocated() <= before, "the failing call leaked device memory"


def dev(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


def cpu(*shape: int) -> Tensor:
    return torch.ones(shape)


def index(where: str, *values: int) -> Tensor:
    return torch.tensor(values or (0, 1), device=where)


def got(argument: str, on: str, others: str) -> str:
    """The sentence with which CUDA's operators refuse a tensor of another device, as a pattern."""
    return (
        f"^Expected all tensors to be on the same device, but got {argument} is on {on}, different from other tensors "
        rf"on {others} \(when checking argument in method wrapper_\w+\)$"
    )


def found(first: str, second: str) -> str:
    """The sentence with which CUDA's elementwise operators refuse tensors of two devices, as a pattern."""
    return f"^Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!$"


# ---- Tensors on two devices: one operator of each kind, and functions that call several. All: test_mixed_devices.py

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cat, cpu first": (lambda: torch.cat([cpu(2), dev(2)]), got("tensors", DEVICE_0, "cpu")),
    "cat, 0 elements": (lambda: torch.cat([dev(2, 2), cpu(0)]), got("tensors", "cpu", DEVICE_0)),
    "stack": (lambda: torch.stack([dev(2), cpu(2)]), got("tensors", "cpu", DEVICE_0)),
    "hstack": (lambda: torch.hstack([dev(2), cpu(2)]), got("tensors", "cpu", DEVICE_0)),
    "@ of matrices": (lambda: dev(2, 2) @ cpu(2, 2), got("mat2", "cpu", DEVICE_0)),
    "@ of batches": (lambda: dev(2, 2, 2) @ cpu(2, 2, 2), got("mat2", "cpu", DEVICE_0)),
    # CUDA allocates the result like `vec` and says that `mat` is elsewhere; naming `vec` is as good.
    "mv": (
        lambda: torch.mv(dev(2, 2), cpu(2)), got("mat", DEVICE_0, "cpu") + "|" + got("vec", "cpu", DEVICE_0)
    ),
    "linear, cpu weight": (lambda: F.linear(dev(2, 3), cpu(4, 3)), got("mat2", "cpu", DEVICE_0)),
    "linear, cpu weight and bias": (lambda: F.linear(dev(2, 3), cpu(4, 3), cpu(4)), got("mat1", DEVICE_0, "cpu")),
    "linear, cpu input": (lambda: F.linear(cpu(2, 3), dev(4, 3), dev(4)), got("mat1", "cpu", DEVICE_0)),
    "nn.Linear left on the cpu": (lambda: torch.nn.Linear(3, 4)(dev(2, 3)), got("mat1", DEVICE_0, "cpu")),
    "embedding, cpu indices": (lambda: F.embedding(index("cpu"), dev(3, 2)), got("index", "cpu", DEVICE_0)),
    "embedding, cpu weight": (lambda: F.embedding(index(DEVICE), cpu(3, 2)), got("index", DEVICE_0, "cpu")),
    "layer_norm": (lambda: F.layer_norm(dev(2, 3), (3,), cpu(3), cpu(3)), got("weight", "cpu", DEVICE_0)),
    "group_norm": (lambda: F.group_norm(dev(1, 2, 3), 2, cpu(2), cpu(2)), got("weight", "cpu", DEVICE_0)),
    "batch_norm": (
        lambda: F.batch_norm(dev(2, 3), cpu(3), cpu(3), training=True), got("running_mean", "cpu", DEVICE_0)
    ),
    "cross_entropy": (lambda: F.cross_entropy(dev(2, 3), index("cpu")), got("target", "cpu", DEVICE_0)),
    "linalg.solve": (lambda: torch.linalg.solve(dev(2, 2), cpu(2, 1)), got("B", "cpu", DEVICE_0)),
    "cdist": (lambda: torch.cdist(dev(2, 2), cpu(2, 2), p=1.0), got("x2", "cpu", DEVICE_0)),
    "grid_sample": (
        lambda: F.grid_sample(dev(1, 1, 2, 2), cpu(1, 2, 2, 2), align_corners=False), got("grid", "cpu", DEVICE_0)
    ),
    "add": (lambda: dev(3) + cpu(3), found(DEVICE_0, "cpu")),
    "in place on the cpu": (lambda: cpu(3).add_(dev(3)), found(DEVICE_0, "cpu")),
    "out= on the cpu": (lambda: torch.add(dev(3), dev(3), out=cpu(3)), found(DEVICE_0, "cpu")),
    "binary_cross_entropy_with_logits": (
        lambda: F.binary_cross_entropy_with_logits(dev(3), cpu(3)), found(DEVICE_0, "cpu")
    ),
    "conv2d": (
        lambda: F.conv2d(dev(1, 1, 3, 3), cpu(1, 1, 2, 2)),
        r"^Input type \(.+\) and weight type \(.+\) should be the same",
    ),
    "conv2d, cpu bias": (
        lambda: F.conv2d(dev(1, 1, 3, 3), dev(1, 1, 2, 2), cpu(1)),
        r"^Input type \(.+\) and bias type \(.+\) should be the same",
    ),
    "set_": (
        lambda: dev(3).set_(cpu(3)),
        f'Attempted to set the storage of a tensor on device "{DEVICE_0}" to a storage on different device "cpu"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_cpu_tensor_among_the_arguments_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


def test_an_elementwise_operator_takes_one_cpu_scalar_and_no_more() -> None:
    with pytest.raises(RuntimeError, match="^Trying to pass too many CPU scalars to non-CPU kernel!$"):
        torch.addcmul(dev(3), cpu(), cpu())


@pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: torch.mm(a, b), got("mat2", DEVICE_1, DEVICE_0)),
        (lambda a, b: torch.cat([a, b]), got("tensors", DEVICE_1, DEVICE_0)),
        (lambda a, b: a + b, found(DEVICE_0, DEVICE_1)),
        (lambda a, b: a + b[0, 0], found(DEVICE_0, DEVICE_1)),
        (lambda a, b: F.linear(a, b), got("mat2", DEVICE_1, DEVICE_0)),
    ],
    ids=["mm", "cat", "add", "add of a scalar", "linear"],
)
def test_tensors_of_two_devices_of_the_same_kind_are_refused(
    call: Callable[[Tensor, Tensor], object], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(torch.ones(2, 2, device=DEVICE_0), torch.ones(2, 2, device=DEVICE_1))


# ---- Mixes that CUDA accepts ---------------------------------------------------------------------------------------

ACCEPTED: dict[str, Callable[[str], object]] = {
    "device + cpu scalar": lambda d: torch.arange(3.0, device=d) + torch.tensor(2.0),
    "cpu scalar * device": lambda d: torch.tensor(2.0) * torch.arange(3.0, device=d),
    "float16 * float64 scalar": lambda d: (
        torch.ones(3, dtype=torch.half, device=d) * torch.tensor(2.0, dtype=torch.double)
    ),
    "int64 + float scalar": lambda d: torch.arange(3, device=d) + torch.tensor(0.5),
    "in place": lambda d: torch.arange(3.0, device=d).mul_(torch.tensor(3.0)),
    "device scalar - cpu scalar": lambda d: torch.tensor(2.0, device=d) - torch.tensor(1.0),
    "comparison": lambda d: torch.arange(3, device=d) >= torch.tensor(1),
    "pow": lambda d: torch.arange(3.0, device=d) ** torch.tensor(2),
    "lerp weight": lambda d: torch.lerp(torch.zeros(3, device=d), torch.ones(3, device=d), torch.tensor(0.25)),
    "where, cpu scalars": lambda d: torch.where(torch.arange(3, device=d) > 1, torch.tensor(1.0), torch.tensor(-1.0)),
    "index": lambda d: torch.arange(9.0, device=d).reshape(3, 3)[torch.tensor([2, 0])],
    "index with two": lambda d: torch.arange(9.0, device=d).reshape(3, 3)[torch.tensor([2, 0]), torch.tensor([1, 1])],
    "index with a mask": lambda d: torch.arange(3.0, device=d)[torch.tensor([True, False, True])],
    "index with a list": lambda d: torch.arange(3.0, device=d)[[2, 0]],
    "index_put": lambda d: torch.zeros(3, device=d).index_put((torch.tensor([0, 2]),), torch.ones(2, device=d)),
    "index_put of a cpu scalar": lambda d: torch.zeros(3, device=d).index_put(
        (torch.tensor([0, 2], device=d),), torch.tensor(4.0)
    ),
    "masked_fill with a cpu value": lambda d: torch.zeros(3, device=d).masked_fill(
        torch.arange(3, device=d) > 0, torch.tensor(7.0)
    ),
    "fill_ with a cpu value": lambda d: torch.zeros(3, device=d).fill_(torch.tensor(7.0)),
    "setitem of a cpu tensor": lambda d: _set_item(torch.zeros(3, 2, device=d)),
    "copy_": lambda d: torch.zeros(3, device=d).copy_(torch.arange(3.0)),
    "tensor of device scalars": lambda d: torch.tensor([torch.ones((), device=d), torch.zeros((), device=d)], device=d),
    "split points": lambda d: torch.tensor_split(torch.arange(5.0, device=d), torch.tensor([1, 3])),
}


def _set_item(tensor: Tensor) -> Tensor:
    tensor[1] = torch.tensor([5.0, 6.0])
    return tensor


@pytest.mark.parametrize("call", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_mix_that_cuda_accepts_is_accepted(call: Callable[[str], object]) -> None:
    assert_same(call(DEVICE), call("cpu"))


# ---- Devices, sizes, memory ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not OURS, reason="the sentence is this device's")
@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.empty(1, device=d),
        lambda d: torch.ones(1).to(d),
        lambda d: torch.zeros(1, device=DEVICE).to(d),
        lambda d: torch.randn(2, device=d),
        lambda d: torch.Generator(d),
        lambda d: torch.accelerator.set_device_index(99),
    ],
    ids=["empty", "to", "to from a device", "randn", "Generator", "set_device_index"],
)
def test_a_device_index_out_of_range_is_refused(call: Callable[[str], object]) -> None:
    count = MODULE.device_count()
    message = f"^{out_of_range(99, count)}$"
    with pytest.raises(RuntimeError, match=message):
        call(f"{DEVICE}:99")


def test_a_negative_device_index_is_refused() -> None:
    with pytest.raises(RuntimeError, match=f"^Invalid device string: '{DEVICE}:-1'$"):
        torch.empty(1, device=f"{DEVICE}:-1")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.empty(-1, device=DEVICE), r"^Trying to create tensor with negative dimension -1: \[-1\]$"),
        (lambda: torch.empty(2, -3, device=DEVICE), r"^Trying to create tensor with negative dimension -3: \[2, -3\]$"),
        (
            lambda: torch.empty(2**62, device=DEVICE),
            r"^Storage size calculation overflowed with sizes=\[4611686018427387904\]$",
        ),
        (
            lambda: torch.empty_strided((2,), (2**62,), device=DEVICE),
            r"^Storage size calculation overflowed with sizes=\[2\] and strides=\[4611686018427387904\]$",
        ),
        (
            lambda: dev(4).as_strided((5,), (1,)),
            r"requiring a storage size of 20 are out of bounds for storage of size 16$",
        ),
        (lambda: dev(4).view(3), r"^shape '\[3\]' is invalid for input of size 4$"),
        (lambda: dev(3).copy_(dev(4)), r"^The size of tensor a \(3\) must match the size of tensor b \(4\)"),
        (lambda: dev(2, 3) @ dev(2, 3), r"^(mm: )?mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)$"),
        (lambda: dev(2).item(), "^a Tensor with 2 elements cannot be converted to Scalar$"),
        (lambda: bool(dev(2)), "^Boolean value of Tensor with more than one value is ambiguous$"),
        (lambda: torch.linalg.inv(torch.zeros(2, 2, device=DEVICE)), "^linalg.inv: The diagonal element 1 is zero"),
    ],
    ids=[
        "negative size", "negative size in 2d", "huge size", "huge stride", "as_strided", "view", "copy_", "mm", "item",
        "bool", "inv",
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused_with_the_cpus_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


@pytest.mark.skipif(
    not OURS, reason="after a device-side assert, a process cannot use the GPU, so later tests would fail"
)
@pytest.mark.parametrize(
    "call",
    [
        lambda: dev(3).index_select(0, index(DEVICE, 7)),
        lambda: dev(3)[index(DEVICE, 7)],
        lambda: F.embedding(index(DEVICE, 7), dev(3, 2)),
        lambda: torch.nn.functional.nll_loss(dev(1, 3), index(DEVICE, 7)),
    ],
    ids=["index_select", "index", "embedding", "nll_loss"],
)
def test_an_index_out_of_range_is_an_index_error(call: Callable[[], Tensor]) -> None:
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        call().cpu()


def test_out_of_memory_is_torchs_own_error_with_the_figures() -> None:
    total = torch.accelerator.get_memory_info()[1]
    allocated = torch.accelerator.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(total + 1, dtype=torch.uint8, device=DEVICE)
    message = str(caught.value)
    assert "out of memory. Tried to allocate " in message
    assert re.search(r"total capacity of [\d.]+ [GM]iB of which [\d.]+ \w+ is free", message), message
    assert re.search(r"[\d.]+ \w+ is allocated by PyTorch", message), message
    assert torch.accelerator.memory_allocated() == allocated
    assert torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE).numel() == 1 << 20


def test_an_operator_that_runs_out_of_memory_loses_nothing() -> None:
    a = torch.arange(4.0, device=DEVICE)
    many = torch.accelerator.get_memory_info()[1] // 2
    with pytest.raises(torch.OutOfMemoryError):
        a[:1].repeat(many)
    assert_same(a, torch.arange(4.0))


def test_a_size_that_no_memory_has_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="out of memory. Tried to allocate more than 1EB memory."):
        torch.empty(1 << 61, dtype=torch.uint8, device=DEVICE)


# ---- What has no meaning on a device -------------------------------------------------------------------------------


def test_numpy_of_a_device_tensor_says_to_use_cpu() -> None:
    message = (
        f"^can't convert {DEVICE_0} device type tensor to numpy. "
        r"Use Tensor.cpu\(\) to copy the tensor to host memory first.$"
    )
    for call in (lambda t: t.numpy(), lambda t: t.__array__(), torch.Tensor.numpy):
        with pytest.raises(TypeError, match=message):
            call(dev(2))


def test_to_mkldnn_raises() -> None:
    with pytest.raises(NotImplementedError, match="to_mkldnn"):
        dev(2).to_mkldnn()


def test_a_device_tensor_cannot_be_pinned() -> None:
    with pytest.raises(RuntimeError, match="^cannot pin '.*' only dense CPU tensors can be pinned$"):
        dev(2).pin_memory()


def test_a_device_tensor_is_not_pinned() -> None:
    assert not dev(2).is_pinned()


def test_what_a_factory_makes_with_device_cpu_lies_on_the_cpu() -> None:
    a = dev(3)
    for result in (a.new_zeros(2, device="cpu"), torch.ones_like(a, device="cpu"), a.to("cpu"), a.cpu()):
        assert result.device.type == "cpu"
        assert result.data_ptr() != a.data_ptr()
    a.zero_()
    assert_same(a, torch.zeros(3))


# ---- The environment -----------------------------------------------------------------------------------------------


def _first_use(**environment: str) -> Done:
    program = f"import torch; print(torch.ones(2, device='{DEVICE}').sum().item())"
    return programs.python(program, **environment, cwd="/")


@pytest.mark.skipif(not OURS, reason="the variables are this device's")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENREG_DEVICE_COUNT", "many"),
        ("OPENREG_DEVICE_COUNT", "0"),
        ("OPENREG_DEVICE_COUNT", "65"),
        ("OPENREG_DEVICE_MEMORY", "16X"),
        ("OPENREG_DEVICE_MEMORY", "-1"),
    ],
)
def test_a_bad_environment_value_is_named_with_what_is_allowed(variable: str, value: str) -> None:
    result = _first_use(**{variable: value})
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert variable in last, result.stderr
    assert f"'{value}'" in last or f'"{value}"' in last, last


@pytest.mark.skipif(not OURS, reason="the variables are this device's")
@pytest.mark.parametrize(("count", "memory"), [("1", "64M"), ("3", "1G"), ("2", str(1 << 30))])
def test_a_good_environment_value_is_obeyed(count: str, memory: str) -> None:
    result = _first_use(OPENREG_DEVICE_COUNT=count, OPENREG_DEVICE_MEMORY=memory)
    assert (result.returncode, result.stdout) == (0, "2.0\n"), result.stderr


def test_half_precision_complex_numbers_warn_as_everywhere_once_in_a_process(
    run_python: Run,
) -> None:
    for make in ("torch.empty(3, dtype=torch.chalf, device=device)", "torch.empty(3, device=device).to(torch.chalf)"):
        code = (
            "import torch, warnings\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            "    warnings.simplefilter('always')\n"
            f"    for device in ('{DEVICE}', '{DEVICE}', 'cpu'):\n"
            f"        {make}\n"
            "print([str(w.message).partition(' (')[0] for w in caught])\n"
        )
        result = run_python(code)
        expected = '["ComplexHalf support is experimental and many operators don\'t support it yet."]\n'
        assert (result.stdout, result.stderr) == (expected, "")
