"""PyTorch's databases of operators, modules and optimizers as checks: the device against the CPU.

The name of a case is ``operators/op/ENTRY/DTYPE/FORM``, ``operators/module/...`` or ``trains/optimizer/...``. A sweep
also has the cases of the modules `mixes` and `alerts`. The samples are made on the CPU and copied to the device. The
results are compared with the CPU's, within the tolerances of `_tolerance`; those of optimizers within 1e-4.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .kit import lost, there_and_back
from .registry import NotOffered, device_side, missing_operator

PREFIXES = ("operators/op/", "operators/module/", "operators/devices/", "operators/deterministic/", "trains/optimizer/")

FORMS = ("forward", "backward", "double_backward", "noncontiguous", "conj", "neg", "inplace", "out", "error")
DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "uint8", "bool")

# The operators of --quick: one of each kind, and those that nearly every model calls.
QUICK_OPS = [
    "add",
    "sub",
    "mul",
    "div.no_rounding_mode",
    "pow",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "sigmoid",
    "where",
    "masked_fill",
    "clamp",
    "sum",
    "mean",
    "amax",
    "argmax",
    "cumsum",
    "sort",
    "topk",
    "mm",
    "bmm",
    "addmm",
    "matmul",
    "cat",
    "stack",
    "split",
    "index_select",
    "gather",
    "scatter_add",
    "index_put",
    "nonzero",
    "masked_select",
    "unique",
    "nn.functional.relu",
    "nn.functional.gelu",
    "softmax",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.conv2d",
    "nn.functional.embedding",
    "nn.functional.cross_entropy",
    "nn.functional.max_pool2d",
    "nn.functional.scaled_dot_product_attention",
    "linalg.norm",
    "linalg.solve",
    "linalg.cholesky",
    "fft.fft",
    "eq",
    "isnan",
    "bitwise_and",
]
QUICK_MODULES = ("nn.Linear", "nn.Conv2d", "nn.BatchNorm2d", "nn.LSTM", "nn.TransformerEncoderLayer")
QUICK_OPTIMIZERS = ("SGD", "Adam", "AdamW")

# Operators whose values are not compared: the result is uninitialised memory, memory outside of the sample (as_strided
# reads it), a random draw without a common seed, or one of several correct results.
_UNDEFINED = re.compile(
    r"(new_)?empty.*|resize_.*|as_strided.*|bernoulli|multinomial|normal.*|rand.*|uniform|cauchy|exponential|geometric|log_normal"
    r"|nn\.functional\..*dropout.*|nn\.functional\.rrelu|nn\.functional\.fractional_max_pool.*|linalg\.lstsq.*|svd_lowrank"
    r"|pca_lowrank|linalg\.(svd|eig|eigh)/|svd/|geqrf|linalg\.ldl.*|nn\.functional\.scaled_dot_product_attention"
    # With p=inf, the CPU's backward computes the largest absolute value in double precision, and looks for it among the
    # absolute values in single precision. It finds none, and the gradient is NaN.
    r"|renorm/complex64/(double_)?backward"
)
# In evaluation mode, nothing needs the statistics that batch normalization returns. The CPU returns empty tensors, and
# another device may return filled ones, so these results are not compared.
_LEFT_EMPTY = re.compile(r"_?native_batch_norm.*|_batch_norm_with_update.*")


@functools.cache
def _ops() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


@functools.cache
def _modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


@functools.cache
def _optimizers() -> dict[str, Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return {info.optim_cls.__name__: info for info in optim_db}


def _applies(op: Any, dtype: Any, form: str) -> bool:
    if form == "error":  # error_inputs() makes tensors, which takes long, so it is called only if the rest holds
        return op.error_inputs_func is not None and str(dtype) == "torch.float32" and any(op.error_inputs("cpu"))
    gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    return {
        "backward": gradients,
        "double_backward": gradients and op.supports_gradgrad,
        "conj": dtype.is_complex,
        "neg": dtype.is_complex or dtype.is_floating_point,
        "inplace": op.get_inplace() is not None,
        "out": op.supports_out,
    }.get(form, True)


def names(which: str) -> list[str]:
    """The names of all cases, or of the cases of "quick".

    Raises ImportError if PyTorch's test modules cannot be imported.
    """
    import torch

    quick = which == "quick"
    found = []
    for name in QUICK_OPS if quick else _ops():
        op = _ops()[name]
        for dtype_name in DTYPES:
            dtype = getattr(torch, dtype_name)
            if dtype not in op.supported_dtypes("cpu") or (quick and dtype_name not in ("float32", "int64")):
                continue
            if quick and dtype_name == "int64" and torch.float32 in op.supported_dtypes("cpu"):
                continue
            for form in FORMS:
                if quick and form not in ("forward", "backward", "noncontiguous"):
                    continue
                if _applies(op, dtype, form):
                    found.append(f"operators/op/{name}/{dtype_name}/{form}")
    for name in QUICK_MODULES if quick else _modules():
        found += [f"operators/module/{name}/float32/{form}" for form in ("forward", "backward")]
    for name in QUICK_OPTIMIZERS if quick else _optimizers():
        info = _optimizers()[name]
        forms = ["default"] + [form for form in ("foreach", "fused") if form in info.supported_impls]
        if not info.only_supports_sparse_grads:
            found += [f"trains/optimizer/{name}/float32/{form}" for form in forms]
    from . import alerts, mixes

    return found + mixes.names(which) + alerts.names()


def run(name: str, device: str) -> str:
    """Runs one case, and returns the remark for the report.

    Raises if the result is wrong, or if the device lacks an operator. Raises NotOffered if the device has no kernel for
    the case, or lacks the dtype, or if the CPU gives no result to compare with.
    """
    import torch

    from . import alerts, mixes

    for module in (alerts, mixes):
        if name.startswith(module.PREFIX):
            return module.run(name, device)
    _, kind, entry, dtype_name, form = name.split("/")
    dtype = getattr(torch, dtype_name)
    try:
        torch.zeros(1, dtype=dtype).to(device)
    except Exception as error:
        raise NotOffered(f"{dtype_name}: {error}") from error
    torch.manual_seed(0)
    if kind == "op":
        return _run_op(_ops()[entry], dtype, form, device)
    if kind == "module":
        return _run_module(_modules()[entry], dtype, form, device)
    return _run_optimizer(_optimizers()[entry], form, device)


def _moved(tree: Any, device: str) -> Any:
    """The tree on the device. A tensor that is there already is not copied, and shares the memory of the sample.

    Tensors keep the bits conj and neg. If the device has storages, strided tensors also keep strides and offsets, and
    those of one dtype keep the storage that they share. Modules are copied.
    """
    import torch
    from torch.utils._pytree import tree_map

    bases: dict[Any, Any] = {}
    keeps_views = torch.device(device).type != "cpu" and _has_storage(device)

    def there(tensor: Any) -> Any:
        if tensor.is_conj():
            return there(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(there(torch._neg_view(tensor)))
        if not keeps_views or not tensor.is_cpu or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor.to(device)
        key = (tensor.untyped_storage().data_ptr(), tensor.dtype)
        if key not in bases or tensor.numel() == 0:
            bases[key] = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to(device)
        return bases[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return there(leaf.detach()).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.nn.Module):
            return copy.deepcopy(leaf).to(device)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return device
        return leaf

    return tree_map(move, tree)


def _resolved(tree: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda t: t.resolve_conj().resolve_neg(), tree)


@functools.cache
def _has_storage(device: str) -> bool:
    from .abilities import require

    try:
        require(("storage",), device)
    except NotOffered:
        return False
    return True


def _tensors(tree: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _compare(
    actual: Any, expected: Any, device: str, values: bool = True, left_empty: bool = False, **tolerance: Any
) -> int:
    """Compares the tensors, and the numbers that are no tensors. Returns how many were compared.

    Without ``values``, only shapes, dtypes and devices are compared. With ``left_empty``, a tensor that is empty on the
    CPU is not compared.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    got, wanted = _tensors(actual), _tensors(expected)
    assert len(got) == len(wanted), f"{len(got)} tensors, the CPU gives {len(wanted)}"
    count = 0
    for a, e in zip(got, wanted, strict=True):
        if left_empty and e.numel() == 0:
            continue
        count += 1
        assert a.shape == e.shape, f"shape {tuple(a.shape)}, the CPU's {tuple(e.shape)}"
        assert a.dtype == e.dtype, f"dtype {a.dtype}, the CPU's {e.dtype}"
        assert e.device.type != "cpu" or torch.device(device).type in (a.device.type, "cpu"), f"a result on {a.device}"
        if values:
            torch.testing.assert_close(a, e, check_device=False, equal_nan=True, **tolerance)
    numbers = [
        [leaf for leaf in tree_leaves(tree) if isinstance(leaf, (bool, int, float, complex))]
        for tree in (actual, expected)
    ]
    if values and numbers[1]:
        torch.testing.assert_close(*numbers, equal_nan=True, **tolerance)
        count += len(numbers[1])
    return count


