"""Which operators torch.use_deterministic_algorithms(True) refuses, and of which it warns with warn_only=True."""

from __future__ import annotations

import warnings
from typing import Any

import torch

# {preparation: statements}. Matrix products are rare here: cuBLAS refuses them unless an environment variable is set.
FORWARD = {
    "x = torch.arange(1.0, 5.0, device=DEVICE); y = x.reshape(2, 2); i = torch.tensor([0, 2, 2, 1], device=DEVICE)\n"
    "j = torch.tensor([[0, 1], [1, 0]], device=DEVICE)": (
        "x.cumsum(0)",
        "y.cumsum(0)",
        "y.cumsum(1)",
        "x.half().cumsum(0)",
        "x.to(torch.bfloat16).cumsum(0)",
        "x.to(torch.complex64).cumsum(0)",
        "i.cumsum(0)",
        "(x > 2).cumsum(0)",
        "i.cumsum(0, dtype=torch.float32)",
        "x[:0].cumsum(0)",
        "x[0].cumsum(0)",
        "x.clone().cumsum_(0)",
        "torch.cumsum(x, 0, out=torch.empty_like(x))",
        "x.cumprod(0)",
        "x.cummax(0)[0]",
        "x.logcumsumexp(0) * 0",
        "torch.cumulative_trapezoid(x)",
        "x.scatter_add(0, i, x)",
        "y.scatter_add(0, j, y)",
        "y.scatter_add(1, j, y)",
        "i.scatter_add(0, i, i)",
        "x.scatter(0, i[:2], x)",
        "x.scatter(0, i[:2], 1.0)",
        "y.scatter(0, j, y)",
        "x.scatter(0, i, x, reduce='add')",
        "x.scatter(0, i, x, reduce='multiply')",
        "x.scatter(0, i, 2.0, reduce='add')",
        "x.scatter(0, i, 2.0, reduce='multiply')",
        "x.scatter_reduce(0, i, x, 'sum')",
        "y.scatter_reduce(0, j, y, 'sum')",
        "x.scatter_reduce(0, i, x, 'mean')",
        "x.scatter_reduce(0, i, x, 'prod')",
        "x.scatter_reduce(0, i, x, 'amax')",
        "x.scatter_reduce(0, i, x, 'amin', include_self=False)",
        "x.index_reduce(0, i, x, 'prod')",
        "x.index_reduce(0, i, x, 'mean')",
        "x.index_reduce(0, i, x, 'amax')",
        "x.index_add(0, i, x)",
        "x.index_add(0, i, x, alpha=2)",
        "y.index_add(1, j[0], y)",
        "i.index_add(0, i, i)",
        "x.index_copy(0, i[:2], x[:2])",
        "x.index_fill(0, i, 0.0)",
        "x.index_select(0, i)",
        "x.index_put((i,), x)",
        "x.index_put((i[:2],), x[:2], accumulate=False)",
        "x.index_put((i,), x, accumulate=True)",
        "y.index_put((j[0], j[1]), y[0], accumulate=True)",
        "i.index_put((i,), i, accumulate=True)",
        "x.index_put((x > 2,), x[0], accumulate=True)",
        "x[i]",
        "x[x > 2]",
        "x.put_(i[:2], x[:2].clone())",
        "x.put_(i, x.clone(), accumulate=True)",
        "i.put_(i.clone(), i.clone(), accumulate=True)",
        "x.take(i)",
        "x.gather(0, i)",
        "x.masked_scatter(x > 2, x)",
        "x.masked_select(x > 2)",
        "torch.histc(x, 4, 0, 4)",
        "torch.histc(x, 4)",
        "torch.histc(i, 4, 0, 4)",
        "torch.histogram(x, 4)",
        "torch.bincount(i)",
        "torch.bincount(i, minlength=5)",
        "torch.bincount(i, weights=x)",
        "torch.bincount(i, weights=x.double())",
        "torch.bincount(i, weights=i)",
        "torch.bincount(i[:0])",
        "x.kthvalue(2)[0]",
        "x.kthvalue(2)[1]",
        "y.kthvalue(1, dim=1)[0]",
        "i.kthvalue(2)[0]",
        "x[0].kthvalue(1)[0]",
        "torch.kthvalue(x, 2, out=(x.new_empty(()), i.new_empty(())))[0]",
        "x.median()",
        "i.median()",
        "x.median(0)[0]",
        "x.median(0).indices",
        "y.median(1)[0]",
        "x.nanmedian()",
        "x.nanmedian(0)[0]",
        "x.quantile(0.5)",
        "x.mode()[0]",
        "x.sort()[0]",
        "x.topk(2)[0]",
        "x.unique()",
        "x.sum()",
        "x.prod()",
        "x.norm() * 0",
        "F.nll_loss(y, j[0])",
        "F.nll_loss(y[..., None, None].expand(2, 2, 2, 2), j[0][:, None, None].expand(2, 2, 2))",
        "F.nll_loss(y[..., None].expand(2, 2, 2), j)",
        "F.nll_loss(y[..., None, None].expand(2, 2, 1, 1), j[0][:, None, None], reduction='none')",
        "F.nll_loss(y[..., None, None, None], j[0][:, None, None, None])",
        "F.cross_entropy(y[..., None, None], j[0][:, None, None])",
        "F.cross_entropy(y, j[0]) * 0",
        "F.cross_entropy(y, y) * 0",
        "F.max_unpool1d(y, j[:, :1].expand(2, 2) * 0 + i[:2] // 2, 2)",
        "F.max_unpool2d(*F.max_pool2d(y[None], 2, return_indices=True), 2)",
        "F.max_unpool3d(*F.max_pool3d(y[None, None].repeat(1, 2, 1, 1), 2, return_indices=True), 2)",
        "F.embedding_bag(j, y, mode='sum')",
        "F.embedding_bag(j, y, mode='max')",
        "F.grid_sample(y[None, None], torch.zeros(1, 1, 1, 2, device=DEVICE), align_corners=False)",
        "F.interpolate(y[None, None], scale_factor=2, mode='bilinear')",
        "F.pad(y[None], (1, 1), mode='reflect')",
        "F.avg_pool3d(y[None, None].repeat(1, 2, 1, 1), 2)",
        "F.conv2d(y[None, None], torch.ones(1, 1, 2, 2, device=DEVICE))",
        "F.fold(torch.ones(1, 4, 1, device=DEVICE), (2, 2), 2)",
        "torch.renorm(y, 2, 0, 1.0) * 0",
        "torch.cdist(y, y, p=1.0)",
        "torch.bucketize(x, x)",
        "torch.repeat_interleave(x, i)",
        "torch.segment_reduce(x, 'sum', lengths=torch.tensor([2, 2], device=DEVICE))",
        "y.to_sparse().to_dense()",
        "torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.int64, device=DEVICE), x, (2,)).coalesce().values()",
        "torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.int64, device=DEVICE), x, (2,)).to_dense()",
        "torch.sparse.sum(y.to_sparse())",
        "torch.sparse.mm(y.to_sparse(), y)",
        "torch.sparse.mm(y.to_sparse_csr(), y)",
        "torch.bmm(y[None].to_sparse(), y[None])",
        "torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).resize_(8).shape",
    ),
}
# The answer is the gradient.
BACKWARD = {
    "x = torch.arange(1.0, 65.0, device=DEVICE).reshape(1, 1, 4, 4, 4).requires_grad_()": (
        *(
            f"F.pad(x[{index}], {(1, 1) * dims}, mode={mode!r})"
            for mode in ("reflect", "replicate", "circular", "constant")
            for dims, index in ((1, "0, 0, 0"), (2, "0, 0"), (3, ":"))
        ),
        "F.max_pool1d(x[0, 0, 0], 2)",
        "F.max_pool2d(x[0], 2)",
        "F.max_pool2d(x[0], 2, stride=1)",
        "F.max_pool3d(x, 2)",
        "F.avg_pool1d(x[0, 0], 2)",
        "F.avg_pool2d(x[0], 2)",
        "F.avg_pool3d(x, 2)",
        "F.avg_pool3d(x, 2, stride=1)",
        "F.lp_pool2d(x[0], 2, 2) * 0",
        "F.adaptive_avg_pool1d(x[0, 0], 2)",
        "F.adaptive_avg_pool2d(x[0], 2)",
        "F.adaptive_avg_pool2d(x[0], 1)",
        "F.adaptive_avg_pool3d(x, 2)",
        "F.adaptive_avg_pool3d(x, 1)",
        "F.adaptive_max_pool1d(x[0, 0], 2)",
        "F.adaptive_max_pool2d(x[0], 2)",
        "F.adaptive_max_pool3d(x, 2)",
        "F.fractional_max_pool2d(x[0], 2, 2, _random_samples=torch.zeros(1, 4, 2, device=DEVICE))",
        "F.fractional_max_pool3d(x, 2, 2, _random_samples=torch.zeros(1, 1, 3, device=DEVICE))",
        "F.max_unpool2d(x[0, :, :2, :2, 0], torch.tensor([[[0, 2], [8, 10]]], device=DEVICE), 2)",
        "F.interpolate(x[0, 0], scale_factor=2, mode='nearest')",
        "F.interpolate(x[0, 0], scale_factor=2, mode='linear')",
        "F.interpolate(x[0], scale_factor=2, mode='nearest')",
        "F.interpolate(x[0], scale_factor=2, mode='nearest-exact')",
        "F.interpolate(x[0], scale_factor=2, mode='bilinear')",
        "F.interpolate(x[0], size=(4, 4), mode='bilinear')",
        "F.interpolate(x[0], scale_factor=2, mode='bilinear', antialias=True)",
        "F.interpolate(x[0], scale_factor=2, mode='bicubic')",
        "F.interpolate(x[0], scale_factor=2, mode='bicubic', antialias=True)",
        "F.interpolate(x[0], scale_factor=2, mode='area')",
        "F.interpolate(x, scale_factor=2, mode='nearest')",
        "F.interpolate(x, scale_factor=2, mode='trilinear')",
        "F.grid_sample(x[0], torch.zeros(1, 1, 1, 2, device=DEVICE), align_corners=False)",
        "F.grid_sample(x[0], torch.zeros(1, 1, 1, 2, device=DEVICE), mode='nearest', align_corners=False)",
        "F.grid_sample(x[0], torch.zeros(1, 1, 1, 2, device=DEVICE), mode='bicubic', align_corners=False)",
        "F.grid_sample(x, torch.zeros(1, 1, 1, 1, 3, device=DEVICE), align_corners=False)",
        "F.unfold(x[0], 2)",
        "F.pixel_shuffle(x[0].reshape(1, 4, 4, 4), 2)",
        "F.batch_norm(x, None, None, training=True) * 0",
        "F.layer_norm(x, (4,)) * 0",
        "F.cross_entropy(x[0, 0], torch.zeros(4, 4, dtype=torch.int64, device=DEVICE))",
        "F.nll_loss(x[0, 0], torch.zeros(4, 4, dtype=torch.int64, device=DEVICE))",
        "F.nll_loss(x[0], torch.zeros(1, 4, 4, dtype=torch.int64, device=DEVICE))",
        "x.cumsum(4)",
        "x.cumprod(4)",
        "x.logsumexp(4) * 0",
        "x[0, 0, 0, 0].prod()",
        "x.median()",
        "x.max()",
        "x.sort().values",
        "x.repeat(1, 2, 1, 1, 1)",
        "x.unfold(4, 2, 1)",
        "x.expand(3, 1, 4, 4, 4)",
    ),
    "x = torch.arange(1.0, 7.0, device=DEVICE).reshape(3, 2).requires_grad_()\n"
    "i = torch.tensor([0, 2, 2], device=DEVICE); o = torch.tensor([0, 1], device=DEVICE)": (
        "F.embedding(i, x)",
        "F.embedding(i, x, scale_grad_by_freq=True)",
        "F.embedding_bag(i, x, o, mode='sum')",
        "F.embedding_bag(i, x, o, mode='mean')",
        "F.embedding_bag(i, x, o, mode='max')",
        "F.embedding_bag(i, x, o, mode='sum', per_sample_weights=torch.ones(3, device=DEVICE))",
        "x.gather(0, i[:, None])",
        "x.take(i)",
        "torch.take_along_dim(x, i[:, None], 0)",
        "x[i]",
        "x[i, 0]",
        "x[x > 2]",
        "x[1:]",
        "x.cpu()[[0, 2, 2]].to(DEVICE)",
        "x.index_select(0, i)",
        "x.index_add(0, i, x)",
        "x.scatter_add(0, i[:, None].expand(3, 2), x)",
        "x.scatter(0, i[:, None], 1.0)",
        "x.masked_select(x > 2)",
        "x.repeat_interleave(i, 0)",
        "x.repeat_interleave(2, 0)",
        "x.kthvalue(1).values",
        "torch.cdist(x, x * 2, p=1.0)",
        "torch.cdist(x, x * 2, p=2.0, compute_mode='donot_use_mm_for_euclid_dist') * 0",
        "torch.pdist(x) * 0",
        "x.to_sparse().to_dense()",
        "x.roll(1, 0)",
        "F.multi_margin_loss(x, o[[0, 1, 1]]) * 0",
        "F.multilabel_margin_loss(x, o.expand(3, 2))",
        "torch.trace(x)",
    ),
    "x = F.log_softmax(torch.arange(24.0, device=DEVICE).reshape(4, 2, 3), 2).requires_grad_()\n"
    "t = torch.tensor([[1, 2], [2, 1]], device=DEVICE)": (
        "F.ctc_loss(x, t, (4, 4), (2, 2)).abs() * 0",
        "F.ctc_loss(x, t.cpu(), torch.tensor([4, 4]), torch.tensor([2, 2])) * 0",
        "F.ctc_loss(x, t.int().cpu().flatten(), torch.tensor([4, 4]).int(), torch.tensor([2, 2]).int()) * 0",
        "F.scaled_dot_product_attention(x[None], x[None], x[None]) * 0",
        "F.scaled_dot_product_attention(x[None].half(), x[None].half(), x[None].half()) * 0",
    ),
}
# Asked with warn_only=True too, and with a filled gradient: one of each kind.
WARNED_FORWARD = (
    "x.cumsum(0)",
    "i.cumsum(0)",
    "x.put_(i[:2], x[:2].clone())",
    "x.put_(i, x.clone(), accumulate=True)",
    "torch.histc(x, 4, 0, 4)",
    "torch.bincount(i, weights=x)",
    "torch.bincount(i)",
    "x.kthvalue(2)[0]",
    "x.median(0)[0]",
    "x.median()",
    "x.scatter_reduce(0, i, x, 'prod')",
    "x.scatter_reduce(0, i, x, 'sum')",
    "x.scatter_add(0, i, x)",
    "x.index_add(0, i, x)",
    "x.index_reduce(0, i, x, 'prod')",
    "F.nll_loss(y[..., None, None].expand(2, 2, 2, 2), j[0][:, None, None].expand(2, 2, 2))",
    "F.max_unpool2d(*F.max_pool2d(y[None], 2, return_indices=True), 2)",
    "torch.sparse.mm(y.to_sparse(), y)",
)
WARNED_BACKWARD = (
    "F.pad(x[0, 0], (1, 1, 1, 1), mode='reflect')",
    "F.pad(x[0, 0], (1, 1, 1, 1), mode='replicate')",
    "F.max_pool2d(x[0], 2)",
    "F.avg_pool3d(x, 2)",
    "F.adaptive_avg_pool2d(x[0], 2)",
    "F.adaptive_avg_pool2d(x[0], 1)",
    "F.adaptive_max_pool2d(x[0], 2)",
    "F.interpolate(x[0], scale_factor=2, mode='bilinear')",
    "F.interpolate(x[0], scale_factor=2, mode='bicubic')",
    "F.interpolate(x, scale_factor=2, mode='trilinear')",
    "F.grid_sample(x[0], torch.zeros(1, 1, 1, 2, device=DEVICE), align_corners=False)",
    "x.cumsum(4)",
)


