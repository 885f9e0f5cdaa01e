"""Tensors of two devices in every operator: accepted where CUDA accepts them, refused in CUDA's words.

What CUDA does is taken from PyTorch, not from this backend: its code generator says what the wrapper of an operator
checks, its meta functions what TensorIterator and structured kernels check (torch_conformance.mixes). If neither can
tell, an operator is compared with another one that has the same check in CUDA's source, or with the errors in CUDA's
source. The operator's row of csrc/aten/device_rules.yaml names that source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
import yaml
from comparison import DEVICE_0, DEVICE_1, KIND, PRELUDE, assert_same
from torch import Tensor
from torch_conformance import mixes
from torchgen.api.types import DispatcherSignature, NativeSignature
from torchgen.gen import ParsedYaml, parse_native_yaml
from torchgen.model import DeviceCheckType, DispatchKey, NativeFunction

pytestmark = pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="needs two devices")

SOURCES = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
TABLE = yaml.safe_load((Path(__file__).parents[2] / "csrc" / "aten" / "device_rules.yaml").read_text())
RULES = {name: row["rule"] for row in TABLE for name in row["operators"].split()}


@functools.cache
def pytorch() -> ParsedYaml:
    return parse_native_yaml(str(SOURCES / "native_functions.yaml"), str(SOURCES / "tags.yaml"))


@functools.cache
def functions() -> list[NativeFunction]:
    """PyTorch's operators with tensors that could be on different devices."""
    several = lambda f: len(tensor_arguments(f)) > 1 or any(a.type.is_list_like() for a in tensor_arguments(f))  # noqa: E731
    return [f for f in pytorch().native_functions if several(f) and torch._C._dispatch_has_kernel(name_of(f))]


def name_of(f: NativeFunction) -> str:
    return f"aten::{f.func.name}"


def tensor_arguments(f: NativeFunction) -> list[Any]:
    return [a for a in f.func.arguments.flat_all if a.type.is_tensor_like()]


def route(f: NativeFunction) -> str:
    """How ``f`` runs here: "kernel" (the device's or the CPU's), "composite", or "none" (the CPU has no kernel)."""
    table = torch._C._dispatch_dump_table(name_of(f))
    key = lambda name: re.search(rf"^{name}: .*\[(.*)\]$", table, re.MULTILINE)  # noqa: E731
    device, cpu = key("PrivateUse1"), key("CPU")
    if device is None or (device[1] == "backend fallback" and (cpu is None or cpu[1] != "kernel")):
        return "none"
    return "kernel" if device[1] in ("kernel", "backend fallback") else "composite"


# ---- Operators whose devices CUDA's wrapper compares ---------------------------------------------------------------

# Operator -> why it is not compared with CUDA's wrapper.
NOT_AS_THE_WRAPPER = {
    "_copy_from": "copies between devices",
    "_copy_from_and_resize": "copies between devices",
    "_has_compatible_shallow_copy_type": "compares dispatch keys; composite on CUDA",
    "_fused_sdp_choice": "computes nothing; PyTorch reaches it through its stub, past the wrapper",
    "convolution_overrideable": "PyTorch's convolution compares types before (test_bad_input.py)",
    "mode.values": "composite on CUDA, in the table",
}


def method(f: NativeFunction) -> str:
    """The name that PyTorch's code generator gives to the wrapper of a PrivateUse1 kernel."""
    if f.structured or f.structured_delegate:
        return NativeSignature(f.func, prefix="wrapper_PrivateUse1_", symint=False).name()
    return DispatcherSignature.from_schema(f.func, prefix=f"wrapper_PrivateUse1_{f.func.name.overload_name}_").name()


def in_order_of_checks(f: NativeFunction) -> list[str]:
    """Names of tensors: outputs and positional ones in the wrapper's order, then those that only the kernel checks."""
    arguments = [*f.func.arguments.out, *f.func.arguments.flat_positional, *f.func.arguments.flat_non_out]
    return list(dict.fromkeys(a.name for a in arguments if a.type.is_tensor_like()))


