"""The suite of what the operator database leaves out: sparse, nested and quantized tensors made in every way, packed
sequences, and attention with each combination of mask, dropout and grouped heads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from comparison import leaves
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import make_tensor
from torch_conformance.databases import Sample, Suite, Variant, differentiate

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NUMBERS = (*FLOATS, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.uint8)


@dataclass(frozen=True)
class Entry:
    """A function of tensors of these shapes. Its last argument is the device."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    differentiable: bool = True


def _samples(entry: Entry, dtype: torch.dtype) -> Iterator[Sample]:
    torch.manual_seed(3)
    for contiguous in (True, False):
        tensors = [
            make_tensor(
                shape, dtype=dtype, device="cpu", low=-2, high=2, noncontiguous=not contiguous and len(shape) > 0
            )
            if dtype is not torch.uint8
            else make_tensor(shape, dtype=dtype, device="cpu", low=0, high=3)
            for shape in entry.shapes
        ]
        yield Sample(None, tuple(tensors))


def _forward(entry: Entry, sample: Sample) -> Any:
    return entry.function(*sample.args, sample.device)


def _backward(entry: Entry, sample: Sample) -> Any:
    inputs = [tensor.requires_grad_() for tensor in sample.args]
    outputs = leaves(entry.function(*inputs, sample.device))  # an entry with parameters returns their gradients, too
    return outputs, differentiate(outputs, inputs)


ENTRIES: dict[str, Entry] = {}

# ---- Sparse ------------------------------------------------------------------------------------------------------

_FROM_DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda t: t.to_sparse(),
    "hybrid": lambda t: t.to_sparse(1),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
}


def _holes(t: Tensor) -> Tensor:
    return t * (torch.arange(t.numel(), device=t.device).reshape(t.shape) % 3 > 0).to(t.dtype)


_SPARSE_UNARY: dict[str, Callable[[Tensor], Any]] = {
    "to_dense": lambda s: s.to_dense(),
    "values": lambda s: s.coalesce().values() if s.layout is torch.sparse_coo else s.values(),
    "transpose": lambda s: s.transpose(0, 1).to_dense(),
    "neg": lambda s: -s,
    "abs": lambda s: s.abs(),
    "mul_scalar": lambda s: s * 3,
    "add": lambda s: s + s,
    "mul": lambda s: s * s,
    "sum": lambda s: s.sum(),
    "sum_dim": lambda s: torch.sparse.sum(s, 0),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "clone": lambda s: s.clone(),
    "zeros_like": lambda s: torch.zeros_like(s),
    "to_float64": lambda s: s.to(torch.float64),
    "nnz": lambda s: s._nnz(),
    "select": lambda s: s[1],
    "narrow": lambda s: s.narrow(0, 1, 2),
    "print": lambda s: repr(s.detach().cpu()),
    "sin_": lambda s: s.clone().sin_(),
    "zero_": lambda s: s.clone().zero_(),
    "is_coalesced": lambda s: s.is_coalesced(),
}
_SPARSE_BINARY: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mm": lambda s, d: s @ d,
    "mv": lambda s, d: s @ d[:, 0],
    "sparse.mm": lambda s, d: torch.sparse.mm(s, d),
    "mm of two": lambda s, d: torch.sparse.mm(s, s),
    "addmm": lambda s, d: torch.addmm(d, s, d, beta=2, alpha=3),
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s, d, d),
    "add dense": lambda s, d: d + s,
    "mul dense": lambda s, d: s * d,
    "sparse_mask": lambda s, d: d.sparse_mask(s),
    "copy_": lambda s, d: torch.zeros_like(s).copy_(s),
    "div": lambda s, d: s / 2,
}
_CONVERSIONS = {name: make for name, make in _FROM_DENSE.items() if name != "hybrid"}

for _layout, _make in _FROM_DENSE.items():
    for _name, _unary in _SPARSE_UNARY.items():
        ENTRIES[f"{_layout} {_name}"] = Entry(
            lambda t, device, make=_make, f=_unary: f(make(_holes(t))), ((4, 4),), NUMBERS
        )
    for _name, _binary in _SPARSE_BINARY.items():
        ENTRIES[f"{_layout} {_name}"] = Entry(
            lambda t, d, device, make=_make, f=_binary: f(make(_holes(t)), d), ((4, 4), (4, 4)), NUMBERS
        )
    for _name, _convert in _CONVERSIONS.items():
        ENTRIES[f"{_layout} to {_name}"] = Entry(
            lambda t, device, make=_make, convert=_convert: convert(make(_holes(t))), ((4, 4),), NUMBERS
        )