def told(device: str, preparation: str, expression: str, *, backward: bool = False, warn_only: bool = False) -> Any:
    """The expression's value, or x's gradient, in deterministic mode: [value, warnings' first sentences, error].

    The preparation and the expression may use DEVICE, torch and F.
    """
    names: dict[str, Any] = {"DEVICE": device, "torch": torch, "F": torch.nn.functional}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(preparation, names)
    value = error = None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        try:
            value = eval(expression, names)
            if backward:
                value.sum().backward()
                value = names["x"].grad
        except Exception as raised:
            value, error = None, f"{type(raised).__name__}: {first_sentence(raised)}"
        finally:
            torch.use_deterministic_algorithms(False)
    texts = [first_sentence(w.message) for w in heard if "deterministic" in str(w.message)]
    return [value, texts, error]


def first_sentence(message: object) -> str:
    return str(message).splitlines()[0].partition(". ")[0].partition(", but you set")[0]


FILLED = (
    "torch.empty(2, device=DEVICE)",
    "torch.empty(2, device=DEVICE, dtype=torch.int16)",
    "torch.empty(2, device=DEVICE, dtype=torch.bool)",
    "torch.empty(1, device=DEVICE, dtype=torch.complex64)",
    "torch.empty(2, device=DEVICE, dtype=torch.bfloat16)",
    "torch.empty_like(torch.ones(2, device=DEVICE))",
    "torch.empty_strided((2,), (1,), device=DEVICE)",
    "torch.empty_strided((2,), (2,), device=DEVICE).as_strided((3,), (1,))",
    "torch.empty_permuted((1, 2), (1, 0), device=DEVICE)",
    "torch.ones(1, device=DEVICE).new_empty(2)",
    "torch.ones(1, device=DEVICE).new_empty_strided((2,), (1,))",
    "torch.ones(1, device=DEVICE).resize_(3)",
    "torch.ones(1, dtype=torch.int32, device=DEVICE).resize_(3)",
    "torch.ones(3, device=DEVICE).resize_(1).resize_(3)",
    "torch.ones(1, device=DEVICE).resize_as_(torch.ones(3, device=DEVICE))",
    "torch.Tensor(2).to(DEVICE)",
    "torch.empty(2, device='cpu', pin_memory=True)",
)
PROGRAMS = [
    *(f"told(DEVICE, {p!r}, {e!r})" for p, expressions in FORWARD.items() for e in expressions),
    *(f"told(DEVICE, {p!r}, {e!r}, backward=True)" for p, expressions in BACKWARD.items() for e in expressions),
    *(f"told(DEVICE, {next(iter(FORWARD))!r}, {e!r}, warn_only=True)" for e in WARNED_FORWARD),
    *(f"told(DEVICE, {next(iter(BACKWARD))!r}, {e!r}, backward=True, warn_only=True)" for e in WARNED_BACKWARD),
    *(f"str(told(DEVICE, '', {e!r})[0].tolist())" for e in FILLED),
    # The whole message, and what is left of the operands.
    "torch.use_deterministic_algorithms(True)\n"
    "try:\n"
    "    torch.arange(4.0, device=DEVICE).put_(torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE))\n"
    "finally:\n"
    "    torch.use_deterministic_algorithms(False)",
    "torch.use_deterministic_algorithms(True, warn_only=True)\n"
    "try:\n"
    "    value = torch.histc(torch.arange(4.0, device=DEVICE), 4)\n"
    "finally:\n"
    "    torch.use_deterministic_algorithms(False)\n"
    "value",
    "x = torch.arange(4.0, device=DEVICE)\n"
    "torch.use_deterministic_algorithms(True)\n"
    "try:\n"
    "    x.put_(torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE))\n"
    "except RuntimeError:\n"
    "    pass\n"
    "finally:\n"
    "    torch.use_deterministic_algorithms(False)\n"
    "x",
    *(
        f"torch.set_deterministic_debug_mode({mode!r})\n"
        "try:\n"
        "    value = torch.bincount(torch.tensor([1], device=DEVICE), weights=torch.ones(1, device=DEVICE))\n"
        "finally:\n"
        "    torch.set_deterministic_debug_mode('default')\n"
        "value"
        for mode in ("warn", "error")
    ),
    "torch.utils.deterministic.fill_uninitialized_memory = False\n"
    "try:\n"
    "    value = told(DEVICE, '', 'torch.ones(3, device=DEVICE).resize_(1).resize_(3)')[0]\n"
    "finally:\n"
    "    torch.utils.deterministic.fill_uninitialized_memory = True\n"
    "value.tolist()",
    # cuBLAS: CUBLAS_WORKSPACE_CONFIG is not set.
    *(
        f"module is torch.cuda and told(DEVICE, 'x = torch.ones(2, 2, device=DEVICE)', {e})"
        for e in (
            "'x @ x'",
            "'x @ x', warn_only=True",
            "'torch.bmm(x[None], x[None])'",
            "'x[0].dot(x[0])'",
            "'x.mv(x[0])'",
            "'F.linear(x, x, x[0])'",
        )
    ),
]