PLAIN = {"IntType": 1, "SymIntType": 1, "FloatType": 1.0, "BoolType": False, "NumberType": 1, "StringType": "none"}


def some_value(type_: Any, tensor: Callable[[], Tensor]) -> Any:
    """A value of a schema's type. The wrapper checks devices before the kernel looks at anything else."""
    if type_.kind() == "TensorType":
        return tensor()
    if type_.kind() == "OptionalType":
        return some_value(type_.getElementType(), tensor) if "Tensor" in str(type_) else None
    if type_.kind() == "ListType":
        return [some_value(type_.getElementType(), tensor) for _ in range(2)]
    return PLAIN.get(type_.kind())


def overload(name: str) -> torch._ops.OpOverload:
    """``"add.Tensor"`` -> ``torch.ops.aten.add.Tensor``."""
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def call(f: NativeFunction, tensor_of: Callable[[str], Tensor]) -> None:
    op = overload(str(f.func.name))
    widths = {a.name: a.type.size for a in f.func.arguments.flat_all if str(a.type).startswith("bool[")}
    positional, named = [], {}
    for argument in op._schema.arguments:
        if argument.has_default_value() and "Tensor" not in str(argument.type):
            value = argument.default_value
        elif argument.name in widths:
            value = [True] * widths[argument.name]
        else:
            value = some_value(argument.type, lambda argument=argument: tensor_of(argument.name))
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    with torch.no_grad():
        op(*positional, **named)


def checked_operators() -> list[NativeFunction]:
    """The operators with a wrapper that checks devices. PyTorch has none for a composition, such as lstm()."""
    wrapped = [f for f in functions() if not f.has_composite_implicit_autograd_kernel]
    checked = [f for f in wrapped if f.device_check is not DeviceCheckType.NoCheck and route(f) == "kernel"]
    return [f for f in checked if str(f.func.name) not in NOT_AS_THE_WRAPPER and len(tensor_arguments(f)) > 1]


@pytest.mark.parametrize(
    ("odd_device", "other_device", "shape"),
    [("cpu", DEVICE_0, (2, 2)), (DEVICE_0, "cpu", (2, 2)), (DEVICE_1, DEVICE_0, (2, 2)), ("cpu", DEVICE_0, ())],
    ids=["one on the cpu", "one on the device", "two devices", "a cpu scalar"],
)
def test_an_operator_that_cuda_checks_refuses_each_argument_on_another_device(
    odd_device: str, other_device: str, shape: tuple[int, ...]
) -> None:
    wrong, calls = [], 0
    for f in checked_operators():
        names = in_order_of_checks(f)
        for odd in names:

            def tensor_of(name: str, odd: str = odd) -> Tensor:
                return torch.ones(shape, device=odd_device) if name == odd else torch.ones(2, 2, device=other_device)

            common, named = (odd_device, names[1]) if odd == names[0] else (other_device, odd)
            on = other_device if odd == names[0] else odd_device
            expected = (
                f"Expected all tensors to be on the same device, but got {named} is on {on}, different from other "
                f"tensors on {common} (when checking argument in method {method(f)})"
            )
            calls += 1
            try:
                call(f, tensor_of)
                wrong.append(f"{f.func.name}, {odd} on {odd_device}: accepted")
            except Exception as error:
                if str(error) != expected:
                    wrong.append(f"{f.func.name}, {odd} on {odd_device}: {error}, not: {expected}")
    assert not wrong, "\n".join(wrong)
    assert calls > 1300, "too few operators: PyTorch's data, or the dispatcher's, was misread"


