# ruff: noqa: SIM905 (a list of words reads better in lines)
"""Writes random programs, one line at a time, to fit the shapes and dtypes of the tensors made so far on the CPU."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import torch
from sweep.errors import outcome
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

FLOATS = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *FLOATS, *COMPLEX, *INTEGERS, torch.bool)

UNARY = (
    "abs acos acosh angle asin asinh atan atanh bitwise_not ceil clone cos cosh deg2rad digamma erf erfc erfinv exp "
    "exp2 expm1 fix flatten floor frac i0 isfinite isinf isnan lgamma log log10 log1p log2 logical_not logit "
    "nan_to_num neg positive rad2deg ravel reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt "
    "square tan tanh trunc"
).split()
ACTIVATIONS = (
    "celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softsign "
    "tanhshrink"
).split()
UNARY_INPLACE = (
    "abs_ ceil_ cos_ erf_ exp_ expm1_ floor_ frac_ log1p_ logical_not_ neg_ nan_to_num_ relu_ round_ rsqrt_ sigmoid_ "
    "sign_ sin_ sqrt_ square_ tanh_ trunc_ zero_ conj_physical_ sgn_"
).split()
BINARY = (
    "add atan2 bitwise_and bitwise_or bitwise_xor copysign div eq floor_divide fmax fmin fmod ge gt heaviside hypot "
    "le logaddexp logical_and logical_or logical_xor lt maximum minimum mul ne nextafter pow remainder sub "
    "true_divide xlogy isclose"
).split()
TAKE_SCALARS = "add sub mul div eq lt pow maximum atan2 remainder bitwise_and".split()
BINARY_INPLACE = (
    "add_ sub_ mul_ div_ pow_ fmod_ remainder_ bitwise_and_ bitwise_xor_ logical_or_ atan2_ copysign_ eq_ lt_ copy_ "
    "floor_divide_"
).split()
REDUCTIONS = (
    "all amax amin any argmax argmin count_nonzero logsumexp mean nansum norm prod std sum var softmax log_softmax "
    "cumsum cumprod logcumsumexp median max min mode sort argsort unbind cummax cummin nanmedian aminmax"
).split()
LEFT_OUT = (
    # Uninitialised memory.
    "resize_", "resize_as_", "linalg.lstsq",
    # On the CPU only, PyTorch computes ldexp in another way (aten/src/ATen/native/BinaryOps.cpp), and checks the values
    # of one_hot (Onehot.cpp). tensor_split takes its indices on the CPU only (TensorShape.cpp).
    "ldexp", "nn.functional.one_hot", "tensor_split",
)  # fmt: skip
WITHOUT_KEEPDIM = (
    "softmax log_softmax cumsum cumprod logcumsumexp sort argsort unbind cummax cummin count_nonzero".split()
)


def _is_inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def literal(value: Any) -> str | None:
    """Python source for a plain value, or None if there is none."""
    if isinstance(value, (list, tuple)):
        parts = [literal(part) for part in value]
        if any(part is None for part in parts):
            return None
        inner = ", ".join(map(str, parts))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(parts) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, slice):
        return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
    if isinstance(value, torch.Size):
        return literal(tuple(value))
    if value is Ellipsis:
        return "..."
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.memory_format)):
        return repr(value)
    return None


@functools.cache
def _database() -> list[tuple[str, Any]]:
    """The operators of `op_db` that can be called by their name below `torch`, without variants and LEFT_OUT."""
    found = []
    for op in op_db:
        name = f"torch.{op.name}"
        try:
            function = functools.reduce(getattr, op.name.split("."), torch)
        except AttributeError:
            continue
        left_out = "empty" in op.name or op.name in LEFT_OUT
        if callable(function) and not op.variant_test_name and not left_out and op.supported_dtypes("cpu"):
            found.append((name, op))
    return found


class Writer:
    """Writes the next line of a program for `names`, its namespace on the CPU.

    Leaves PyTorch's generators of the CPU and of `device` as they were, so a program draws the same numbers when its
    lines run again.
    """

    def __init__(self, draw: random.Random, names: dict[str, Any], device: str) -> None:
        self._draw = draw
        self._device_type = torch.device(device).type
        self._devices = [] if self._device_type == "cpu" else [0]
        self._names = names
        self._numbers = itertools.count(1)

    # ---- What there is

    def _tensors(self, suits: Callable[[Tensor], bool] = lambda tensor: True) -> list[str]:
        def serves(value: Any) -> bool:
            # If the base of a view was written to, reading a property of the view may raise.
            return isinstance(value, Tensor) and outcome(lambda: suits(value)) is True

        return [name for name, value in self._names.items() if name[0] == "t" and name[1:].isdigit() and serves(value)]

    def _hosts(self) -> list[str]:
        return [name for name in self._names if name[0] == "c" and name[1:].isdigit()]

    def _pick(self, suits: Callable[[Tensor], bool] = lambda tensor: True) -> str:
        """The name of a tensor that `suits`, more often a recent one. Leaves out large tensors, because their outer
        products would be too large to compare. Raises LookupError if there is none."""
        found = self._tensors(lambda t: t.numel() <= 4096 and suits(t))
        if not found:
            raise LookupError
        return found[-1 - min(int(self._draw.expovariate(0.4)), len(found) - 1)]

    def _of(self, name: str) -> Tensor:
        value: Tensor = self._names[name]
        return value

    def _new(self, kind: str = "t") -> str:
        return f"{kind}{next(self._numbers)}"

    def _partner(self, name: str) -> str:
        """Something that broadcasts with a tensor: another tensor, itself, or a number."""
        shape = self._of(name).shape

        def broadcasts(other: Tensor) -> bool:
            pairs = zip(reversed(shape), reversed(other.shape), strict=False)
            return all(a == b or 1 in (a, b) for a, b in pairs)

        choice = self._draw.random()
        if choice < 0.2:
            return self._number()
        return self._pick(broadcasts)

    def _number(self) -> str:
        return self._draw.choice(["0", "1", "2", "-1", "3", "0.5", "-1.5", "2.0", "True", "1j", "float('inf')", "0.0"])

    def _dim(self, name: str) -> int:
        dims = self._of(name).dim()
        return self._draw.randrange(-dims, dims) if dims else 0

    def _shape(self, most: int = 4) -> tuple[int, ...]:
        sizes = [0, 1, 1, 2, 2, 3, 3, 4, 5, 8, 17]
        return tuple(self._draw.choice(sizes) for _ in range(self._draw.randrange(most + 1)))

    def _dtype(self) -> torch.dtype:
        return self._draw.choice(DTYPES)

    # ---- Lines

    def make(self) -> str:
        shape = self._draw.choice([self._shape(), (3, 4), (4, 3), (2, 3, 4), (4, 4)])
        arguments = f"{shape}, {self._dtype()}, {self._draw.randrange(1000)}"
        if self._draw.random() < 0.3:
            return f"{self._new()} = make({shape}, {self._draw.choice(FLOATS)}, 7).requires_grad_()"
        return f"{self._new()} = make({arguments})"

    def factory(self) -> str:
        shape, dtype, n = self._shape(3), self._dtype(), self._draw.randrange(1, 12)
        expression = self._draw.choice([
            f"torch.zeros({shape}, dtype={dtype}, device=DEVICE)",
            f"torch.ones({shape}, dtype={dtype}, device=DEVICE)",
            f"torch.full({shape}, 2, dtype={dtype}, device=DEVICE)",
            f"torch.arange({n}, dtype={dtype}, device=DEVICE)",
            f"torch.linspace(-1, 1, {n}, device=DEVICE)",
            f"torch.eye({n}, dtype={dtype}, device=DEVICE)",
            f"torch.rand({shape}, device=DEVICE)",
            f"torch.randn({shape}, dtype={dtype}, device=DEVICE)",
            f"torch.randint(-3, 5, {shape}, device=DEVICE)",
            f"torch.randperm({n}, device=DEVICE)",
            f"torch.empty({shape}, dtype={dtype}, device=DEVICE).fill_(1)",
            f"torch.tensor({n}.5, dtype={dtype}, device=DEVICE)",
            f"torch.tril_indices(3, {n}, device=DEVICE)",
            f"torch.hann_window({n}, device=DEVICE)",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def like(self) -> str:
        x = self._pick()
        function = self._draw.choice(["zeros_like", "ones_like", "rand_like", "randn_like"])
        options = self._draw.choice(["", f", dtype={self._dtype()}", ", memory_format=torch.contiguous_format"])
        return f"{self._new()} = torch.{function}({x}{options})"

    def unary(self) -> str:
        x = self._pick()
        if self._draw.random() < 0.25:
            return f"{self._new()} = F.{self._draw.choice(ACTIVATIONS)}({x})"
        return f"{self._new()} = torch.{self._draw.choice(UNARY)}({x})"

    def unary_inplace(self) -> str:
        return f"{self._pick()}.{self._draw.choice(UNARY_INPLACE)}()"

    def binary(self) -> str:
        x = self._pick()
        scalars = [name for name in self._hosts() if self._of(name).dim() == 0]
        if scalars and self._draw.random() < 0.2:  # operators take one 0-dim CPU tensor beside tensors of the device
            return f"{self._new()} = torch.{self._draw.choice(TAKE_SCALARS)}({x}, {self._draw.choice(scalars)})"
        y = self._partner(x)
        x, y = self._draw.choice([(x, y), (x, y), (y, x)])
        return f"{self._new()} = torch.{self._draw.choice(BINARY)}({x}, {y})"

    def binary_inplace(self) -> str:
        x = self._pick()
        return f"{x}.{self._draw.choice(BINARY_INPLACE)}({self._partner(x)})"

    def ternary(self) -> str:
        x = self._pick()
        y, z = self._partner(x), self._partner(x)
        expression = self._draw.choice([
            f"torch.addcmul({x}, {y}, {z}, value=2)",
            f"torch.addcdiv({x}, {y}, {z})",
            f"torch.lerp({x}, {y}, {z})",
            f"torch.where({x} > 0, {y}, {z})",
            f"torch.clamp({x}, {y}, {z})",
            f"{x}.masked_fill({y} == 0, {self._number()})",
            f"torch.add({x}, {y}, alpha=2)",
            f"torch.sub({x}, {y}, alpha=-1)",
            f"torch.div({x}, {y}, rounding_mode='floor')",
            f"torch.clamp({x}, -1, 1)",
            f"torch.bucketize({x}, torch.arange(5, device=DEVICE))",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def write(self) -> str:
        """A change in place: of a part, through an index, of the whole tensor, or of its shape or storage."""
        x = self._pick(lambda t: t.dim() > 0 and t.numel() > 0)
        dim, size = self._dim(x), self._of(x).size(0)
        y = self._partner(x)
        # PyTorch assigns a 0-dim tensor with fill_() on the CPU, elsewhere with copy_() (copy_to in TensorIndexing.h).
        value = f"{y}.reshape(1)" if y[0] == "t" and self._of(y).dim() == 0 else y
        indices = [self._draw.randrange(size) for _ in range(2)]
        index = f"torch.tensor({indices}, device=DEVICE)"
        anywhere = f"torch.tensor({indices}, device={self._draw.choice(['DEVICE', repr('cpu')])})"
        return self._draw.choice([
            f"{x}[{self._draw.randrange(size)}] = {self._number()}",
            f"{x}[::2] = {value}",
            f"{x}[{x} > 0] = {self._number()}",
            f"{x}[{anywhere}] = {self._number()}",
            f"{x}.index_fill_(0, {index}, 2)",
            f"{x}.index_add_(0, {index}, {x}[:2])",
            f"{x}.index_copy_(0, {index}, {x}[:2])",
            f"{x}.index_put_(({anywhere},), {x}[0], accumulate=True)",
            f"{x}.masked_fill_({x} == {self._number()}, {self._number()})",
            f"{x}.scatter_({dim}, torch.zeros_like({x}, dtype=torch.int64), {x})",
            f"{x}.scatter_add_({dim}, torch.zeros_like({x}, dtype=torch.int64), {x}.clone())",
            f"{x}.fill_({self._number()})",
            f"{x}.fill_diagonal_({self._number()})",
            f"{x}.clamp_(-1, 1)",
            f"{x}.copy_({y})",
            f"{x}.uniform_()",
            f"{x}.normal_()",
            f"{x}.random_(5)",
            f"{x}.bernoulli_(0.5)",
            f"{x}.exponential_()",
            f"{x}.cumsum_({dim})",
            f"{x}.tril_()",
            f"{x}.add_({y}, alpha=2)",
            f"{x}.addcmul_({y}, {y})",
            f"{x}.lerp_({x}, 0.5)",
            f"{x}.masked_scatter_({x} > 0, {x}.clone())",
            f"{x}.squeeze_()",
            f"{x}.unsqueeze_({dim})",
            f"{x}.transpose_(0, {dim})",
            f"{x}.t_()",
            f"{x}.detach_()",
            f"{x}.resize_(1)",
            f"{x}.set_({y})",
            f"{x}.data = {y}",
            f"torch._foreach_add_([{x}, {x}], 1)",
            f"torch._foreach_mul_([{x}], [{y}])",
        ])  # fmt: skip

    def out(self) -> str:
        x, target = self._pick(), self._pick()
        y = self._partner(x)
        if self._draw.random() < 0.4:
            target = self._pick(lambda t: t.shape == self._of(x).shape)
        return self._draw.choice([
            f"torch.{self._draw.choice(BINARY[:-2])}({x}, {y}, out={target})",
            f"torch.{self._draw.choice(UNARY[:10])}({x}, out={target})",
            f"torch.sum({x}, {self._dim(x)}, out={target})",
            f"torch.cumsum({x}, {self._dim(x)}, out={target})",
            f"torch.cat([{x}, {x}], {self._dim(x)}, out={target})" if target != x else f"torch.neg({x}, out={x})",
            f"torch.mm({x}, {x}, out={target})",
            f"torch.sort({x}, out=({target}, torch.empty(0, dtype=torch.int64, device=DEVICE)))",
            f"torch.index_select({x}, 0, torch.zeros(1, dtype=torch.int64, device=DEVICE), out={target})",
            f"torch.arange(4, out={target})",
            f"torch.where({x} > 0, {x}, {y}, out={target})",
            f"torch.clamp({x}, 0, out={target})",
            f"torch.nonzero({x}, out={target})",
        ])  # fmt: skip

    def view(self) -> str:
        x = self._pick()
        t = self._of(x)
        dim, other = self._dim(x), self._dim(x)
        order = list(range(t.dim()))
        self._draw.shuffle(order)
        size = t.size(dim) if t.dim() else 1
        start = self._draw.randrange(size + 1)
        # The elements of memory from the first element to the last one: memory beyond them may not be initialised.
        span = t.numel() and 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
        expression = self._draw.choice([
            f"{x}.transpose({dim}, {other})",
            f"{x}.permute({order})",
            f"{x}.movedim({dim}, {other})",
            f"{x}.narrow({dim}, {start}, {self._draw.randrange(size - start + 1)})",
            f"{x}.select({dim}, {min(start, max(size - 1, 0))})",
            f"{x}.unsqueeze({dim})",
            f"{x}.squeeze()",
            f"{x}.unsqueeze(0).expand({(self._draw.randrange(1, 4), *t.shape)})",
            f"{x}.reshape(-1)",
            f"{x}.view(-1)",
            f"{x}.view({(*t.shape, 1)})",
            f"{x}.flatten()",
            f"{x}[{start}:]",
            f"{x}[..., ::{self._draw.randrange(1, 4)}]",
            f"{x}[None]",
            f"{x}.diagonal(0, {dim}, {other})",
            f"{x}.unfold({dim}, {max(size // 2, 1)}, 1)",
            f"{x}.mT",
            f"{x}.T",
            f"{x}.real",
            f"{x}.imag",
            f"{x}.conj()",
            f"{x}.resolve_conj()",
            f"torch.view_as_real({x})",
            f"torch.view_as_complex({x})",
            f"torch._neg_view({x})",
            f"{x}.view(torch.uint8)",
            f"{x}.view({self._dtype()})",
            f"{x}.as_strided(({min(span, 3)},), (1,))",
            f"{x}.as_strided((2, {min(span, 2)}), (0, 1))",
            f"{x}.chunk(2, {dim})[0]",
            f"{x}.split(2, {dim})[-1]",
            f"{x}.unbind({dim})[0]",
            f"{x}.detach()",
            f"{x}.view_as({x})",
            f"{x}.swapaxes({dim}, {other})",
            f"{x}.expand_as({x})",
            f"torch.atleast_3d({x})",
            f"{x}.unflatten({dim}, (-1, 1))",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def convert(self) -> str:
        x = self._pick()
        expression = self._draw.choice([
            f"{x}.to({self._dtype()})",
            f"{x}.to({self._dtype()}, copy=True)",
            f"{x}.to(DEVICE)",
            f"{x}.contiguous()",
            f"{x}.contiguous(memory_format=torch.channels_last)",
            f"{x}.to(memory_format=torch.channels_last)",
            f"{x}.clone()",
            f"{x}.clone(memory_format=torch.contiguous_format)",
            f"{x}.type_as({self._pick()})",
            f"{x}.half()",
            f"{x}.double()",
            f"{x}.bool()",
            f"{x}.new_zeros({self._shape(2)})",
            f"{x}.new_full({self._shape(2)}, 3)",
            f"{x}.detach().to('cpu', copy=True).to(DEVICE, copy=True)",
            f"torch.complex({x}, {x})",
            f"{x}.to_sparse().to_dense()",
            f"{x}.resolve_neg()",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def host(self) -> str:
        """A copy to or from the host, a write to a tensor of the host, or a value that the host reads."""
        x = self._pick()
        hosts = self._hosts()
        if hosts and self._draw.random() < 0.5:
            c = self._draw.choice(hosts)
            return self._draw.choice([
                f"{self._new()} = {c}.to(DEVICE, copy=True)",
                f"{self._new()} = {c}.to(DEVICE, {self._dtype()}, non_blocking=True, copy=True)",
                f"{self._new()} = torch.tensor({c}.tolist(), device=DEVICE)",
                f"{x}.copy_({c})",
                f"{x}.copy_({c}, non_blocking=True)",
                f"{c}.copy_({x})",
                f"{c}.add_(1)",
            ])  # fmt: skip
        return self._draw.choice([
            f"{self._new('c')} = {x}.detach().to('cpu', copy=True)",
            f"{self._new('c')} = {x}.detach().sum().to('cpu', copy=True)",
            f"{self._new('c')} = {x}.detach().to('cpu', {self._dtype()}, copy=True)",
            f"{self._new('v')} = {x}.tolist()",
            f"{self._new('v')} = {x}.sum().item()",
            f"{self._new('v')} = bool(({x} == {x}).all())",
            f"{self._new('v')} = torch.equal({x}, {self._pick()})",
            f"{self._new('v')} = len({x})",
            f"{self._new('v')} = {x}.untyped_storage().nbytes()",
            f"{self._new('v')} = {x}.is_contiguous()",
            f"{self._new('v')} = {x}.is_set_to({self._pick()})",
            f"{self._new('v')} = repr({x}.detach().cpu())",
        ])  # fmt: skip

    def reduction(self) -> str:
        x = self._pick()
        name = self._draw.choice(REDUCTIONS)
        if name in ("sort", "argsort"):
            return f"{self._new()} = torch.{name}({x}, dim={self._dim(x)}, stable=True)"
        if name in WITHOUT_KEEPDIM or self._draw.random() < 0.6:
            arguments = f"{x}, dim={self._dim(x)}"
        elif self._draw.random() < 0.5:
            arguments = f"{x}, dim={self._dim(x)}, keepdim=True"
        else:
            arguments = x
        return f"{self._new()} = torch.{name}({arguments})"

    def product(self) -> str:
        x = self._pick(lambda t: t.dim() > 0)
        last = self._of(x).size(-1)
        y = self._pick(lambda t: t.dim() > 0 and t.size(-2 if t.dim() > 1 else 0) == last)
        w = self._pick(lambda t: t.dim() == 2 and t.size(1) == last) if self._draw.random() < 0.3 else None
        if w:
            return f"{self._new()} = F.linear({x}, {w})"
        expression = self._draw.choice([
            f"{x} @ {y}",
            f"torch.matmul({x}, {y})",
            f"torch.mm({x}, {y})",
            f"torch.einsum('...i,...i->...', {x}, {x})",
            f"torch.addmm({x}, {x}, {y})",
            f"torch.outer({x}, {y})",
            f"torch.tensordot({x}, {y}, 1)",
            f"torch.bmm({x}, {y})",
            f"torch.kron({x}, {y})",
            f"torch.cdist({x}, {x})",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def network(self) -> str:
        x = self._pick(lambda t: t.dim() > 0)
        dtype, shape = self._of(x).dtype, self._of(x).shape
        channels = shape[-2] if len(shape) > 1 else shape[0]
        image = f"{x}.reshape(1, 1, -1, {shape[-1]})"
        seed = self._draw.randrange(100)
        # The bilinear interpolation of uint8 reads beyond the input if a dimension of size 1 has another stride than 1.
        mode = "nearest" if dtype == torch.uint8 else "bilinear"
        expression = self._draw.choice([
            f"F.layer_norm({x}, {tuple(shape[-1:])})",
            f"F.layer_norm({x}, {tuple(shape[-1:])}, weight=make({tuple(shape[-1:])}, {dtype}, {seed}))",
            f"F.conv1d({x}, make((2, {channels}, 2), {dtype}, {seed}))",
            f"F.conv2d({image}, make((2, 1, 2, 2), {dtype}, {seed}), make((2,), {dtype}, {seed}), padding=1)",
            f"F.conv_transpose2d({image}, make((1, 2, 2, 2), {dtype}, {seed}))",
            f"F.max_pool2d({image}, 2)",
            f"F.avg_pool2d({image}, 2)",
            f"F.adaptive_avg_pool2d({image}, 2)",
            f"F.batch_norm({image}, None, None, training=True)",
            f"F.group_norm({image}, 1)",
            f"F.dropout({x}, 0.5)",
            f"F.softmax({x}, -1)",
            f"F.gelu({x}, approximate='tanh')",
            f"F.interpolate({image}, scale_factor=2, mode='{mode}')",
            f"F.pad({x}, (1, 2))",
            f"F.pad({image}, (1, 1), mode='reflect')",
            f"F.mse_loss({x}, {x} + 1).clone()",  # on the CPU the loss has a storage as large as the differences
            f"F.cross_entropy({x}, {x}.softmax(-1))",
            f"F.scaled_dot_product_attention({image}, {image}, {image})",
            f"F.scaled_dot_product_attention({image}, {image}, {image}, is_causal=True)",
            f"F.embedding(torch.tensor([0, 0], device=DEVICE), {x})",
            f"F.normalize({x})",
            f"F.fold(F.unfold({image}, 2), {(max(1, math.prod(shape[:-1])), shape[-1])}, 2)",
            f"F.grid_sample({image}, make((1, 2, 2, 2), {dtype}, {seed}), align_corners=False)",
            f"F.prelu({x}, make((1,), {dtype}, {seed}))",
            f"F.glu({x})",
            f"F.rms_norm({x}, {tuple(shape[-1:])})",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def index(self) -> str:
        x = self._pick()
        t, dim = self._of(x), self._dim(x)
        size = t.size(dim) if t.dim() else 1
        indices = [self._draw.randrange(-size, size) if size else 0 for _ in range(3)]
        index = f"torch.tensor({indices}, device={self._draw.choice(['DEVICE', 'DEVICE', repr('cpu')])})"
        forward = f"torch.tensor({[abs(i) % max(size, 1) for i in indices]}, device=DEVICE)"
        y = self._partner(x)
        expression = self._draw.choice([
            f"{x}[{index}]",
            f"{x}[..., {index}]",
            f"{x}[{x} > 0]",
            f"{x}.index_select({dim}, {forward})",
            f"{x}.gather({dim}, torch.zeros_like({x}, dtype=torch.int64))",
            f"torch.take({x}, {forward})",
            f"torch.cat([{x}, {x}], {dim})",
            f"torch.cat([{x}, {y}], {dim})",
            f"torch.stack([{x}, {x}], {dim})",
            f"torch.flip({x}, [{dim}])",
            f"torch.roll({x}, 1, {dim})",
            f"torch.repeat_interleave({x}, 2, {dim})",
            f"{x}.repeat({[2] * max(t.dim(), 1)})",
            f"torch.tile({x}, (2,))",
            f"torch.nonzero({x})",
            f"torch.masked_select({x}, {x} != 0)",
            f"torch.tril({x})",
            f"torch.diag({x})",
            f"torch.topk({x}, 1, {dim}).values",
            f"torch.unique({x})",
            f"torch.searchsorted({x}, {y})",
            f"torch.diff({x})",
            f"torch.meshgrid({x}, {x}, indexing='ij')[0]",
            f"torch.scatter({x}, {dim}, torch.zeros_like({x}, dtype=torch.int64), {x})",
            f"torch.index_add({x}, {dim}, {forward}, {x}.repeat_interleave(3, {dim}))",
            f"torch.bincount({x})",
            f"torch.histc({x}, 4)",
            f"torch.fft.fft({x})",
            f"torch.fft.rfft2({x})",
            f"torch.linalg.norm({x})",
            f"torch.linalg.inv({x})",
            f"torch.linalg.qr({x}).R",
            f"torch.multinomial({x}, 2)",
            f"torch.bernoulli({x})",
            f"torch.normal({x}, 1.0)",
            f"torch.poisson({x})",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def several(self) -> str:
        """An operator with several results under one name."""
        x = self._pick()
        dim = self._dim(x)
        expression = self._draw.choice([
            f"torch.unbind({x}, {dim})",
            f"torch.split({x}, 2, {dim})",
            f"torch.max({x}, {dim})",
            f"torch.std_mean({x})",
            f"torch.var_mean({x}, {dim})",
            f"torch.topk({x}, 2, {dim})",
            f"torch.frexp({x})",
            f"torch.unique({x}, return_inverse=True, return_counts=True)",
            f"torch.linalg.svd({x})",
            f"torch.linalg.eigh({x})",
            f"torch._foreach_add([{x}, {x}], 2)",
            f"torch._foreach_mul([{x}, {x}], [{x}, {x}])",
            f"torch._foreach_norm([{x}, {x}])",
            f"torch.broadcast_tensors({x}, {self._partner(x)})",
            f"torch.cummax({x}, {dim})",
        ])  # fmt: skip
        return f"{self._new()} = {expression}"

    def database(self) -> str:
        """A call from PyTorch's operator database.

        A tensor of the program may replace one of the sample with the same shape and dtype. Small integer tensors stay
        those of the sample, because they may be indices.
        """
        name, op = self._draw.choice(_database())
        dtype = self._draw.choice(sorted(op.supported_dtypes("cpu"), key=str))
        try:
            # The numbers of a sample come from the CPU's generator. Before each sample, PyTorch seeds all devices.
            with torch.random.fork_rng(devices=self._devices, device_type=self._device_type):
                samples = list(itertools.islice(op.sample_inputs("cpu", dtype), self._draw.randrange(1, 8)))
        except Exception:
            raise LookupError from None
        if not samples:
            raise LookupError
        sample = samples[-1]

        def source(value: Any) -> str:
            if isinstance(value, Tensor):
                return self._source(value)
            if isinstance(value, (list, tuple)) and any(isinstance(part, Tensor) for part in value):
                return f"[{', '.join(source(part) for part in value)}]"
            text = "DEVICE" if value in ("cpu", torch.device("cpu")) else literal(value)
            if text is None:
                raise LookupError
            return text

        arguments = [source(value) for value in (sample.input, *sample.args)]
        arguments += [f"{key}={source(value)}" for key, value in sample.kwargs.items()]
        if (
            not any("make" in argument or argument[0] == "t" for argument in arguments)
            and "device" not in sample.kwargs
        ):
            raise LookupError  # a factory without a device
        return f"{self._new()} = {name}({', '.join(arguments)})"

    def _source(self, tensor: Tensor) -> str:
        if tensor.layout is not torch.strided or tensor.numel() > 2000 or tensor.is_quantized:
            raise LookupError
        if not _is_inexact(tensor) and tensor.numel() <= 64:  # indices: the values matter
            return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype}, device=DEVICE)"
        there = self._tensors(lambda t: t.shape == tensor.shape and t.dtype == tensor.dtype)
        if there and self._draw.random() < 0.6:
            return self._draw.choice(there)
        return f"make({tuple(tensor.shape)}, {tensor.dtype}, {self._draw.randrange(1000)})"

    def gradient(self) -> str:
        output = self._pick(lambda t: t.requires_grad)
        total = f"{output}.abs().sum()" if self._of(output).is_complex() else f"{output}.sum()"
        leaves = self._tensors(lambda t: t.requires_grad and t.is_leaf)
        if not leaves or self._draw.random() < 0.3:
            return f"{total}.backward(retain_graph=True)"
        inputs = ", ".join(leaves)
        if self._draw.random() < 0.25:
            return f"{self._new()} = torch.autograd.grad({total}, [{inputs}], allow_unused=True, create_graph=True)"
        return f"{self._new()} = torch.autograd.grad({total}, [{inputs}], allow_unused=True, retain_graph=True)"

    def differentiable(self) -> str:
        x = self._pick(lambda t: t.is_leaf and _is_inexact(t))
        return self._draw.choice([
            f"{x}.requires_grad_()",
            f"{self._new()} = {x}.detach().clone().requires_grad_()",
            f"{x}.grad = None",
        ])  # fmt: skip

    def forget(self) -> str:
        return f"del {self._draw.choice(self._tensors() or ['t0'])}"

    def no_grad(self) -> str:
        line = self._draw.choice([self.unary_inplace, self.binary_inplace, self.write, self.out])()
        return f"with torch.no_grad(): {line}"

    # ---- A line of any kind

    KINDS = (
        ("make", 8), ("factory", 4), ("like", 2), ("unary", 8), ("unary_inplace", 4), ("binary", 10),
        ("binary_inplace", 6), ("ternary", 4), ("write", 10), ("out", 5), ("view", 14), ("convert", 6), ("host", 4),
        ("reduction", 8), ("product", 5), ("network", 7), ("index", 8), ("several", 2), ("database", 8),
        ("gradient", 6), ("differentiable", 2), ("forget", 2), ("no_grad", 3),
    )  # fmt: skip

    def line(self) -> str:
        """The next line."""
        names, weights = zip(*self.KINDS, strict=True)
        while True:
            kind = "make" if not self._tensors() else self._draw.choices(names, weights)[0]
            try:
                line: str = getattr(self, kind)()
            except LookupError:
                continue
            return line