def _constructed(layout: torch.layout) -> Callable[[Tensor, str], Any]:
    def make(values: Tensor, device: str) -> Tensor:
        compressed, plain = torch.tensor([0, 1, 3], device=device), torch.tensor([0, 0, 1], device=device)
        blocks = values.reshape(3, 1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else values
        if layout is torch.sparse_coo:
            index = torch.tensor([[0, 1, 1], [0, 0, 0]], device=device)
            return torch.sparse_coo_tensor(index, values, (2, 2)).coalesce()
        return torch.sparse_compressed_tensor(compressed, plain, blocks, (2, 2), layout=layout)

    return make


for _layout_ in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
    ENTRIES[f"constructed {_layout_}"] = Entry(_constructed(_layout_), ((3,),), NUMBERS)


# ---- Nested ------------------------------------------------------------------------------------------------------


def _nested(a: Tensor, b: Tensor, layout: torch.layout) -> Tensor:
    return torch.nested.as_nested_tensor([a, b], layout=layout)


_NESTED: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda n: n,
    "unbind": lambda n: n.unbind(),
    "relu": lambda n: n.relu(),
    "gelu": lambda n: F.gelu(n),
    "mul": lambda n: n * n,
    "add scalar": lambda n: n * 2.5,
    "softmax": lambda n: n.softmax(-1),
    "layer_norm": lambda n: F.layer_norm(n, (n.size(-1),)),
    "padded": lambda n: torch.nested.to_padded_tensor(n, 0.5),
    "linear": lambda n: F.linear(n, torch.ones(2, n.size(-1), device=n.device, dtype=n.dtype)),
    "matmul": lambda n: n @ torch.ones(n.size(-1), 2, device=n.device, dtype=n.dtype),
    "bmm with itself": lambda n: n @ n.transpose(-1, -2),
    "transpose": lambda n: n.transpose(-1, -2),
    "sum": lambda n: n.sum(-1, keepdim=True),
    "clone": lambda n: n.clone(),
    "contiguous": lambda n: n.contiguous(),
    "to float64": lambda n: n.to(torch.float64),
    "chunk": lambda n: n.chunk(2, -1),
    "select": lambda n: n[1],
    "zeros_like": lambda n: torch.zeros_like(n),
    "masked_fill": lambda n: n.masked_fill(n > 0, 1.0),
    "dropout": lambda n: F.dropout(n, 0.5),
    "mean": lambda n: n.mean(1) if n.layout is torch.jagged else n.mean(),
}
for _nested_layout in (torch.strided, torch.jagged):
    for _name, _unary in _NESTED.items():
        ENTRIES[f"nested {_nested_layout} {_name}"] = Entry(
            lambda a, b, device, layout=_nested_layout, f=_unary: f(_nested(a, b, layout)), ((3, 4), (2, 4))
        )


# ---- Quantized ---------------------------------------------------------------------------------------------------