def _tolerance(dtype: Any) -> dict[str, float]:
    """The tolerance for a dtype, wider than assert_close's own, because another order of additions is correct too."""
    import torch

    wide = {
        torch.float16: (5e-3, 5e-3),
        torch.bfloat16: (4e-2, 4e-2),
        torch.float32: (1e-4, 1e-4),
        torch.complex64: (1e-4, 1e-4),
    }
    if dtype in wide:
        return dict(zip(("rtol", "atol"), wide[dtype], strict=True))
    return {}


def _cotangent(output: Any, seed: int) -> Any:
    """The gradient of an output, from which a backward starts (`grad_outputs`). This file calls it a direction.

    It has the same random numbers on the device and on the CPU. A sparse or nested output is its own direction.
    Ones would hide mistakes: the gradient of softmax or of a layer_norm without weights would be 0.
    """
    import torch

    if output.layout is not torch.strided or output.is_nested:
        return output.detach().clone()
    wide = torch.complex128 if output.is_complex() else torch.float64
    # device="cpu": the caller may be inside `with torch.device(...)`, which changes the default device.
    draw = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(output.shape, generator=draw, device="cpu", dtype=wide).to(output.dtype).to(output.device)


def _gradients(outputs: Any, inputs: Any, create_graph: bool = False) -> tuple[list[Any], list[Any]]:
    """The gradients of the outputs with respect to the inputs, and the directions of the outputs.

    With ``create_graph``, the gradients can be differentiated with respect to the inputs and to the directions.
    """
    import torch

    made = [t for t in _tensors(outputs) if t.requires_grad]
    given = [t for t in _tensors(inputs) if t.requires_grad]
    if not made or not given:
        return [], []
    directions = [_cotangent(t, seed).requires_grad_(create_graph) for seed, t in enumerate(made)]
    found = torch.autograd.grad(made, given, directions, allow_unused=True, create_graph=create_graph)
    return [g for g in found if g is not None], directions