def test_a_list_is_checked_to_its_last_tensor() -> None:
    wrong = []
    for f in checked_operators():
        for argument in tensor_arguments(f):
            if not argument.type.is_list_like():
                continue
            ones = iter([torch.ones(2, 2, device=DEVICE_0), torch.ones(2, 2)])

            def tensor_of(name: str, listed: str = argument.name, ones: Iterator[Tensor] = ones) -> Tensor:
                return next(ones) if name == listed else torch.ones(2, 2, device=DEVICE_0)

            try:
                call(f, tensor_of)
                wrong.append(f"{f.func.name}, {argument.name}: accepted")
            except Exception as error:
                if f"but got {argument.name} is on cpu, different from other tensors on {DEVICE_0}" not in str(error):
                    wrong.append(f"{f.func.name}, {argument.name}: {error}")
    assert not wrong, "\n".join(wrong)


# Operators that CUDA's wrapper checks and that PyTorch composes of others here. The others must refuse the same calls.
COMPOSED: dict[str, list[Callable[[], object]]] = {
    "_chunk_cat": [lambda: aten._chunk_cat([dev(4), cpu(4)], 0, 2)],
    "_chunk_cat.out": [
        lambda: aten._chunk_cat.out([dev(4), dev(4)], 0, 2, out=cpu(2, 4)),
        lambda: aten._chunk_cat.out([cpu(4), cpu(4)], 0, 2, out=dev(2, 4)),
    ],
    "_fused_rms_norm": [
        lambda: aten._fused_rms_norm(dev(2, 3), [3], cpu(3), 1e-5),
        lambda: aten._fused_rms_norm(cpu(2, 3), [3], dev(3), 1e-5),
    ],
    "_grouped_mm": [
        lambda: aten._grouped_mm(dev(16, 16).bfloat16(), cpu(16, 16).bfloat16(), 16 * dev(1).int()),
        lambda: aten._grouped_mm(cpu(16, 16).bfloat16(), dev(16, 16).bfloat16(), 16 * dev(1).int()),
    ],
    "convolution_backward": [
        lambda: convolution_backward(cpu(1, 1, 2, 2), dev(1, 1, 3, 3), dev(1, 1, 2, 2)),
        lambda: convolution_backward(dev(1, 1, 2, 2), cpu(1, 1, 3, 3), dev(1, 1, 2, 2)),
        lambda: convolution_backward(dev(1, 1, 2, 2), dev(1, 1, 3, 3), cpu(1, 1, 2, 2)),
    ],
    "split_with_sizes_copy.out": [
        lambda: aten.split_with_sizes_copy.out(dev(4), [2, 2], out=[cpu(2), cpu(2)]),
        lambda: aten.split_with_sizes_copy.out(cpu(4), [2, 2], out=[dev(2), dev(2)]),
    ],
}


def convolution_backward(grad: Tensor, x: Tensor, weight: Tensor) -> object:
    return aten.convolution_backward(grad, x, weight, [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True])


def test_what_cuda_checks_and_pytorch_composes_here_is_refused_by_its_parts() -> None:
    on_cuda = pytorch().backend_indices[DispatchKey.CUDA]
    checked = [f for f in functions() if f.device_check is not DeviceCheckType.NoCheck and on_cuda.has_kernel(f)]
    assert {str(f.func.name) for f in checked if route(f) == "composite"} == set(COMPOSED)
    for calls in COMPOSED.values():
        for call_ in calls:
            with pytest.raises(RuntimeError, match="on the same device|^Expected out tensor to have device "):
                call_()


# ---- Operators whose devices the kernel checks: the table ------------------------------------------------------------


def oracle() -> dict[str, dict[str, str]]:
    """PyTorch's answers for those operators of the table that have a meta function."""
    return mixes.oracle(*RULES)


ADDCMUL = f"CPU Scalar support for {{}} argument is not supported when calling addcmul on {KIND} tensors."
SWAP = " However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."


