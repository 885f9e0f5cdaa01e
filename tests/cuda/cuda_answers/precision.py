"""Result dtypes, layouts and values: autocast, gradient scaling, type promotion, strides, and exact arithmetic.

All values can be represented exactly, so that the order of additions plays no part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def under(device: str, call: Callable[[], Any], *lower: torch.dtype) -> list[str]:
    """The dtypes of the result under autocast to each of the dtypes: float16 and bfloat16, if none is given."""
    answers = []
    for dtype in lower or (torch.float16, torch.bfloat16):
        with torch.autocast(device, dtype=dtype):
            answers.append(dtypes(call()))
    return answers


def dtypes(result: Any) -> str:
    if isinstance(result, torch.Tensor):
        return str(result.dtype)
    return ", ".join(dtypes(item) for item in result)


def layout(result: Any) -> Any:
    """[shape, strides] of a tensor, or a list of those. Without the values."""
    if isinstance(result, torch.Tensor):
        return [list(result.shape), list(result.stride())]
    return [layout(item) for item in result]


def text(tensor: torch.Tensor) -> str:
    """The dtype and the values as one text, without the shape and the device."""
    return f"{tensor.dtype} {tensor.tolist()}"


# Operands are float32: autocast must lower them.
_LOWER = [
    "a @ a",
    "torch.mm(a, a)",
    "torch.mv(a, a[0])",
    "torch.addmm(a, a, a)",
    "torch.addmv(a[0], a, a[0])",
    "torch.addr(a, a[0], a[0])",
    "torch.bmm(a[None], a[None])",
    "torch.baddbmm(a[None], a[None], a[None])",
    "torch.addbmm(a, a[None], a[None])",
    "torch.einsum('ij,jk->ik', a, a)",
    "torch.linalg.multi_dot([a, a, a])",
    "torch.chain_matmul(a, a)",
    "torch.linalg.vecdot(a, a)",
    "F.linear(a, a, a[0])",
    "F.conv1d(a[None], a[:, :, None])",
    "F.conv2d(a[None, :, :, None], a[:, :, None, None])",
    "F.conv3d(a[None, :, :, None, None], a[:, :, None, None, None])",
    "F.conv_transpose2d(a[None, :, :, None], a[:, :, None, None])",
    "torch.conv_tbc(a[None], a[None], a[0])",
    "F.prelu(a, a[0])",
    "F.scaled_dot_product_attention(a[None, None], a[None, None], a[None, None])",
    "torch.rnn_relu_cell(a, a, a, a)",
    "torch.gru_cell(a, a, a.repeat(3, 1), a.repeat(3, 1))",
    "torch.lstm_cell(a, (a, a), a.repeat(4, 1), a.repeat(4, 1))",
    # Not on a list: these keep the dtype, or promote.
    "a.double() @ a.double()",
    "torch.outer(a[0], a[0])",
    "torch.kron(a, a)",
    "torch.linalg.inv(a + torch.eye(2, device=DEVICE))",
    "F.bilinear(a, a, a[None])",
    "F.embedding(torch.tensor([0], device=DEVICE), a)",
    "a.cpu() @ a.cpu()",
]
# Operands are float16: autocast must raise them.
_FLOAT32 = [
    *(f"h.{n}()" for n in ("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "tan")),
    *(f"h.{n}()" for n in ("reciprocal", "rsqrt", "sinh", "norm", "nansum", "mean", "var", "sqrt", "tanh")),
    "h.pow(2), 2 ** h, h ** h",
    "h.sum(), h.sum(0), h.sum(dtype=torch.float16)",
    "h.prod(), h.cumsum(0), h.cumprod(0), h.logcumsumexp(0)",
    "h.softmax(0), h.log_softmax(0), h.softmax(0, dtype=torch.float16)",
    "F.softplus(h), F.gelu(h), F.silu(h), F.relu(h), F.logsigmoid(h)",
    "F.layer_norm(h, (2,)), F.group_norm(h, 1), F.rms_norm(h, (2,))",
    "F.batch_norm(h, None, None, training=True), F.batch_norm(h.float(), h[0].float(), h[0].float())",
    "torch.linalg.vector_norm(h), torch.linalg.matrix_norm(h), torch.norm(h, dim=0), torch.norm(h, p='fro')",
    "F.cosine_similarity(h, h), F.pairwise_distance(h, h), torch.dist(h, h), torch.cdist(h, h), torch.pdist(h)",
    "F.mse_loss(h, h), F.l1_loss(h, h), F.smooth_l1_loss(h, h), F.huber_loss(h, h)",
    "F.nll_loss(h, torch.tensor([0, 1], device=DEVICE)), F.cross_entropy(h, torch.tensor([0, 1], device=DEVICE))",
    "F.kl_div(h, h, reduction='sum'), F.poisson_nll_loss(h, h), F.hinge_embedding_loss(h, h)",
    "F.cosine_embedding_loss(h, h, h[0]), F.margin_ranking_loss(h[0], h[0], h[0]), F.triplet_margin_loss(h, h, h)",
    "F.multi_margin_loss(h, torch.tensor([0, 1], device=DEVICE)), F.soft_margin_loss(h, h)",
    "F.binary_cross_entropy_with_logits(h, h)",
    "torch.renorm(h, 2, 0, 1.0), torch.logsumexp(h, 0), h.logsumexp((0, 1))",
    "F.interpolate(h[None, None], scale_factor=2), F.interpolate(h[None, None], scale_factor=2, mode='bilinear')",
    "F.avg_pool2d(h[None], 2), F.max_pool2d(h[None], 2), F.adaptive_avg_pool2d(h[None], 1)",
]
# Operands are float16 and float32: the widest type wins.
_PROMOTE = [
    "torch.addcdiv(h, a, h)",
    "torch.addcmul(h, a, h)",
    "torch.atan2(h, a)",
    "torch.cross(torch.ones(3, device=DEVICE), torch.ones(3, device=DEVICE).half(), dim=0)",
    "torch.dot(h[0], a[0])",
    "torch.vdot(h[0], a[0])",
    "torch.tensordot(h, a, 1)",
    "torch.cat([h, a]), torch.stack([a, h])",
    "torch.scatter_add(h, 0, torch.zeros(2, 2, dtype=torch.int64, device=DEVICE), a)",
    "torch.index_put(h, (torch.tensor([0], device=DEVICE),), a[:1])",
    "F.grid_sample(h[None, None], a[None, :, None])",
    "h + a, h * a, torch.where(h > 0, h, a)",
    "h.add_(a)",
    "torch.mm(a, a, out=torch.empty(2, 2, device=DEVICE))",
    "a.clone().addmm_(a, a)",
]

_AUTOCAST = [
    "F.binary_cross_entropy(torch.ones(1, device=DEVICE), torch.ones(1, device=DEVICE))",
    "torch.nn.BCELoss()(torch.ones(1, device=DEVICE), torch.ones(1, device=DEVICE))",
]
_STATE = [
    "[torch.is_autocast_enabled(DEVICE), str(torch.get_autocast_dtype(DEVICE)), torch.is_autocast_cache_enabled()]",
    "torch.amp.is_autocast_available(DEVICE)",
    "with torch.autocast(DEVICE): r = [torch.is_autocast_enabled(DEVICE), torch.is_autocast_enabled('cpu')]\nr",
    "with torch.autocast(DEVICE):\n    with torch.autocast(DEVICE, enabled=False):\n        r = dtypes(a @ a)\nr",
    "with torch.autocast(DEVICE, enabled=False):\n    with torch.autocast(DEVICE):\n        r = dtypes(a @ a)\nr",
    "with torch.autocast(DEVICE):\n    with torch.autocast(DEVICE, torch.bfloat16):\n        r = dtypes(a @ a)\n"
    "    r += dtypes(a @ a)\nr + dtypes(a @ a)",
    "with torch.autocast('cpu'): r = dtypes(a @ a)\nr",
    "with torch.autocast(DEVICE, dtype=torch.float32): r = [dtypes(a @ a), torch.is_autocast_enabled(DEVICE)]\nr",
    "with torch.autocast(DEVICE, dtype=torch.float64): r = dtypes(a @ a)\nr",
    "with torch.autocast(DEVICE, dtype=torch.int32): r = dtypes(a @ a)\nr",
    "with torch.autocast(DEVICE + ':0'): r = dtypes(a @ a)\nr",
    "with torch.autocast(torch.device(DEVICE)): r = dtypes(a @ a)\nr",
    "w = a.clone().requires_grad_()\nwith torch.autocast(DEVICE): x, y = a @ w, a @ w\n"
    "x.grad_fn.next_functions[1][0] is y.grad_fn.next_functions[1][0]",
    "w = a.clone().requires_grad_()\nwith torch.autocast(DEVICE, cache_enabled=False): x, y = a @ w, a @ w\n"
    "x.grad_fn.next_functions[1][0] is y.grad_fn.next_functions[1][0]",
    "w = a.clone().requires_grad_()\nwith torch.autocast(DEVICE):\n    with torch.no_grad(): x = a @ w\n    y = a @ w\n"
    "[x.requires_grad, y.requires_grad]",
    "w = a.clone().requires_grad_()\nwith torch.autocast(DEVICE): x = (a @ w).sum()\nx.backward()\n[x, w.grad]",
    "w = a.clone().requires_grad_()\nwith torch.autocast(DEVICE): x = (a @ w); s = x.float().sum(); s.backward()\n"
    "[x.grad_fn.name(), x.grad_fn.next_functions[1][0].name(), dtypes(w.grad)]",
    "f = torch.autocast(DEVICE)(lambda x: x @ x)\ndtypes(f(a))",
    "repr(torch.autocast(DEVICE).fast_dtype), torch.autocast(DEVICE).device",
    "m = torch.nn.LSTM(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE): r = m(a)\ndtypes([r[0], *r[1]])",
    "m = torch.nn.MultiheadAttention(2, 1, device=DEVICE)\nwith torch.autocast(DEVICE): r = m(a, a, a)\ndtypes(r)",
    "m = torch.nn.TransformerEncoderLayer(2, 1, 2, device=DEVICE).eval()\n"
    "with torch.autocast(DEVICE), torch.no_grad(): r = m(a[None])\ndtypes(r)",
    "with torch.cuda.amp.autocast(): r = dtypes(a @ a)\nr",
    "with torch.cuda.amp.autocast(dtype=torch.bfloat16): r = dtypes(a @ a)\nr",
    "torch.cuda.amp.common.amp_definitely_not_available()",
]

_CUSTOM = (
    "seen = []\n"
    "class Function(torch.autograd.Function):\n"
    "    @staticmethod\n"
    "    @torch.amp.custom_fwd(device_type=DEVICE{})\n"
    "    def forward(ctx, x):\n"
    "        seen.append(dtypes([x, x @ x]))\n"
    "        return x * 2\n"
    "    @staticmethod\n"
    "    @torch.amp.custom_bwd(device_type=DEVICE)\n"
    "    def backward(ctx, g):\n"
    "        seen.append(dtypes([g, g @ g]))\n"
    "        return g * 2\n"
    "x = torch.ones(2, 2, device=DEVICE, requires_grad=True)\n"
    "with torch.autocast(DEVICE, enabled={}): y = Function.apply(x)\n"
    "y.sum().backward()\n"
    "seen + [dtypes([y, x.grad])]"
)

_SCALER = (
    "p = torch.ones(2, device=DEVICE, requires_grad=True)\n"
    "o = torch.optim.SGD([p], lr=0.5)\n"
    "s = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=2)\n"
)
_SCALING = [
    "s.scale(p.sum()).backward(); g = p.grad.clone(); s.step(o); s.update(); [g, p, s.get_scale(), s.state_dict()]",
    "r = []\nfor _ in range(2): s.scale(p.sum()).backward(); s.step(o); s.update(); r.append(s.state_dict())\nr",
    "(s.scale(p.sum()) * float('inf')).backward(); s.step(o); s.update(); [p, s.get_scale(), s._get_growth_tracker()]",
    "s.scale(p.sum()).backward(); s.unscale_(o); g = p.grad.clone(); s.step(o); s.update(); [g, p]",
    "s.scale(p.sum()).backward(); s.unscale_(o); s.unscale_(o)",
    "s.scale(p.sum()).backward(); s.step(o); s.step(o)",
    "s.scale(p.sum()).backward(); s.step(o); s.unscale_(o)",
    "s.step(o)",
    "s.update()",
    "s.scale(p.sum()); s.step(o)",
    "s.scale(p.sum()); s.update()",
    "s.scale(p.sum()); s.update(torch.ones(1, device=DEVICE)); s.get_scale()",
    "s.scale(p.sum()); s.update(16.0); s.get_scale()",
    "s.scale(p.sum()); s.update(torch.ones(2, device=DEVICE))",
    "s.scale(p.sum()); s.update(torch.ones(1)); s.get_scale()",
    "s.scale(torch.ones(2)).device.type",
    "s.scale(p.sum()); s.scale(torch.ones(2))",
    "s.scale([p, (p, p)])",
    "s.scale('text')",
    "s.scale(p.sum()).backward(); [str(k.type) + str(v.tolist()) for k, v in s._check_inf_per_device(o).items()]",
    "q = p.detach().half().requires_grad_(); o = torch.optim.SGD([q], lr=0.5); s.scale(q.sum()).backward(); "
    "s.unscale_(o)",
    "q = p.detach().bfloat16().requires_grad_(); o = torch.optim.SGD([q], lr=0.5)\n"
    "s.scale(q.sum()).backward(); s.unscale_(o); q.grad",
    "[s.is_enabled(), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval(), s.get_scale()]",
    "t = torch.amp.GradScaler(DEVICE, enabled=False); [t.scale(p), t.get_scale(), t.state_dict(), t.is_enabled()]",
    "s.load_state_dict({}); 0",
    "s.load_state_dict(dict(s.state_dict(), scale=8.0)); s.scale(p.detach())",
    "import pickle; s.scale(p.sum()); t = pickle.loads(pickle.dumps(s)); [t.get_scale(), t.scale(p.detach())]",
    "o = torch.optim.SGD([p], lr=0.5, fused=True); (s.scale(p.sum()) * float('inf')).backward(); s.step(o); "
    "s.update()\n"
    "[p, s.get_scale()]",
    "o = torch.optim.SGD([p], lr=0.5, fused=True); s.scale(p.sum()).backward(); s.step(o); s.update(); [p, p.grad]",
    "t = torch.cuda.amp.GradScaler(); [type(t).__mro__[1].__module__, t.get_scale()]",
]
_KERNELS = [
    "g = [torch.tensor([2.0, float('inf')], device=DEVICE)]; f = torch.zeros(1, device=DEVICE)\n"
    "torch._amp_foreach_non_finite_check_and_unscale_(g, f, torch.tensor([0.5], device=DEVICE)); [g[0], f]",
    "g = [torch.ones(2, device=DEVICE)]; f = torch.zeros(1)\n"
    "torch._amp_foreach_non_finite_check_and_unscale_(g, f, torch.tensor([0.5], device=DEVICE))",
    "g = [torch.ones(2, device=DEVICE)]; f = torch.zeros(2, device=DEVICE)\n"
    "torch._amp_foreach_non_finite_check_and_unscale_(g, f, torch.tensor([0.5], device=DEVICE))",
    "s = torch.tensor([4.0], device=DEVICE); t = torch.zeros(1, dtype=torch.int32, device=DEVICE)\n"
    "torch._amp_update_scale_(s, t, torch.ones(1, device=DEVICE), 2.0, 0.5, 1); [s, t]",
    "s = torch.tensor([4.0], device=DEVICE); t = torch.zeros(1, device=DEVICE)\n"
    "torch._amp_update_scale_(s, t, torch.ones(1, device=DEVICE), 2.0, 0.5, 1)",
]

# d: a tensor of the device; d0, c0: 0-dim, of the device and of the CPU.
_PROMOTION = [
    "dtypes([(d.half() + c0.double()), (d.half() + d0.double()), (d.int() + c0), (d.int() + c0.double())])",
    "dtypes([(d0.half() + c0), (c0.double() + d0.half()), (d0.int() + c0.half())])",
    "(d0 + c0).device.type, (c0 + d0).device.type, (c0 * d).device.type",
    "c0 + torch.ones(1) + d0",
    "d0 + torch.ones(1)",
    "torch.ones(1) + d",
    "torch.where(d > 0, d, c0)",
    "torch.where(d > 0, c0, c0)",
    "torch.where(c0 > 0, d, d)",
    "torch.where(torch.ones(1) > 0, d, d)",
    "torch.add(d, c0, out=torch.empty(1))",
    "torch.add(c0, c0, out=torch.empty(1, device=DEVICE))",
    "c0.add_(d0)",
    "c0.add_(d)",
    "d.add_(c0.double())",
    "d.int().add_(c0)",
    "d.bool().add_(c0)",
    "torch.maximum(d, c0)",
    "torch.clamp(d, min=c0)",
    "torch.clamp(d, c0, c0 + 1)",
    "torch.lerp(d, d, c0)",
    "torch.lerp(d, c0, 0.5)",
    "torch.addcmul(d, d, c0)",
    "torch.addcmul(d, d, d, value=c0)",
    "torch.masked_fill(d, d > 0, c0)",
    "torch.masked_fill(d, d > 0, torch.ones(1))",
    "torch.masked_fill(d, c0 > 0, 2)",
    "torch.masked_fill(c0, d > 0, 2)",
    "torch.full_like(d, c0)",
    "d.fill_(c0)",
    "d.fill_(torch.ones(1))",
    "c0.fill_(d0)",
    "torch.full((1,), d0, device=DEVICE)",
    "torch.tensor([d0, c0], device=DEVICE)",
    "torch.stack([d0, c0])",
    "torch.cat([d, torch.ones(1)])",
    "torch.mul(d, c0, out=torch.empty(1, dtype=torch.float16, device=DEVICE))",
    "torch.mul(d, d, out=torch.empty(1, dtype=torch.int32, device=DEVICE))",
    "torch.pow(c0, d), torch.pow(d, c0)",
    "torch.dot(d, torch.ones(1))",
    "d[torch.tensor(0)], d[torch.tensor([0])], torch.ones(1)[torch.tensor([0])]",
    "torch.ones(1)[torch.tensor([0], device=DEVICE)]",
    "d.index_put_((torch.tensor([0], device=DEVICE),), c0 * 5)",
    "d.index_put_((torch.tensor([0], device=DEVICE),), torch.ones(1))",
    "d[0] = c0 * 3; d[:] += c0; d",
    "d[d > 0] = c0 * 7; d",
    "torch.result_type(d.half(), c0.double()), torch.result_type(d0.half(), c0.double())",
    "dtypes([d.half() * 2.0, d.int() * 2.0, d.int() / 2, d.bool() + 1, d.bool() * 1.0, d.half() * 1j])",
    "torch._foreach_add([d, d], c0)",
    "torch._foreach_mul([d], [c0])",
    "torch.isin(d, c0)",
    "torch.searchsorted(d, c0)",
    "torch.bucketize(d, torch.ones(1))",
    "torch.allclose(d, torch.ones(1))",
    "torch.equal(d, torch.ones(1))",
    "torch.linspace(d0, 3, 3, device=DEVICE)",
    "torch.arange(d0, 3)",
    "torch.heaviside(d, c0)",
    "torch.copysign(d, c0)",
    "torch.addmm(c0, d[None], d[None])",
]

# x: channels_last, of the shape (2, 3, 4, 4); t: a transposed matrix, of the shape (3, 2); s: positive definite.
_LAYOUT = [
    "F.conv2d(x, torch.ones(5, 3, 1, 1, device=DEVICE))",
    "F.conv2d(x.contiguous(), torch.ones(5, 3, 2, 2, device=DEVICE).to(memory_format=torch.channels_last))",
    "F.conv2d(x.contiguous(), torch.ones(5, 3, 2, 2, device=DEVICE))",
    "F.conv_transpose2d(x, torch.ones(3, 5, 2, 2, device=DEVICE))",
    "F.conv1d(x[:, :, 0], torch.ones(5, 3, 1, device=DEVICE))",
    "F.batch_norm(x, None, None, training=True)",
    "F.instance_norm(x), F.group_norm(x, 3), F.layer_norm(x, (4,))",
    "F.max_pool2d(x, 2, return_indices=True)",
    "F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 2)",
    "F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=2, mode='bilinear')",
    "F.interpolate(x, scale_factor=2, mode='bicubic'), F.interpolate(x, size=2, mode='bilinear', antialias=True)",
    "F.grid_sample(x, torch.zeros(2, 4, 4, 2, device=DEVICE), align_corners=False)",
    "F.pad(x, (1, 1)), F.pad(x, (1, 1, 1, 1), mode='reflect'), F.pad(x, (1, 1, 1, 1), mode='replicate')",
    "F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), F.pixel_unshuffle(x, 2), torch.channel_shuffle(x, 3)",
    "F.unfold(x, 2), F.fold(torch.ones(1, 12, 9, device=DEVICE), (4, 4), 2)",
    "F.relu(x), F.softmax(x, 1), F.dropout(x), F.gelu(x), F.glu(x, 2), F.prelu(x, x[0, :, 0, 0]), F.elu(x)",
    "torch.cat([x, x], 1), torch.cat([x, x.contiguous()], 1), torch.stack([x, x])",
    "x + x.contiguous(), x.contiguous() + x, x + x[:, :1], torch.where(x > 0, x, 0), x.clone(), torch.zeros_like(x)",
    "x.cumsum(1), x.sort(1), x.flip(1), x.roll(1, 1), x.sum(1), x.sum(1, keepdim=True), x.argmax(1), x.amax((2, 3))",
    "x.topk(1, 1), x.max(1), x.median(1), x.kthvalue(1, 1), x.mode(1)",
    "x.index_select(0, i), x[i], x[:, i], x.gather(1, x.long()), x.take_along_dim(x.long(), 1)",
    "x.half(), x.to('cpu'), x.cpu().to(DEVICE), x.to(torch.float64), x.to(DEVICE, copy=True), x.permute(0, 2, "
    "3, 1) + 1",
    "w = x.clone().requires_grad_(); F.conv2d(w, torch.ones(5, 3, 1, 1, device=DEVICE)).sum().backward(); w.grad",
    "w = torch.ones(5, 3, 2, 2, device=DEVICE, requires_grad=True); F.conv2d(x, w).sum().backward(); w.grad",
    "t @ t.t(), torch.mm(t.t(), t), torch.addmm(torch.ones(2, 2, device=DEVICE).t(), t.t(), t), F.linear(t, t)",
    "torch.bmm(t[None], t.t()[None]), torch.einsum('ij,kj->ki', t, t), torch.outer(t[0], t[0]), torch.kron(t, t)",
    "t + t.contiguous(), t.contiguous() + t, t.exp(), t.softmax(0), t.sort(0), t.cumsum(0), t.unique(), "
    "torch.cdist(t, t)",
    "torch.nonzero(t), torch.nonzero(torch.ones(2, 3, 4, device=DEVICE)), torch.nonzero(t, as_tuple=True)",
    "torch.argwhere(t)",
    "torch.triu_indices(3, 3, device=DEVICE), torch.combinations(t[:, 0])",
    "F.embedding(i, t), F.one_hot(i), torch.index_select(t, 0, i), t[t > -1], torch.masked_select(t, t > -1)",
    "torch.linalg.inv(s), torch.inverse(s[None])",
    "torch.linalg.cholesky(s), torch.linalg.cholesky(s, upper=True), torch.cholesky_inverse(s)",
    "torch.linalg.qr(t), torch.linalg.qr(t, mode='complete')",
    "torch.linalg.svd(t), torch.linalg.svd(t, full_matrices=False), torch.linalg.svdvals(t)",
    "torch.linalg.eigh(s), torch.linalg.eigvalsh(s)",
    "torch.linalg.solve(s, t), torch.linalg.solve(s, t[:, 0]), torch.linalg.solve_triangular(s, t, upper=True)",
    "torch.linalg.lu_factor(s), torch.linalg.lu(s), torch.lu_solve(t, *torch.linalg.lu_factor(s))",
    "torch.linalg.lstsq(t, t).solution, torch.linalg.pinv(t), torch.linalg.matrix_exp(s), "
    "torch.linalg.matrix_power(s, 3)",
    "torch.linalg.det(s), torch.linalg.slogdet(s), torch.linalg.householder_product(t, t[0]), "
    "torch.linalg.ldl_factor(s)",
    "torch.linalg.eig(s)",
    "torch.fft.fft(t), torch.fft.fft(t, dim=0), torch.fft.rfft(t), torch.fft.fft2(x), torch.fft.rfft2(x)",
    "torch.fft.irfft(t.cfloat()), torch.fft.fftn(x, dim=(0, 1)), torch.fft.ifft(x, dim=1)",
    "torch.stft(torch.ones(8, device=DEVICE), 4, window=torch.ones(4, device=DEVICE), return_complex=True)",
    "q = torch.ones(2, 3, 4, 8, device=DEVICE); F.scaled_dot_product_attention(q, q, q)",
    "q = torch.ones(2, 4, 3, 8, device=DEVICE).transpose(1, 2); F.scaled_dot_product_attention(q, q, q)",
    "q = torch.ones(2, 4, 3, 8, device=DEVICE).half().transpose(1, 2); F.scaled_dot_product_attention(q, q, q)",
    "torch.nn.LSTM(2, 3, batch_first=True, device=DEVICE)(torch.ones(4, 5, 2, device=DEVICE))",
    "torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)",
    "torch.native_layer_norm(t, (2,), None, None, 1e-5)",
    "F.ctc_loss(torch.zeros(5, 1, 3, device=DEVICE), torch.tensor([[1, 2]]), (5,), (2,), reduction='none')",
    "torch.histc(t), torch.bincount(i), torch.tril(t), torch.diag(t[:, 0]), torch.block_diag(t, t), torch.rot90(t)",
    "torch.empty_strided((2, 2), (1, 4), device=DEVICE) + 1, torch.ones(2, 1, device=DEVICE).expand(2, 3) * 2",
    "torch.randn(2, 3, device=DEVICE).t().to_sparse(), torch.ones_like(t), torch.rand_like(t), torch.bernoulli(t)",
]
_LAYOUT_OF = [
    "o = torch.empty(1, device=DEVICE); torch.add(t, t, out=o); layout(o)",
    "o = torch.empty(0, device=DEVICE); torch.mm(t, t.t(), out=o); layout(o)",
    "o = torch.empty(2, 2, device=DEVICE).t(); torch.mm(t.t(), t, out=o); layout(o)",
    "o = torch.empty(1, device=DEVICE); torch.cat([t, t], out=o); layout(o)",
    "o = torch.empty(1, device=DEVICE); torch.sum(t, 0, out=o); layout(o)",
    "o = torch.empty(0, device=DEVICE, dtype=torch.int64); torch.nonzero(t, out=o); layout(o)",
    "o = torch.empty(5, device=DEVICE, dtype=torch.int64); torch.nonzero(t, out=o); layout(o)",
    "o = torch.empty(2, 2, device=DEVICE); torch.linalg.inv(s, out=o); layout(o)",
    "o = torch.empty(1, device=DEVICE); torch.linalg.inv(s, out=o); layout(o)",
    "o = torch.empty(1, device=DEVICE); torch.index_select(t, 0, i, out=o); layout(o)",
    "o = torch.empty(7, device=DEVICE); torch.arange(0, 3, out=o); layout(o)",
    "o = (torch.empty(1, device=DEVICE), torch.empty(1, device=DEVICE, dtype=torch.int64)); torch.sort(t, "
    "out=o); layout(o)",
    "o = (torch.empty(1, device=DEVICE), torch.empty(1, device=DEVICE, dtype=torch.int64)); torch.max(t, 0, "
    "out=o); layout(o)",
]

# f: floating point values; n: NaN among them; k: int32 values of both signs; b: booleans.
_VALUES = [
    "k // 3, k % 3, k // -3, k % -3, torch.fmod(k, 3), torch.div(k, 3, rounding_mode='trunc')",
    "(k // 0).shape",
    "(k % 0).shape",
    "(torch.fmod(k, 0)).shape",
    "torch.div(k, 0), text(f / 0), text(f // 0), text(f % 0)",
    "torch.div(f, 2, rounding_mode='floor'), torch.div(f, -2, rounding_mode='trunc'), torch.remainder(f, -2)",
    "(torch.tensor([127, -128], dtype=torch.int8, device=DEVICE) + 1, torch.tensor([-128], dtype=torch.int8).abs())",
    "torch.tensor([-128], dtype=torch.int8, device=DEVICE).abs(), torch.tensor([-128], dtype=torch.int8).neg()",
    "torch.tensor([200], dtype=torch.uint8, device=DEVICE) + 100, -torch.tensor([1], dtype=torch.uint8, device=DEVICE)",
    "torch.tensor([2**31 - 1], dtype=torch.int32, device=DEVICE) * 2, (k + 2**31 - 1).dtype",
    "torch.tensor([300], device=DEVICE).to(torch.uint8), torch.tensor([-1], device=DEVICE).to(torch.uint8)",
    "torch.tensor([2.75, -2.75], device=DEVICE).to(torch.int8), n.bool(), f.bool(), torch.tensor([-0.0], "
    "device=DEVICE).bool()",
    "k.sum(), k.prod(), k.cumsum(0), k.sum(dtype=torch.int32), k.to(torch.int8).sum(), k.max(), k.amax(), "
    "b.sum(), b.prod()",
    "k.mean()",
    "b.mean()",
    "k[:2].float().mean(), k[:2].float().var(correction=0), k.float().std(correction=3)",
    "k << 1, k >> 1, k << 31, k << 40, k >> 40, 1 << k.abs()",
    "k ** 2, k ** torch.tensor([0, 1, 2], device=DEVICE), 2 ** k.abs(), k ** 0.5 == k ** 0.5",
    "k ** -1",
    "torch.ones(3, dtype=torch.int32, device=DEVICE) ** k",
    "torch.gcd(k, k + 4), torch.lcm(k, k + 4), torch.sign(k), torch.bitwise_not(k), k & 3, k | 3, k ^ 3",
    "b + b, b * b, b & b, b | ~b, b ^ b, ~b, b.any(), b.all(), b.cumsum(0), b.max()",
    "b.argmax()",
    "b - b",
    "-b",
    "b - 1, b / 2, b // 1",
    "1 - b",
    "b.long().argsort(stable=True, descending=True), b.sort(stable=True), b.unique(), b.float().median()",
    "torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5], device=DEVICE).round(), torch.tensor([1.25, -1.75], "
    "device=DEVICE).round(decimals=1)",
    "torch.tensor([15, 25, -35], device=DEVICE).round(decimals=-1)",
    "k.ceil(), k.round(), k.trunc()",
    "k.frac()",
    "k.sqrt().dtype, k.exp().dtype, k.sigmoid().dtype, k.floor().dtype, k.reciprocal().dtype, (k / 1).dtype, "
    "b.exp().dtype",
    "text(n.max()), text(n.min()), n.argmax(), n.argmin(), text(n.amax()), text(n.nansum()), text(n.nanmean())",
    "text(n.max(0).values), n.max(0).indices, n.min(0).indices, text(n.median()), text(n.nanmedian())",
    "text(n.sort(stable=True).values), n.sort(stable=True).indices, n.sort(stable=True, descending=True).indices",
    "text(n.topk(2).values), text(n.topk(2, largest=False).values), text(n.cummax(0).values), text(n.cummin(0).values)",
    "n.cummax(0).indices, n.cummin(0).indices, text(n.unique()), text(n.clamp(0, 2)), text(n.sign()), n.nan_to_num(7)",
    "text(torch.maximum(n, n.flip(0))), text(torch.fmax(n, n.flip(0))), text(torch.fmin(n, n.flip(0))), "
    "text(F.relu(n))",
    "n == n, n != n, n > 0, n.isnan(), n.isfinite(), torch.equal(n, n), torch.allclose(n, n, equal_nan=True), "
    "n.logical_not()",
    "torch.isin(n, n), torch.bucketize(n, torch.tensor([0.0, 1.0], device=DEVICE)), n.count_nonzero(), "
    "torch.nonzero(n)",
    "e = torch.tensor([1, 3, 3, 1], device=DEVICE); e.argmax(), e.argmin(), e.max(0), e.min(0), "
    "e.sort(stable=True), e.aminmax()",
    "e = torch.tensor([1, 3, 3, 1], device=DEVICE); e.unique(return_inverse=True, return_counts=True), "
    "e.unique_consecutive()",
    "e = torch.tensor([1, 3, 3, 1], device=DEVICE); e.argsort(stable=True, descending=True), e.bincount(), "
    "e.diff(), e.msort()",
    "e = torch.tensor([1, 3, 3, 1], device=DEVICE); e.histc(2, 1, 3), torch.searchsorted(e.sort().values, 3, "
    "right=True)",
    "torch.tensor([1.0, 3.0], device=DEVICE).histc(2), torch.tensor([True], device=DEVICE).histc(2)",
    "f.quantile(0.5), f.median(), f.kthvalue(2), f.logsumexp(0).isfinite(), torch.std_mean(torch.ones(2, "
    "device=DEVICE))",
    "f.half().quantile(0.5)",
    "torch.tensor([2048, 1, 1], device=DEVICE).half().sum(), torch.tensor([256, 1, 1], device=DEVICE).bfloat16().sum()",
    "torch.tensor([65504.0], device=DEVICE).half() * 2, torch.tensor([65520.0, 65519.0, 1e-8], device=DEVICE).half()",
    "torch.tensor([65504.0, 65504.0], device=DEVICE).half().sum(), torch.tensor([65504.0] * 2, "
    "device=DEVICE).half().mean()",
    "torch.tensor([2049.0, 2051.0], device=DEVICE).half(), torch.tensor([257.0, 259.0], device=DEVICE).bfloat16()",
    "torch.tensor([448.0, 16.0], device=DEVICE).to(torch.float8_e4m3fn).float()",
    "torch.ones(2, 2, device=DEVICE).half() @ torch.full((2, 2), 3.0, device=DEVICE).half(), "
    "torch.dot(f.half(), f.half())",
    "torch.ones(2, device=DEVICE).half().sum(dtype=torch.float64), torch.ones(2, device=DEVICE).bfloat16().cumsum(0)",
    "torch.tensor([5e-324, 1e-40], dtype=torch.float64, device=DEVICE).float() > 0",
    "torch.tensor([-0.0, 0.0], device=DEVICE).signbit(), torch.copysign(f, -f), text(torch.tensor([-0.0], "
    "device=DEVICE).abs())",
    "torch.ldexp(f, k), torch.frexp(f), torch.nextafter(f, f + 1) > f, torch.hypot(f * 0 + 3, f * 0 + 4)",
    "text(torch.tensor([1 + 2j], device=DEVICE) * 1j), torch.tensor([1 + 2j], device=DEVICE).real, "
    "torch.tensor([3 + 4j], device=DEVICE).abs()",
    "torch.tensor([1 + 2j], device=DEVICE) > 0",
    "torch.tensor([1 + 2j], device=DEVICE).max()",
    "torch.tensor([1 + 2j], device=DEVICE).to(torch.float32)",
    "torch.tensor([1], dtype=torch.uint16, device=DEVICE) + 1",
    "torch.tensor([1], dtype=torch.uint32, device=DEVICE).sum()",
    "k.long().view(1, 3) @ k.long().view(3, 1)",
    "torch.bmm(k.view(1, 1, 3), k.view(1, 3, 1))",
    "torch.dot(k, k)",
    "torch.mv(k.view(1, 3), k)",
    "torch.einsum('i,i->', k, k)",
    "F.conv1d(k.view(1, 1, 3), k.view(1, 1, 3))",
    "F.linear(k.view(1, 3), k.view(1, 3))",
    "torch.cdist(k.view(1, 3), k.view(1, 3))",
    "torch.outer(k, k), torch.addr(torch.zeros(3, 3, dtype=torch.int32, device=DEVICE), k, k), "
    "torch.trace(torch.outer(k, k))",
    "F.softmax(k, 0)",
    "F.relu(k), F.threshold(k, 0, 0), F.one_hot(k.long().abs()).dtype",
    "F.gelu(k)",
    "F.mse_loss(k, k)",
    "F.avg_pool1d(k.view(1, 1, 3), 2)",
    "F.max_pool1d(k.view(1, 1, 3), 2)",
    "torch.linalg.inv(torch.eye(2, device=DEVICE).half())",
    "torch.linalg.svd(torch.eye(2, device=DEVICE).bfloat16())",
    "text(torch.fft.fft(torch.ones(3, device=DEVICE).half()))",
    "text(torch.fft.fft(torch.ones(4, device=DEVICE).bfloat16()))",
    "text(torch.fft.fft(torch.ones(4, device=DEVICE).half()))",
    "torch.linalg.inv(torch.zeros(2, 2, device=DEVICE))",
    "torch.linalg.cholesky(-torch.eye(2, device=DEVICE))",
    "torch.linalg.solve(torch.zeros(2, 2, device=DEVICE), torch.ones(2, device=DEVICE))",
    "torch.linalg.inv_ex(torch.zeros(2, 2, device=DEVICE)).info, torch.linalg.det(torch.zeros(2, 2, device=DEVICE))",
    "torch.linalg.lstsq(torch.eye(2, device=DEVICE), torch.ones(2, 1, device=DEVICE), driver='gelsd')",
    "torch.linalg.svd(torch.eye(2, device=DEVICE), driver='gesvd')[1]",
    "torch.linalg.matrix_rank(torch.eye(2, device=DEVICE)), torch.linalg.cond(torch.eye(2, device=DEVICE))",
]
_EMPTY = [
    "z.sum(), z.prod(), text(z.mean()), z.any(), z.all(), z.cumsum(0), z.norm(), z.logsumexp(0), z.nansum(), "
    "z.count_nonzero()",
    *(f"z.{name}()" for name in ("max", "argmax", "amax", "aminmax", "mode")),
    "text(z.median())",
    "text(z.var()), text(z.std())",
    "z.max(0)",
    "torch.ones(0, 2, device=DEVICE).max(1), torch.ones(0, 2, device=DEVICE).argmax(1), torch.ones(0, 2, "
    "device=DEVICE).sum(0)",
    "z.sort(), z.topk(0), z.unique(), z.nonzero()",
    "z.topk(1)",
    "z.quantile(0.5)",
    "z.long().bincount(), z.histc(2)",
    "z.view(2, 0) @ z.view(0, 2), torch.bmm(z.view(1, 2, 0), z.view(1, 0, 2)), torch.dot(z, z), z.view(0, "
    "2) @ z.view(2, 0)",
    "torch.linalg.inv(z.view(0, 0)), torch.linalg.det(z.view(0, 0)), torch.linalg.svdvals(z.view(0, 2))",
    "F.conv2d(z.view(0, 1, 2, 2), torch.ones(1, 1, 1, 1, device=DEVICE)).shape, F.linear(z.view(0, 2), "
    "z.view(0, 2)).shape",
    "F.max_pool2d(z.view(0, 1, 2, 2), 2).shape, F.interpolate(z.view(0, 1, 2, 2), scale_factor=2).shape",
    "F.max_pool2d(z.view(1, 0, 2, 2), 2).shape",
    "text(F.cross_entropy(z.view(0, 2), z.long())), text(F.mse_loss(z, z)), F.batch_norm(z.view(0, 2), None, "
    "None, training=True)",
    "F.embedding(z.long(), torch.ones(2, 2, device=DEVICE)).shape, torch.cat([z, z]).shape, "
    "torch.fft.fft(z.view(0, 2)).shape",
    "torch.fft.fft(z)",
    "z.item()",
    "torch.multinomial(z, 1)",
    "torch.randperm(0, device=DEVICE), torch.arange(0, device=DEVICE), z.split(1)[0].shape, "
    "torch.cartesian_prod(z, z).shape",
]

_ONES = "a = torch.ones(2, 2, device=DEVICE)\n"
_HALF = "h = torch.ones(2, 2, device=DEVICE, dtype=torch.float16)\n"
_MIXED = "d, d0, c0 = torch.ones(1, device=DEVICE), torch.tensor(1.0, device=DEVICE), torch.tensor(1.0)\n"
_LAYOUTS = (
    "x = torch.zeros(2, 3, 4, 4, device=DEVICE).to(memory_format=torch.channels_last); i = torch.tensor([1, "
    "0], device=DEVICE)\n"
    "t = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=DEVICE).t(); s = torch.eye(3, device=DEVICE)\n"
)
_OPERANDS = (
    "f = torch.tensor([1.0, -2.5, 4.0], device=DEVICE); n = torch.tensor([1.0, float('nan'), 3.0, "
    "float('nan')], device=DEVICE)\n"
    "k = torch.tensor([7, -7, 2], dtype=torch.int32, device=DEVICE); b = torch.tensor([True, False], device=DEVICE)\n"
)

PROGRAMS: list[str] = [
    *(f"{_ONES}under(DEVICE, lambda: {call})" for call in _LOWER),
    *(f"{_HALF}under(DEVICE, lambda: ({call}))" for call in _FLOAT32),
    *(f"{_ONES}{_HALF}under(DEVICE, lambda: ({call}), torch.float16)" for call in _PROMOTE),
    f"{_ONES}{_HALF}under(DEVICE, lambda: torch.atan2(h, a), torch.bfloat16)",
    *(f"under(DEVICE, lambda: {call})" for call in _AUTOCAST),
    *(_ONES + program for program in _STATE),
    *(_CUSTOM.format(cast, on) for cast in ("", ", cast_inputs=torch.float16") for on in (True, False)),
    *(_SCALER + program for program in _SCALING),
    *_KERNELS,
    *(_MIXED + program for program in _PROMOTION),
    *(f"{_LAYOUTS}{p[: p.rfind('; ') + 1]}layout(({p[p.rfind('; ') + 1 :].strip()},))" for p in _LAYOUT),
    *(_LAYOUTS + program for program in _LAYOUT_OF),
    *(_OPERANDS + program for program in _VALUES),
    *("z = torch.ones(0, device=DEVICE)\n" + program for program in _EMPTY),
]