def _seeded(inputs: Iterable[Any]) -> Iterator[Any]:
    """What ``op.sample_inputs()`` and ``op.error_inputs()`` make of the inputs, with the same numbers.

    These functions of PyTorch look for a test on the stack, which takes 50 ms for each operator, and seed all devices
    before each input. This function seeds the generators of the CPU, of Python and of NumPy.
    """
    import random

    import numpy
    import torch
    from torch.testing._internal.common_utils import SEED

    inputs = iter(inputs)
    while True:
        torch.default_generator.manual_seed(SEED)
        random.seed(SEED)
        numpy.random.seed(SEED)
        try:
            made = next(inputs)
        except StopIteration:
            return
        yield made


def _samples(op: Any, dtype: Any, form: str) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]:
    import torch
    from torch.testing._internal.common_utils import noncontiguous_like

    def change(tree: Any) -> Any:
        from torch.utils._pytree import tree_map_only

        how = {
            "noncontiguous": noncontiguous_like,
            "conj": lambda t: torch.conj_physical(t).conj() if t.is_complex() else t,
            "neg": lambda t: torch._neg_view(-t) if t.is_floating_point() or t.is_complex() else t,
        }.get(form)
        return tree_map_only(torch.Tensor, lambda t: how(t) if t.layout == torch.strided else t, tree) if how else tree

    if form == "error":
        for error in _seeded(op.error_inputs_func(op, "cpu")):
            sample = error.sample_input
            yield sample.input, tuple(sample.args), dict(sample.kwargs), error
        return
    requires_grad = form in ("backward", "double_backward")
    for sample in _seeded(op.sample_inputs_func(op, "cpu", dtype, requires_grad)):
        if form == "inplace" and sample.broadcasts_input:
            continue
        given = change((sample.input, tuple(sample.args), dict(sample.kwargs)))
        yield *given, sample.output_process_fn_grad