def answer_of_the_kernel(name: str, places: str) -> str:
    """What CUDA's kernel answers to a call that the meta function accepts: native/cuda/PointwiseOpsKernel.cu."""
    if name in ("addcmul", "addcmul_", "addcmul.out") and "s" in places[:2]:
        return "RuntimeError: " + (ADDCMUL.format("self") if places[0] == "s" else ADDCMUL.format("tensor1") + SWAP)
    return ""


def differences(name: str, expected: dict[str, str]) -> list[str]:
    """Placements of the tensors of ``name`` at which the device does not do what is expected."""
    actual = mixes.outcomes(name, DEVICE_0)
    if actual is None:
        return [f"{name}: no call of it works"]
    wrong = []
    for places, answer in expected.items():
        if expected[places.translate(str.maketrans("Cs", "DS"))]:
            continue  # the call would fail on one device too, and either error may come first
        answer = answer_of_the_kernel(name, places) if not answer else answer.replace("meta", DEVICE_0)
        if actual[places] != answer:
            wrong.append(f"{name}, tensors at {places}: {actual[places]}, not: {answer}")
    return wrong


@pytest.mark.slow
def test_the_device_accepts_and_refuses_what_pytorchs_own_meta_functions_do() -> None:
    assert len(oracle()) > 190, "PyTorch's meta functions were not asked"
    wrong = [line for name, answers in oracle().items() for line in differences(name, answers)]
    assert not wrong, "\n".join(wrong)


# Operator with a meta function -> operators without one, with the same check in CUDA's source and as many tensors.
AS = {
    "add.Tensor": [
        "floor_divide",
        "logical_and",
        "logical_or",
        "__lshift__.Tensor",
        "__rshift__.Tensor",
        "rsub.Tensor",
    ],
    "add_.Tensor": ["floor_divide_.Tensor", "__ilshift__.Tensor", "__irshift__.Tensor"],
    "add.out": ["floor_divide.out", "logical_and.out", "logical_or.out", "logical_xor.out"],
    "sin.out": [
        *("abs.out", "angle.out", "hardswish.out", "hardtanh.out", "logical_not.out"),
        *("std.correction_out", "var.correction_out"),
    ],
}


@pytest.mark.parametrize(("like", "name"), [(like, name) for like, names in AS.items() for name in names])
def test_an_operator_accepts_and_refuses_what_another_with_the_same_check_does(like: str, name: str) -> None:
    assert RULES[like] == RULES[name]
    assert differences(name, oracle()[like]) == []


def cpu(*shape: int) -> Tensor:
    return torch.ones(shape)


def dev(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE_0)


def dev1(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE_1)


def index(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, dtype=torch.int64)


aten = torch.ops.aten
FOUND = f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE_0} and cpu!"
FOUND_1 = f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE_0} and {DEVICE_1}!"
OUT = f"Expected out tensor to have device {DEVICE_0}, but got cpu instead"
OUT_CPU = f"Expected out tensor to have device cpu, but got {DEVICE_0} instead"
MASK_ON_CPU = f"expected self and mask to be on the same device, but got mask on cpu and self on {DEVICE_0}"
MASK_ON_1 = MASK_ON_CPU.replace("mask on cpu", f"mask on {DEVICE_1}")
MASK_ON_DEVICE = f"expected self and mask to be on the same device, but got mask on {DEVICE_0} and self on cpu"
SAME = (
    "Expected self.device() == out.device() to be true, but got false.  (Could this error message be improved?  If so, "
    "please report an enhancement request to PyTorch.)"
)
MASK = "masked_fill_: Expected inputs to be on same device"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"