def _per_tensor(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda t: torch.quantize_per_tensor(t, 0.05, 3, dtype)


def _per_channel(dtype: torch.dtype, axis: int) -> Callable[[Tensor], Tensor]:
    def quantize(t: Tensor) -> Tensor:
        scales = torch.linspace(0.02, 0.1, t.size(axis), dtype=torch.float64, device=t.device)
        zeros = torch.arange(t.size(axis), device=t.device) % 3
        return torch.quantize_per_channel(t, scales, zeros, axis, dtype)

    return quantize


_QUANTIZED: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"per tensor {dtype}": _per_tensor(dtype) for dtype in (torch.quint8, torch.qint8, torch.qint32)},
    "per channel 0": _per_channel(torch.qint8, 0),
    "per channel 1": _per_channel(torch.quint8, 1),
    "dynamic": lambda t: torch.quantize_per_tensor_dynamic(t, torch.quint8, False),
}
_OF_QUANTIZED: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda q: q,
    "int_repr": lambda q: q.int_repr(),
    "dequantize": lambda q: q.dequantize(),
    "q_scale": lambda q: (q.q_scale(), q.q_zero_point()),
    "q_per_channel": lambda q: (q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis()),
    "relu": lambda q: q.relu(),
    "relu_": lambda q: q.clone().relu_(),
    "clamp": lambda q: q.clamp(-0.5, 0.5),
    "transpose": lambda q: q.transpose(0, 1),
    "contiguous": lambda q: q.transpose(0, 1).contiguous(),
    "reshape": lambda q: q.reshape(-1),
    "slice": lambda q: q[1:],
    "select": lambda q: q[1],
    "cat": lambda q: torch.cat([q, q]),
    "clone": lambda q: q.clone(),
    "copy_": lambda q: torch.empty_like(q).copy_(q),
    "copy_ from float": lambda q: torch.empty_like(q).copy_(q.dequantize()),
    "max": lambda q: q.max(),
    "mean": lambda q: q.mean(1),
    "sort": lambda q: q.sort(1),
    "topk": lambda q: q.topk(2, 1),
    "eq": lambda q: q == q,
    "fill_": lambda q: q.clone().fill_(0.25),
    "sigmoid": lambda q: q.sigmoid(),
    "tanh": lambda q: q.tanh(),
    "hardswish": lambda q: torch.ao.nn.quantized.functional.hardswish(q, 0.1, 2),
    "upsample": lambda q: F.interpolate(q.reshape(1, 1, *q.shape), scale_factor=2),
    "avg_pool": lambda q: F.avg_pool2d(q.reshape(1, 1, *q.shape), 2),
    "max_pool": lambda q: F.max_pool2d(q.reshape(1, 1, *q.shape), 2),
    "add": lambda q: torch.ops.quantized.add(q, q, 0.1, 1),
    "mul": lambda q: torch.ops.quantized.mul(q, q, 0.1, 1),
    "item": lambda q: q[1, 1].item(),
    "equal": lambda q: torch.equal(q, q),
    "to cpu": lambda q: q.cpu().int_repr().tolist(),
}
for _kind, _make in _QUANTIZED.items():
    for _name, _unary in _OF_QUANTIZED.items():
        ENTRIES[f"{_kind} {_name}"] = Entry(
            lambda t, device, make=_make, f=_unary: f(make(t)), ((3, 4),), (torch.float32,), differentiable=False
        )


def _quantized_linear(t: Tensor, w: Tensor, device: str) -> Tensor:
    packed = torch.ops.quantized.linear_prepack(_per_tensor(torch.qint8)(w), None)
    return torch.ops.quantized.linear(_per_tensor(torch.quint8)(t), packed, 0.1, 1)


def _dynamic_linear(t: Tensor, w: Tensor, device: str) -> Tensor:
    packed = torch.ops.quantized.linear_prepack(_per_channel(torch.qint8, 0)(w), None)
    return torch.ops.quantized.linear_dynamic(t, packed)


def _fake_quantize(t: Tensor, device: str) -> Any:
    scales = torch.linspace(0.02, 0.1, t.size(0), device=t.device)
    zeros = torch.zeros(t.size(0), dtype=torch.int32, device=t.device)
    return (
        torch.fake_quantize_per_tensor_affine(t, 0.05, 3, 0, 255),
        torch.fake_quantize_per_channel_affine(t, scales, zeros, 0, -128, 127),
        torch.fake_quantize_per_tensor_affine(t, scales[0], zeros[0], -128, 127),
    )


ENTRIES["quantized linear"] = Entry(_quantized_linear, ((3, 4), (2, 4)), (torch.float32,), differentiable=False)
ENTRIES["dynamic quantized linear"] = Entry(_dynamic_linear, ((3, 4), (2, 4)), (torch.float32,), differentiable=False)
ENTRIES["fake_quantize"] = Entry(_fake_quantize, ((3, 4),), (torch.float32, torch.float64))


# ---- Recurrent networks ------------------------------------------------------------------------------------------


def _recurrent(kind: type[nn.RNNBase], packed: bool, **options: Any) -> Callable[..., Any]:
    def run(t: Tensor, device: str) -> Any:
        with torch.random.fork_rng(devices=[]):  # the weights are drawn on the host
            torch.default_generator.manual_seed(4)
            module = kind(4, 6, **options).to(t.dtype)
        module = module.to(device)
        given: Any = t
        if packed:
            given = nn.utils.rnn.pack_padded_sequence(
                t, torch.tensor([5, 2, 3]), batch_first=options.get("batch_first", False), enforce_sorted=False
            )
        output, state = module(given)
        if packed:
            output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=options.get("batch_first", False))
        result = [output, *leaves(state)]
        if not t.requires_grad:
            return result
        return [tensor.detach() for tensor in result], differentiate(result, [*module.parameters(), t])

    return run