def _run_op(op: Any, dtype: Any, form: str, device: str) -> str:
    import torch

    count = compared = 0
    case = f"{op.full_name}/{str(dtype).removeprefix('torch.')}/{form}"
    defined, left_empty = not _UNDEFINED.match(case), bool(_LEFT_EMPTY.match(case))
    for input, args, kwargs, extra in _samples(op, dtype, form):
        count += 1

        def call(where: str, input: Any = input, args: Any = args, kwargs: Any = kwargs, extra: Any = extra) -> Any:
            x, a, k = _moved((input, args, kwargs), where)
            if op.name == "tensor_split":  # its indices must be on the CPU, as on CUDA
                a, k = args, kwargs
            with torch.device(where):  # for a factory without a device among its arguments
                if form == "inplace":
                    y = _moved(x, where) if isinstance(x, torch.Tensor) else x
                    y = y.clone() if isinstance(y, torch.Tensor) else y
                    return op.get_inplace()(y, *a, **k), y
                if form == "out":
                    made = op(x, *a, **k)
                    flat = [torch.zeros_like(t) for t in _tensors(made)]
                    out = flat[0] if isinstance(made, torch.Tensor) else type(made)(flat)
                    returned = op(x, *a, **k, out=out)
                    return returned, flat
                made = op(x, *a, **k)
                if form == "backward":
                    return extra(made), _gradients(extra(made), (x, a, k))[0]
                if form == "double_backward":
                    first, directions = _gradients(extra(made), (x, a, k), create_graph=True)
                    # Also with respect to the directions: the gradients of a linear operator depend on nothing else.
                    return _gradients(first, (x, a, k, directions))[0]
                return made

        try:
            torch.manual_seed(1)
            expected = call("cpu")
            if form in ("conj", "neg"):  # with lazy operands, the CPU is wrong in max_pool1d and others
                torch.manual_seed(1)
                expected = call("cpu", *_resolved((input, args, kwargs)))
        except Exception as error:
            if form != "error":
                continue  # the CPU raises, so there is no result to compare with
            try:
                device_side(lambda: call(device))
                there_and_back(device)  # the error of a kernel may arrive when the device is synchronised
            except NotOffered:
                raise
            except Exception as raised:
                if missing_operator(raised):
                    raise
                # The messages may name the device, so only the type is compared. A kernel on CUDA that finds an index
                # beyond the end raises AcceleratorError.
                of_a_kernel = isinstance(raised, getattr(torch, "AcceleratorError", ()))  # PyTorch 2.8 does not have it
                is_lost = of_a_kernel and bool(lost(device))
                late = is_lost and issubclass(IndexError, extra.error_type)
                assert late or isinstance(raised, extra.error_type), (
                    f"sample {count}: the device raises {raised!r}, which is no {extra.error_type.__name__}"
                )
                compared += 1
                if is_lost:
                    break
                continue
            raise AssertionError(f"sample {count}: the CPU raises {error!r}; the device does not") from error
        torch.manual_seed(1)
        actual = device_side(lambda: call(device))
        try:
            compared += _compare(actual, expected, device, defined, left_empty, **_tolerance(dtype))
        except AssertionError as error:
            raise AssertionError(f"sample {count}: {error}") from None
    if not compared:
        raise NotOffered(f"{case}: the CPU gives no result to compare with")
    return f"{count} samples"


def _run_module(info: Any, dtype: Any, form: str, device: str) -> str:
    import torch

    count = 0
    for training in (True, False) if info.train_and_eval_differ else (True,):
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for each in inputs:
            made = each.constructor_input
            torch.manual_seed(0)
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            given = each.forward_input
            count += 1

            def call(where: str, module: Any = module, given: Any = given) -> Any:
                here, args, kwargs = _moved((module, tuple(given.args), dict(given.kwargs)), where)
                torch.manual_seed(1)
                outputs = here(*args, **kwargs)
                if form == "forward":
                    return outputs, dict(here.state_dict())
                return outputs, _gradients(outputs, (list(here.parameters()), args, kwargs))[0]

            random = "Dropout" in info.name or info.name in (
                "nn.RReLU",
                "nn.FractionalMaxPool2d",
                "nn.FractionalMaxPool3d",
            )
            # cuDNN refuses the backward of a recurrent layer in evaluation mode. PyTorch's own kernels compute it.
            refused = form == "backward" and not training and isinstance(module, torch.nn.RNNBase)
            expected = call("cpu")
            with torch.backends.cudnn.flags(enabled=False) if refused else contextlib.nullcontext():
                actual = device_side(lambda: call(device))
            _compare(actual, expected, device, values=not (random and training), **_tolerance(dtype))
    return f"{count} samples"


def _run_optimizer(info: Any, form: str, device: str) -> str:
    import torch

    count = 0
    for each in info.optim_inputs_func(device="cpu"):
        settings = dict(each.kwargs)
        if form != "default":
            settings |= {form: True}
        count += 1

        def steps(where: str, settings: Any = settings) -> list[Any]:
            draw = torch.Generator().manual_seed(2)
            parameters = [torch.randn(shape, generator=draw).to(where).requires_grad_() for shape in ((3, 5), (4, 2))]
            optimizer = info.optim_cls(parameters, **settings)
            for _ in range(4):
                gradients = [torch.randn(p.shape, generator=draw).to(where) for p in parameters]

                def closure(gradients: Any = gradients) -> Any:
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.grad = gradient.clone()
                    with torch.no_grad():
                        return sum((p * p).sum() for p in parameters)

                if info.step_requires_closure:
                    optimizer.step(closure)
                else:
                    closure()
                    optimizer.step()
            return [p.detach() for p in parameters]

        expected = steps("cpu")
        try:
            actual = steps(device)
        except RuntimeError as error:
            if form == "fused" and "fused" in str(error):
                raise NotOffered(str(error)) from error
            raise
        _compare(actual, expected, device, rtol=1e-4, atol=1e-4)
    return f"{count} settings"