def lr(name: str, rate: Tensor, found: Tensor | None = None, params: Tensor | None = None) -> None:
    p = [dev(2) if params is None else params]
    zeros, step = [torch.zeros_like(p[0])], [torch.ones((), device=p[0].device)]
    common = {"weight_decay": 0.0, "maximize": False, "found_inf": found, "lr": rate}
    if name == "sgd":
        more = {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
        aten._fused_sgd_.tensor_lr(p, [dev(2)], zeros, **common, **more)
    elif name == "adagrad":
        aten._fused_adagrad_.tensor_lr(p, [dev(2)], zeros, step, **common, lr_decay=0.0, eps=1e-8)
    else:
        more = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
        op = getattr(aten, f"_fused_{name}_").tensor_lr
        op(p, [dev(2)], zeros, [torch.zeros_like(p[0])], [], step, **common, **more)


def expected(device: str, got: str, output: str) -> str:
    return f"expected device '{device}' but got '{got}' for {output} output"


def on_params(name: str) -> str:
    return f"{name} must be on the same GPU device as the params"


# Operator -> calls, each with CUDA's error, or None if CUDA accepts the call. The operator's row of the table names
# CUDA's source.
SPECIAL: dict[str, list[tuple[Callable[[], object], str | None]]] = {
    "clamp.out": [
        (lambda: torch.clamp(dev(3), 0, 1, out=cpu(3)), FOUND),
        (lambda: torch.clamp(cpu(), 0, 1, out=dev()), FOUND),
        (lambda: torch.clamp(dev1(3), 0, 1, out=dev(3)), FOUND_1),
    ],
    "binomial": [
        (lambda: torch.binomial(dev(3), cpu(3)), FOUND),
        (lambda: torch.binomial(dev(3), cpu()), FOUND),
        (lambda: torch.binomial(cpu(), dev(3)), FOUND),
        (lambda: torch.binomial(dev(3), dev1(3)), FOUND_1),
    ],
    "index_fill_.int_Scalar": [
        (lambda: dev(3).index_fill_(0, index(cpu(1)), 2.0), FOUND),
        (lambda: dev(3).index_fill_(0, index(cpu()), 2.0), FOUND),
        (lambda: cpu(3).index_fill_(0, index(dev(1)), 2.0), FOUND),
        (lambda: dev(3).index_fill_(0, index(dev1(1)), 2.0), FOUND_1),
    ],
    "index_fill_.int_Tensor": [
        (lambda: dev(3).index_fill_(0, index(dev(1)), cpu()), None),
        (lambda: dev(3).index_fill_(0, index(dev(1)), dev1()), None),
        (lambda: cpu(3).index_fill_(0, index(cpu(1)), dev()), None),
        (lambda: dev(3).index_fill_(0, index(cpu(1)), cpu()), FOUND),
        (lambda: cpu(3).index_fill_(0, index(dev(1)), cpu()), FOUND),
    ],
    "log_sigmoid_forward.output": [
        (lambda: aten.log_sigmoid_forward.output(dev(3), output=dev(3), buffer=cpu(3)), None),
        (lambda: aten.log_sigmoid_forward.output(dev(3), output=cpu(3), buffer=dev(3)), FOUND),
        (lambda: aten.log_sigmoid_forward.output(cpu(3), output=dev(3), buffer=dev(3)), FOUND),
        (lambda: aten.log_sigmoid_forward.output(cpu(3), output=cpu(3), buffer=dev(3)), FOUND),
    ],
    "bernoulli_.Tensor": [
        (lambda: dev(3).bernoulli_(cpu(3)), None),
        (lambda: dev(3).bernoulli_(dev1(3)), None),
        (lambda: cpu(3).bernoulli_(dev(3)), FOUND),
    ],
    "bernoulli.out": [
        (lambda: torch.bernoulli(cpu(3), out=dev(3)), None),
        (lambda: torch.bernoulli(dev(3), out=cpu(3)), FOUND),
    ],
    "binary_cross_entropy": [
        (lambda: aten.binary_cross_entropy(dev(3), cpu(3)), FOUND),
        (lambda: aten.binary_cross_entropy(cpu(3), dev(3)), FOUND),
        (lambda: aten.binary_cross_entropy(dev(), cpu()), FOUND),
        (lambda: aten.binary_cross_entropy(dev(3), dev(3), cpu(3)), FOUND),
        (lambda: aten.binary_cross_entropy(dev(3), dev(3), dev1()), FOUND_1),
        (lambda: aten.binary_cross_entropy(dev(3), dev(3), cpu()), None),
    ],
    "binary_cross_entropy.out": [
        (lambda: aten.binary_cross_entropy.out(dev(3), dev(3), None, 0, out=cpu(3)), FOUND),
        (lambda: aten.binary_cross_entropy.out(dev(3), cpu(3), None, 0, out=dev(3)), FOUND),
        (lambda: aten.binary_cross_entropy.out(dev(3), dev(3), cpu(3), 0, out=dev(3)), FOUND),
        (lambda: aten.binary_cross_entropy.out(dev(3), dev(3), cpu(), 0, out=dev(3)), None),
    ],
    "norm.dtype_out": [
        (lambda: aten.norm.dtype_out(dev(3), 2, [0], False, dtype=torch.float32, out=cpu()), OUT),
        (lambda: aten.norm.dtype_out(cpu(3), 2, [0], False, dtype=torch.float32, out=dev()), OUT_CPU),
    ],
    "renorm.out": [(lambda: torch.renorm(dev(3, 3), 2, 0, 1, out=cpu(3, 3)), OUT)],
    "max.unary_out": [
        (lambda: torch.max(dev(3), out=cpu()), SAME),
        (lambda: torch.max(cpu(3), out=dev()), SAME),
        (lambda: torch.max(dev1(3), out=dev()), SAME),
    ],
    "min.unary_out": [(lambda: torch.min(dev(3), out=cpu()), SAME), (lambda: torch.min(cpu(3), out=dev()), SAME)],
    "mode.values": [
        (lambda: torch.mode(dev(3), out=(cpu(), index(dev()))), expected(DEVICE_0, "cpu", "values")),
        (lambda: torch.mode(dev(3), out=(dev(), index(cpu()))), expected(DEVICE_0, "cpu", "indices")),
        (lambda: torch.mode(cpu(3), out=(dev(), index(dev()))), expected("cpu", DEVICE_0, "values")),
    ],
    "where.self": [
        (lambda: torch.where(dev(3) > 0, cpu(), cpu()), None),
        (lambda: torch.where(cpu() > 0, dev(3), dev(3)), None),
        (lambda: torch.where(cpu() > 0, dev(3), cpu()), None),
        (lambda: torch.where(dev(3) > 0, dev(3), dev1()), None),
        (lambda: torch.where(cpu(3) > 0, dev(3), dev(3)), FOUND),
        (lambda: torch.where(dev(3) > 0, dev(3), cpu(3)), FOUND),
        (lambda: torch.where(dev(3) > 0, dev(3), dev1(3)), FOUND_1),
        (lambda: torch.where(dev() > 0, dev(), cpu(3)), FOUND),
    ],
    "where.self_out": [
        (lambda: torch.where(dev(3) > 0, dev(3), cpu(), out=dev(3)), None),
        (lambda: torch.where(dev(3) > 0, dev(3), dev(3), out=cpu(3)), FOUND),
        (lambda: torch.where(cpu() > 0, cpu(), cpu(), out=dev()), FOUND),
    ],
    "index.Tensor": [
        (lambda: dev(3)[index(cpu(2))], None),
        (lambda: dev(3)[cpu(3) > 0], None),
        (lambda: cpu(3)[index(dev(2))], INDICES),
        (lambda: cpu(3)[dev(3) > 0], INDICES),
        (lambda: dev(3)[index(dev1(2))], INDICES.replace("(cpu)", f"({DEVICE_0})")),
        (lambda: dev(3, 3)[index(cpu(2)), index(dev(2))], None),
    ],
    "index.Tensor_out": [
        (lambda: aten.index.Tensor_out(dev(3), [index(cpu(2))], out=dev(2)), None),
        (lambda: aten.index.Tensor_out(dev(3), [index(dev(2))], out=cpu(2)), FOUND),
        (lambda: aten.index.Tensor_out(cpu(3), [index(dev(2))], out=dev(2)), INDICES),
        (lambda: aten.index.Tensor_out(cpu(3), [index(cpu(2))], out=dev(2)), FOUND),
    ],
    "_index_put_impl_": [
        (lambda: dev(3).index_put_([index(cpu(2))], dev(2)), None),
        (lambda: dev(3).index_put_([index(dev(2))], cpu()), None),
        (lambda: dev(3).index_put_([index(dev(2))], dev1()), None),
        (lambda: dev(3).index_put_([index(dev(2))], cpu(2)), FOUND),
        (lambda: dev(3).index_put_([index(dev(2))], dev1(2)), FOUND_1),
        (lambda: cpu(3).index_put_([index(dev(2))], cpu(2)), INDICES),
    ],
    "masked_fill_.Scalar": [
        (lambda: dev(3).masked_fill_(cpu(3) > 0, 2), MASK_ON_CPU),
        (lambda: dev(3).masked_fill_(cpu() > 0, 2), MASK_ON_CPU),
        (lambda: dev(3).masked_fill_(dev1(3) > 0, 2), MASK_ON_1),
        (lambda: cpu(3).masked_fill_(dev(3) > 0, 2), MASK_ON_DEVICE),
    ],
    "masked_fill_.Tensor": [
        (lambda: dev(3).masked_fill_(dev(3) > 0, cpu()), None),
        (lambda: dev(3).masked_fill_(dev(3) > 0, dev1()), None),
        (lambda: dev(3).masked_fill_(cpu(3) > 0, dev()), MASK_ON_CPU),
        (lambda: cpu(3).masked_fill_(dev(3) > 0, cpu()), MASK),
        (lambda: cpu(3).masked_fill_(cpu(3) > 0, dev()), MASK),
    ],
    "fill_.Tensor": [
        (lambda: dev(3).fill_(cpu()), None),
        (lambda: cpu(3).fill_(dev()), None),
        (lambda: dev(3).fill_(dev1()), None),
    ],
    "copy_": [
        (lambda: dev(3).copy_(cpu(3)), None),
        (lambda: cpu(3).copy_(dev(3)), None),
        (lambda: dev(3).copy_(dev1(3)), None),
    ],
    "is_set_to": [(lambda: dev(3).is_set_to(cpu(3)), None), (lambda: cpu(3).is_set_to(dev(3)), None)],
    **{
        f"_fused_{name}_.tensor_lr": [
            (lambda name=name: lr(name, cpu()), None),
            (lambda name=name: lr(name, dev()), None),
            (lambda name=name: lr(name, dev1()), on_params("lr")),
            (lambda name=name: lr(name, cpu(), cpu(1)), on_params("found_inf")),
            (lambda name=name: lr(name, dev(), dev1(1)), on_params("found_inf")),
        ]
        for name in ("adam", "adamw", "sgd", "adagrad")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_an_operator_with_a_check_of_its_own_accepts_and_refuses_what_cudas_source_says(name: str) -> None:
    assert name in RULES
    for call_, message in SPECIAL[name]:
        if message is None:
            call_()
        else:
            with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
                call_()


def test_an_accepted_mix_gives_the_cpus_result() -> None:
    a = torch.arange(3.0)
    for device_result, cpu_result in (
        (torch.where(a.to(DEVICE_0) > 1, cpu(), dev1()), torch.where(a > 1, cpu(), cpu())),
        (a.to(DEVICE_0).index_put_([index(dev(2))], dev1()), a.clone().index_put_([index(cpu(2))], cpu())),
        (a.to(DEVICE_0).masked_fill_(a.to(DEVICE_0) > 1, dev1()), a.clone().masked_fill_(a > 1, cpu())),
        (a.to(DEVICE_0).fill_(dev1()), cpu(3)),
        (torch.lerp(a.to(DEVICE_0), dev(3), torch.tensor(0.25)), torch.lerp(a, cpu(3), torch.tensor(0.25))),
        (torch.addcmul(a.to(DEVICE_0), dev(3), torch.tensor(2.0)), torch.addcmul(a, cpu(3), torch.tensor(2.0))),
    ):
        assert_same(device_result, cpu_result)


WITH_WORK_QUEUED = """
x, big = torch.zeros(3, device=DEVICE_0), torch.rand(700, 700, device=DEVICE_1)
true, i = torch.ones(3, dtype=torch.bool, device=DEVICE_0), torch.zeros(1, dtype=torch.int64, device=DEVICE_0)
def late(value):  # a scalar that is computed behind other work, on the other device
    scalar = torch.zeros((), device=DEVICE_1)
    for _ in range(3):
        big @ big
    return scalar.add_(value)
for value in (2.0, 3.0, 4.0):
    s = late(value); a = torch.where(true, s, x); s.zero_(); assert a.tolist() == [value] * 3, a
    s = late(value); x.fill_(s); s.zero_(); assert x.tolist() == [value] * 3, x
    s = late(value); x.masked_fill_(true, s + 1); s.zero_(); assert x.tolist() == [value + 1] * 3, x
    s = late(value); x.index_put_([i], s); s.zero_(); assert x[0].item() == value, x
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_scalar_of_the_other_device_is_waited_for(mode: str, run_python: Callable[..., Any]) -> None:
    for checks in ("", "race,init"):  # the kernel does not read the scalar itself, so a later write is no race
        run_python(PRELUDE + WITH_WORK_QUEUED, OPENREG_EXECUTION=mode, OPENREG_SANITIZER=checks, status=0, errors="")


# Operators of the table that no test of this file covers: internal functions with arguments of a special kind.
INTERNAL = {
    "_nested_from_padded",
    "_nested_view_from_buffer",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
    "_validate_compressed_sparse_indices",
}


def test_every_row_of_the_table_is_tested_and_gives_a_reason() -> None:
    tested = set(oracle()) | set(SPECIAL) | {n for names in AS.values() for n in names} | INTERNAL
    assert set(RULES) - tested == set()
    for row in TABLE:
        assert set(row) - {"argument"} == {"rule", "reason", "operators"}
        assert re.search(r"\.(cpp|cu|h|py)\b|native/nested", row["reason"]), row


@pytest.mark.slow
def test_every_unchecked_operator_is_in_the_table_or_made_of_others() -> None:
    """An operator that PyTorch composes of others needs no row: these others refuse as they do on CUDA."""
    unchecked = [f for f in functions() if f.device_check is DeviceCheckType.NoCheck and f.namespace == "aten"]
    missing = [str(f.func.name) for f in unchecked if route(f) == "kernel" and str(f.func.name) not in RULES]
    assert not missing, "not in device_rules.yaml, so they follow one_scalar: " + " ".join(missing)


def test_a_foreach_operator_refuses_what_its_parts_refuse() -> None:
    a, b = [dev(3), dev(3)], [dev(3), cpu(3)]
    for op in (torch._foreach_add, torch._foreach_mul, torch._foreach_div, torch._foreach_add_):
        with pytest.raises(RuntimeError, match=f"^{re.escape(FOUND)}$"):
            op(a, b)
    with pytest.raises(RuntimeError, match=f"^{re.escape(FOUND)}$"):
        torch._foreach_addcmul(a, a, b)
    with pytest.raises(RuntimeError, match=f"^{re.escape(FOUND)}$"):
        torch._foreach_lerp(a, b, 0.5)
    assert_same(torch._foreach_add([dev(3), dev(3)], [cpu(), cpu()]), (2 * cpu(3), 2 * cpu(3)))
