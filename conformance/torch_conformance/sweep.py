"""PyTorch's databases of operators, modules and optimizers as checks: the device against the CPU.

The name of a case is ``operators/op/ENTRY/DTYPE/FORM``, ``operators/module/...`` or ``trains/optimizer/...``. A sweep
also has the cases of the modules `mixes` and `alerts`. The samples are made on the CPU and copied to the device. The
results are compared with the CPU's, within the tolerances of `_tolerance`; those of optimizers within 1e-4.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .kit import lost, there_and_back
from .registry import NotOffered, device_side, missing_operator

if TYPE_CHECKING:
    from .databases import Sample

PREFIXES = ("operators/op/", "operators/module/", "operators/devices/", "operators/deterministic/", "trains/optimizer/")

FORMS = ("forward", "backward", "double_backward", "noncontiguous", "conj", "neg", "inplace", "out", "error")
OPTIMIZER_FORMS = ("default", "foreach", "fused")
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
# Modules that draw random numbers in training mode.
_RANDOM_MODULES = re.compile(r"nn\..*Dropout.*|nn\.RReLU|nn\.FractionalMaxPool[23]d")
# In evaluation mode, nothing needs the statistics that batch normalization returns. The CPU returns empty tensors, and
# another device may return filled ones, so these results are not compared.
_LEFT_EMPTY = re.compile(r"_?native_batch_norm.*|_batch_norm_with_update.*")


def names(which: str) -> list[str]:
    """The names of all cases, or of the cases of "quick".

    Raises ImportError if PyTorch's test modules cannot be imported.
    """
    import torch

    from . import alerts, mixes
    from .databases import suite

    quick = which == "quick"
    op, module, optimizer = suite("op"), suite("module"), suite("optimizer")
    found = []
    for name in QUICK_OPS if quick else op.entries:
        entry = op.entries[name]
        for dtype_name in DTYPES:
            dtype = getattr(torch, dtype_name)
            if dtype not in op.dtypes(entry) or (quick and dtype_name not in ("float32", "int64")):
                continue
            if quick and dtype_name == "int64" and torch.float32 in op.dtypes(entry):
                continue
            for form in FORMS:
                if quick and form not in ("forward", "backward", "noncontiguous"):
                    continue
                if op.variants[form].applies(entry, dtype):
                    found.append(f"operators/op/{name}/{dtype_name}/{form}")
    for name in QUICK_MODULES if quick else module.entries:
        found += [f"operators/module/{name}/float32/{form}" for form in ("forward", "backward")]
    for name in QUICK_OPTIMIZERS if quick else optimizer.entries:
        for form in OPTIMIZER_FORMS:
            if optimizer.variants[form].applies(optimizer.entries[name], torch.float32):
                found.append(f"trains/optimizer/{name}/float32/{form}")
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
    if kind == "optimizer" and form == "fused":
        try:
            return _run(kind, entry, dtype, form, device)
        except RuntimeError as error:
            raise (NotOffered(str(error)) if "fused" in str(error) else error) from error
    return _run(kind, entry, dtype, form, device)


def _moved(tree: Any, device: str) -> Any:
    """A copy of the tree on the device.

    Tensors keep the bits conj and neg. If the device has storages, strided tensors also keep strides and offsets, and
    those of one dtype keep the storage that they share. Modules are not copied.
    """
    import torch
    from torch.utils._pytree import tree_map

    bases: dict[Any, Any] = {}
    keeps_views = torch.device(device).type == "cpu" or _has_storage(device)

    def there(tensor: Any) -> Any:
        if tensor.is_conj():
            return there(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(there(torch._neg_view(tensor)))
        if not keeps_views or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.to(device, copy=True)
        key = (tensor.untyped_storage().data_ptr(), tensor.dtype)
        if key not in bases or tensor.numel() == 0:
            bases[key] = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to(device, copy=True)
        return bases[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return there(leaf.detach()).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return device
        return leaf

    return tree_map(move, tree)


@functools.cache
def _has_storage(device: str) -> bool:
    from .abilities import require

    try:
        require(("storage",), device)
    except NotOffered:
        return False
    return True


def _compare(
    actual: Any, expected: Any, device: str, values: bool = True, left_empty: bool = False, **tolerance: Any
) -> int:
    """Compares the tensors, and the numbers that are no tensors. Returns how many were compared.

    Without ``values``, only shapes, dtypes and devices are compared. With ``left_empty``, a tensor that is empty on the
    CPU is not compared.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    from .databases import tensors

    got, wanted = tensors(actual), tensors(expected)
    assert len(got) == len(wanted), f"{len(got)} tensors, the CPU gives {len(wanted)}"
    count = 0
    for a, e in zip(got, wanted, strict=True):
        if a is e or (left_empty and e.numel() == 0):  # an argument that both calls take from the CPU
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