# On an accelerator PyTorch adds in another order than on the CPU. In half precision the results would differ.
_EXACT_ENOUGH = (torch.float32, torch.float64)
for _rnn, _packed, _bidirectional, _layers, _batch_first, _bias in itertools.product(
    (nn.RNN, nn.LSTM, nn.GRU), (False, True), (False, True), (1, 2), (False, True), (False, True)
):
    _options = {"bidirectional": _bidirectional, "num_layers": _layers, "batch_first": _batch_first, "bias": _bias}
    _words = [word for word, on in [("packed", _packed), *_options.items()] if on and word != "num_layers"]
    ENTRIES[" ".join([_rnn.__name__, str(_layers), *_words])] = Entry(
        _recurrent(_rnn, _packed, **_options), ((3, 5, 4) if _batch_first else (5, 3, 4),), _EXACT_ENOUGH
    )
ENTRIES["LSTM projected"] = Entry(_recurrent(nn.LSTM, False, proj_size=3), ((5, 3, 4),), _EXACT_ENOUGH)
ENTRIES["LSTM dropout"] = Entry(_recurrent(nn.LSTM, False, num_layers=2, dropout=0.5), ((5, 3, 4),), _EXACT_ENOUGH)
ENTRIES["RNN relu"] = Entry(_recurrent(nn.RNN, False, nonlinearity="relu"), ((5, 3, 4),), _EXACT_ENOUGH)
ENTRIES["GRU without a batch"] = Entry(_recurrent(nn.GRU, False), ((5, 4),), _EXACT_ENOUGH)


# ---- Attention ---------------------------------------------------------------------------------------------------


def _mask(kind: str, q: Tensor, k: Tensor) -> Tensor | None:
    shape = (q.size(-2), k.size(-2))
    hidden = torch.arange(shape[0] * shape[1], device=q.device).reshape(shape) % 3 == 0
    if kind == "boolean":
        return ~hidden
    if kind == "float":
        return torch.zeros(shape, dtype=q.dtype, device=q.device).masked_fill(hidden, -2)
    if kind == "broadcast":
        return (~hidden).expand(q.size(0), 1, *shape)
    if kind == "hidden row":
        return ~hidden & (torch.arange(shape[0], device=q.device) > 0).unsqueeze(1)
    return None


def _attention(kind: str, dropout: float, **options: Any) -> Callable[..., Any]:
    return lambda q, k, v, device: F.scaled_dot_product_attention(
        q, k, v, _mask(kind, q, k), dropout, is_causal=kind == "causal", **options
    )


for _kind, _dropout, _gqa in itertools.product(
    ("no mask", "causal", "boolean", "float", "broadcast", "hidden row"), (0.0, 0.4), (False, True)
):
    _heads = 2 if _gqa else 4
    ENTRIES[f"attention {_kind}{' dropout' if _dropout else ''}{' gqa' if _gqa else ''}"] = Entry(
        _attention(_kind, _dropout, enable_gqa=_gqa), ((2, 4, 5, 8), (2, _heads, 5, 8), (2, _heads, 5, 8))
    )
ENTRIES["attention scale"] = Entry(_attention("no mask", 0.0, scale=0.3), ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)))
ENTRIES["attention other value size"] = Entry(_attention("float", 0.0), ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)))
ENTRIES["attention 3 dimensions"] = Entry(_attention("float", 0.0), ((4, 5, 8), (4, 7, 8), (4, 7, 8)))
ENTRIES["attention long"] = Entry(_attention("causal", 0.0), ((1, 2, 70, 16), (1, 2, 70, 16), (1, 2, 70, 16)))


# ------------------------------------------------------------------------------------------------------------------

SUITE = Suite(
    entries=ENTRIES,
    dtypes=lambda entry: set(entry.dtypes),
    variants={
        "forward": Variant("the function", lambda entry, dtype: True, _samples, _forward),
        "backward": Variant(
            "outputs and gradients",
            lambda entry, dtype: entry.differentiable and (dtype.is_floating_point or dtype.is_complex),
            _samples,
            _backward,
        ),
    },
)