def _raises_too(call: Callable[[], Any], expected: Exception, kind: type[BaseException], device: str) -> bool:
    """Whether the device is lost after ``call``, which must raise an exception of the ``kind``.

    The messages may name the device, so only the type is compared. A kernel on CUDA that finds an index beyond the end
    raises AcceleratorError, perhaps when the device is synchronised.
    """
    import torch

    try:
        device_side(call)
        there_and_back(device)
    except NotOffered:
        raise
    except Exception as raised:
        if missing_operator(raised):
            raise
        of_a_kernel = isinstance(raised, getattr(torch, "AcceleratorError", ()))  # PyTorch 2.8 does not have it
        is_lost = of_a_kernel and bool(lost(device))
        late = is_lost and issubclass(IndexError, kind)
        assert late or isinstance(raised, kind), f"the device raises {raised!r}, which is no {kind.__name__}"
        return is_lost
    raise AssertionError(f"the CPU raises {expected!r}; the device does not")


def _run(kind: str, name: str, dtype: Any, form: str, device: str) -> str:
    import torch

    from .databases import suite

    found = suite(kind)
    entry, variant = found.entries[name], found.variants[form]
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if kind == "optimizer" else _tolerance(dtype)
    count = compared = 0
    case = f"{name}/{str(dtype).removeprefix('torch.')}/{form}"
    defined, left_empty = not _UNDEFINED.match(case), bool(_LEFT_EMPTY.match(case))
    draws = bool(_RANDOM_MODULES.match(name))
    for sample in variant.samples(entry, dtype):
        count += 1

        def call(where: str, sample: Sample = sample) -> Any:
            moved = sample.place(where, _moved)
            if name == "tensor_split":  # its indices must be on the CPU, as on CUDA
                moved.args, moved.kwargs = sample.args, sample.kwargs
            torch.manual_seed(1)
            with contextlib.ExitStack() as stack:
                if kind == "op":  # for a factory without a device among its arguments
                    stack.enter_context(torch.device(where))
                # cuDNN refuses the backward of a recurrent layer in evaluation mode. PyTorch's own kernels compute it.
                if isinstance(sample.input, torch.nn.RNNBase) and not sample.input.training:
                    stack.enter_context(torch.backends.cudnn.flags(enabled=False))
                return variant.run(entry, moved)

        try:
            expected = call("cpu")
            if form in ("conj", "neg"):  # with lazy operands, the CPU is wrong in max_pool1d and others
                expected = call("cpu", sample.map(lambda t: t.resolve_conj().resolve_neg()))
        except Exception as error:
            if form != "error":
                continue  # the CPU raises, so there is no result to compare with
            compared += 1
            try:
                if _raises_too(lambda: call(device), error, sample.error or type(error), device):
                    break  # the device is lost
            except AssertionError as difference:
                raise AssertionError(f"sample {count}: {difference}") from error
            continue
        actual = device_side(lambda: call(device))
        values = defined and not (draws and sample.input.training)
        try:
            compared += _compare(actual, expected, device, values, left_empty, **tolerance)
        except AssertionError as error:
            raise AssertionError(f"sample {count}: {error}") from None
    if not compared:
        raise NotOffered(f"{case}: the CPU gives no result to compare with")
    return f"{count} {'settings' if kind == 'optimizer' else 'samples'}"
