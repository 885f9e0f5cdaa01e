"""What operators refuse, and the words: operands on two devices, host access, dtypes, shapes, devices, generators.

No program reaches an assertion inside a kernel, because that ends the process's use of the GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import torch

# How a message says the same of a device with another name, or of a machine with more devices than the GPU's had.
SAME = (
    ("wrapper_PrivateUse1_", "wrapper_CUDA_"),
    (r"\bopenreg([A-Z]\w+)Type\b", r"torch.cuda.\1Tensor"),
    ("an openreg device", "a cuda device"),
    (r"device_count\(\) is \d+", "device_count() is 1"),
)


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(answer)
    for pattern, replacement in SAME:
        text = re.sub(pattern, replacement, text)
    return json.loads(text)


def said(call: Callable[[], object]) -> list[str]:
    """The type and the first sentence of the error. The rest of such a message lists the backends of the build."""
    try:
        return ["no error", type(call()).__name__]
    except Exception as error:
        return [type(error).__name__, str(error).split(". ")[0]]


class GradientOn(torch.autograd.Function):
    """The identity. Its backward returns the gradient on the given device."""

    @staticmethod
    def forward(ctx, input, device):
        ctx.device = device
        return input.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.device), None


# a, i, m and t are on the device; b, j, n and s are their counterparts on the CPU.
OPERANDS = """\
a, b = torch.ones(2, 2, device=DEVICE), torch.ones(2, 2)
i, j = torch.tensor([0, 1], device=DEVICE), torch.tensor([0, 1])
m, n, s, t = a > 0, b > 0, torch.tensor(2.0), torch.tensor(3.0, device=DEVICE)
"""

TWO_DEVICES = [
    OPERANDS + expression
    for expression in (
        # Pointwise operators: a 0-dim CPU operand is accepted, a 0-dim operand on the device is not.
        "a + b",
        "b + a",
        "s * a",
        "b + t",
        "s + t",
        "t + s",
        "a.add_(b)",
        "b.add_(a)",
        "s.add_(t)",
        "a + s.double()",
        "a + b[:0, :0]",
        "a == b",
        "torch.equal(a, b)",
        "torch.allclose(a, b)",
        "torch.testing.assert_close(a, b)",
        "torch.maximum(a, s)",
        "torch.atan2(b, a)",
        "torch.lerp(a, a, s)",
        "torch.lerp(a, b, 0.5)",
        "torch.addcmul(a, a, s)",
        "torch.addcmul(a, s, s)",
        "torch.addcdiv(b, b, t)",
        "torch.clamp(a, min=s)",
        "torch.clamp(a, min=b)",
        "torch.pow(t, b)",
        "torch.copysign(a, s)",
        "torch.logical_and(m, n)",
        # out= and copies
        "torch.add(a, a, out=b)",
        "torch.add(b, b, out=a)",
        "torch.mm(a, a, out=b)",
        "torch.sum(a, 0, out=b[0])",
        "torch.cat([a, a], out=torch.empty(0))",
        "torch.max(a, 0, out=(a[0].clone(), torch.empty(2, dtype=torch.int64)))",
        "torch.arange(2, out=i, device='cpu')",
        "torch.add(a, a, out=torch.ones(3, device=DEVICE))",
        "a.copy_(b).device.type",
        # Selection
        "torch.where(n, a, a)",
        "torch.where(m, a, b)",
        "torch.where(m, a, s)",
        "torch.where(m, s, s)",
        "torch.where(torch.tensor(True), a, a)",
        "a.masked_fill(n, 0)",
        "a.masked_fill(m, s)",
        "a.masked_fill(m, b)",
        "b.masked_fill(n, t)",
        "torch.masked_select(a, n)",
        "a.masked_scatter(m, b)",
        "a.masked_scatter(n, a)",
        "torch.cat([a, b])",
        "torch.cat([b, a])",
        "torch.cat([a, torch.empty(0)])",
        "torch.stack([a, b])",
        "torch.block_diag(a, b)",
        "torch.meshgrid(a[0], b[0], indexing='ij')",
        # Indexing
        "a[j]",
        "a[n]",
        "b[i]",
        "b[m]",
        "a[i, j]",
        "a[i] = b\na",
        "a[i] = s\na",
        "a[n] = t\na",
        "b[j] = t\nb",
        "b[j] = a\nb",
        "a[0] = b[0]\na",
        "b[0] = a[0]\nb",
        "b[i] = b\nb",
        "a.index_put_((j,), a)",
        "a.index_select(0, j)",
        "b.index_select(0, i)",
        "a.gather(1, b.long())",
        "b.gather(1, a.long())",
        "torch.take_along_dim(a, b.long(), 1)",
        "a.scatter(1, b.long(), a)",
        "a.scatter(1, a.long() * 0, b)",
        "a.scatter_add(1, a.long() * 0, b)",
        "a.scatter_reduce(1, a.long() * 0, b, 'sum')",
        "a.index_add(0, i, b)",
        "a.index_add(0, j, a)",
        "a.index_copy(0, i, b)",
        "a.index_fill(0, j, 1.0)",
        "a.index_fill(0, i, s)",
        "a.take(j)",
        "a.put(i, b[0])",
        "torch.isin(a, b)",
        "torch.searchsorted(a[0], b[0])",
        "torch.bucketize(a, b[0])",
        "torch.bincount(i, weights=b[0])",
        # Matrices
        "torch.mm(a, b)",
        "b @ a",
        "torch.addmm(b, a, a)",
        "torch.addmm(s, a, a)",
        "torch.addmv(a[0], a, b[0])",
        "torch.mv(a, b[0])",
        "torch.dot(a[0], b[0])",
        "torch.bmm(a[None], b[None])",
        "torch.einsum('ij,jk', a, b)",
        "torch.outer(a[0], b[0])",
        "torch.linalg.solve(a, b)",
        "torch.linalg.solve_triangular(a, b, upper=True)",
        "torch.cdist(a, b)",
        "torch.linalg.cross(torch.ones(3, device=DEVICE), torch.ones(3))",
        # nn.functional
        "F.linear(b, a)",
        "F.linear(a, b)",
        "F.linear(a, a, b[0])",
        "F.conv2d(a[None, None], b[None, None])",
        "F.conv2d(b[None, None], a[None, None])",
        "F.conv2d(a[None, None], a[None, None], b[0, :1])",
        "F.conv_transpose1d(a[None], b[None])",
        "F.embedding(j, a)",
        "F.embedding(i, b)",
        "F.embedding_bag(i, b, i)",
        "F.mse_loss(a, b)",
        "F.l1_loss(a, s)",
        "F.smooth_l1_loss(b, a)",
        "F.cross_entropy(a, j)",
        "F.cross_entropy(a, i, weight=b[0])",
        "F.nll_loss(b, i)",
        "F.binary_cross_entropy(a, b)",
        "F.binary_cross_entropy_with_logits(a, b)",
        "F.binary_cross_entropy_with_logits(a, a, pos_weight=b[0])",
        "F.kl_div(a, b, reduction='batchmean')",
        "F.cosine_similarity(a, b)",
        "F.layer_norm(a, (2,), b[0], b[1])",
        "F.layer_norm(a, (2,), a[0], b[0])",
        "F.group_norm(a, 1, b[0])",
        "F.batch_norm(a, b[0], b[1], training=True)",
        "F.batch_norm(a, a[0], a[1], weight=b[0])",
        "F.prelu(a, b[0])",
        "F.grid_sample(a[None, None], torch.zeros(1, 2, 2, 2), align_corners=False)",
        "F.scaled_dot_product_attention(a[None, None], b[None, None], a[None, None])",
        "F.scaled_dot_product_attention(a[None, None], a[None, None], a[None, None], attn_mask=n)",
        # Lists of tensors
        "torch._foreach_add([a], [b])",
        "torch._foreach_add([a, b], 1)",
        "torch._foreach_mul([a], s)",
        "torch._foreach_mul([b], t)",
        "torch._foreach_add_([a, b], [a, b])",
        "torch._foreach_copy_([a], [b])",
        "torch._foreach_norm([a, b])",
        "torch._amp_foreach_non_finite_check_and_unscale_([a], torch.zeros(1), t)",
        "torch._amp_foreach_non_finite_check_and_unscale_([b], t * 0, t)",
        # Sparse and nested tensors
        "torch.sparse_coo_tensor(torch.stack([j, j]), a[0], (2, 2))",
        "torch.sparse_coo_tensor(torch.stack([j, j]), a[0], (2, 2), device=DEVICE).to_dense()",
        "torch.sparse_coo_tensor(torch.stack([i, i]), a[0], (2, 2)) @ b",
        "torch.sparse_coo_tensor(torch.stack([i, i]), a[0], (2, 2)) + b",
        "b + torch.sparse_coo_tensor(torch.stack([i, i]), a[0], (2, 2))",
        "a.to_sparse() + b.to_sparse()",
        "a.to_sparse().numpy()",
        "a.to_sparse().storage()",
        "torch.nested.nested_tensor([a, b]).device.type",
        "torch.nested.as_nested_tensor([a, b], layout=torch.jagged)",
        # Storages and data
        "a.set_(b)",
        "a.set_(b.untyped_storage())",
        "a.data = b\na.device.type",
        "b.data = a\nb.device.type",
        "torch.empty(0, device=DEVICE).set_(b.untyped_storage(), 0, (2,))",
        "torch.utils.swap_tensors(a, b)\n(a.device.type, b.device.type)",
        # Autograd
        "a.requires_grad_().grad = b",
        "b.requires_grad_().grad = a",
        "(a.requires_grad_() * 2).backward(b)",
        "torch.autograd.grad(a.requires_grad_() * 2, a, b)",
        "torch.autograd.grad((a.requires_grad_() * 2).sum(), a, s)",
        "a.requires_grad_().register_hook(lambda grad: grad.cpu())\n(a * 2).sum().backward()\na.grad",
        "c = a.requires_grad_() * 2\nc.register_hook(lambda grad: grad.cpu())\nc.sum().backward()\na.grad",
        "a.requires_grad_().register_hook(lambda grad: grad.double())\n(a * 2).sum().backward()\na.grad",
        "GradientOn.apply(a.requires_grad_(), 'cpu').sum().backward()\na.grad",
        "GradientOn.apply(t.requires_grad_(), 'cpu').backward()\nt.grad",
        "(a.requires_grad_() * s.requires_grad_()).sum().backward()\n(a.grad, s.grad)",
        # Training
        "a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)\ntorch.nn.utils.clip_grad_norm_([a, b], 1.0)",
        "a.grad, b.grad = a * 3, b * 3\ntorch.nn.utils.clip_grad_norm_([b, a], 1.0, foreach=True)",
        "a.grad = a * float('inf')\ntorch.nn.utils.clip_grad_norm_([a], 1.0, error_if_nonfinite=True)",
        "torch.nn.utils.parameters_to_vector([a, b])",
        "torch.nn.utils.vector_to_parameters(torch.zeros(8), [a, b])\na.device.type",
    )
]

ONES = "a, b = torch.ones(2, 2, device=DEVICE), torch.ones(2, 2)\n"

HOST = [
    ONES + expression
    for expression in (
        "a.numpy()",
        "a.requires_grad_().numpy()",
        "a.numpy(force=True).tolist()",
        "a.__array__()",
        "import numpy\nnumpy.asarray(a)",
        "import numpy\nnumpy.add(b.numpy(), a)",
        "import numpy\nnumpy.ones((2, 2), dtype=numpy.float32) * a",
        "import numpy\na * numpy.ones((2, 2), dtype=numpy.float32)",
        "import numpy\na * numpy.float64(2)",
        "import numpy\na + numpy.array(2.0)",
        "import numpy\na[numpy.array([1])]",
        "torch.from_numpy(a)",
        "memoryview(a)",
        "a.untyped_storage()[0]",
        "a.untyped_storage().tolist()",
        "torch.tensor(a)",
        "torch.tensor([a[0, 0], a[0, 1]])",
        "torch.tensor([a, a])",
        "torch.as_tensor(a).device.type",
        "torch.as_tensor([a[0, 0]])",
        "b.new_tensor(a)",
        "torch.Tensor(2, device=DEVICE).shape",
        "torch.FloatTensor(2, device=DEVICE)",
        "torch.FloatTensor(a)",
        "a.new([1.0, 2.0])",
        "a.new(b)",
        "[2, 3][torch.tensor(1, device=DEVICE)]",
        "[2, 3][a[0, 0]]",
        "list(range(torch.tensor(2, device=DEVICE)))",
        "torch.zeros(torch.tensor(2, device=DEVICE), 1)",
        "import math\nmath.sqrt(a[0, 0] * 4)",
        "int(a)",
        "a.item()",
        "bool(a)",
        "format(a[0, 0], '.2f')",
        "format(a, '.2f')",
        "repr(a)",
        "repr(a.requires_grad_() * 2)",
        "repr(a.to_sparse())",
        "torch.ones(2, device=DEVICE, dtype=torch.complex64).conj().numpy()",
        "a.__dlpack__(stream='x')",
        "a.requires_grad_().__dlpack__()",
        "a.__dlpack__(dl_device=(1, 0), copy=False)",
        "torch.from_dlpack(a.__dlpack__()).device.type",
        "a.pin_memory()",
        "a.is_pinned()",
        "b.pin_memory().is_pinned()",
        "torch.empty(2, device=DEVICE, pin_memory=True)",
        "a.untyped_storage().pin_memory()",
        "a.share_memory_().is_shared()",
        "a.is_shared()",
        "torch.utils.data.default_collate([a, b])",
        "a.resize_(-1, 2)",
        "a.as_strided((9,), (1,))",
        "a.untyped_storage().resize_(0)\n(a.shape, a.untyped_storage().nbytes())",
        "torch.UntypedStorage(4, device=DEVICE).device.type",
        "torch.cuda.FloatTensor([1.0, 2.0])",
        "torch.cuda.FloatTensor(b)",
        "b.type(torch.cuda.DoubleTensor)",
        "b.type('torch.cuda.NopeTensor')",
        "(a.type(), isinstance(a, torch.cuda.FloatTensor), isinstance(b, torch.cuda.FloatTensor))",
        "torch.cuda.is_available()\nsorted(a.__cuda_array_interface__)",
        "torch.cuda.is_available()\nb.__cuda_array_interface__",
        "torch.cuda.is_available()\na.to_sparse().__cuda_array_interface__",
        "torch.cuda.is_available()\na.requires_grad_().__cuda_array_interface__",
        "torch.cuda.is_available()\na.__dlpack__(stream=0)",
        "torch.cuda.is_available()\nb.cuda('cpu')",
        "torch.cuda.is_available()\nb.cuda(7)",
        "torch.cuda.is_available()\nb.cuda('cuda:7')",
    )
]

VALUES = """\
def x(*shape, dtype=torch.int64):
    return torch.ones(shape, device=DEVICE).to(dtype)
"""

DTYPES = [
    VALUES + expression
    for expression in (
        # Integer matrices
        "x(2, 2) @ x(2, 2)",
        "x(2, 2, dtype=torch.int8) @ x(2, 2, dtype=torch.int8)",
        "x(2, 2, dtype=torch.bool) @ x(2, 2, dtype=torch.bool)",
        "torch.bmm(x(1, 2, 2), x(1, 2, 2))",
        "torch.mv(x(2, 2), x(2))",
        "torch.dot(x(2), x(2))",
        "torch.einsum('ij,jk', x(2, 2, dtype=torch.int32), x(2, 2, dtype=torch.int32))",
        "torch._int_mm(x(2, 2, dtype=torch.int8), x(2, 2, dtype=torch.int8))",
        "F.linear(x(2, 2), x(2, 2), x(2))",
        "F.conv2d(x(1, 1, 2, 2), x(1, 1, 2, 2))",
        "F.conv_transpose2d(x(1, 1, 2, 2), x(1, 1, 2, 2))",
        "torch.cdist(x(2, 2), x(2, 2))",
        "torch.cdist(x(2, 2, dtype=torch.half), x(2, 2, dtype=torch.half))",
        "torch.outer(x(2), x(2))",
        # linalg in half precision
        "torch.linalg.svd(x(2, 2, dtype=torch.half))",
        "torch.linalg.inv(x(2, 2, dtype=torch.half))",
        "torch.linalg.cholesky(x(2, 2, dtype=torch.bfloat16))",
        "torch.linalg.eigh(x(2, 2, dtype=torch.half))",
        "torch.linalg.qr(x(2, 2, dtype=torch.half))",
        "torch.linalg.solve(x(2, 2), x(2, 2))",
        "torch.linalg.det(x(2, 2))",
        "torch.linalg.vector_norm(x(2))",
        # Two dtypes
        "x(2, 2, dtype=torch.float) @ x(2, 2, dtype=torch.double)",
        "x(2, 2, dtype=torch.half) @ x(2, 2, dtype=torch.float)",
        "torch.addmm(x(2, 2, dtype=torch.double), x(2, 2, dtype=torch.float), x(2, 2, dtype=torch.float))",
        "torch.bmm(x(1, 2, 2, dtype=torch.float), x(1, 2, 2, dtype=torch.double))",
        "torch.mv(x(2, 2, dtype=torch.float), x(2, dtype=torch.double))",
        "torch.dot(x(2, dtype=torch.float), x(2, dtype=torch.double))",
        "F.linear(x(2, 2, dtype=torch.half), x(2, 2, dtype=torch.float))",
        "F.linear(x(2, 2, dtype=torch.float), x(2, 2, dtype=torch.float), x(2, dtype=torch.half))",
        "F.conv1d(x(1, 1, 2, dtype=torch.half), x(1, 1, 2, dtype=torch.float))",
        "F.conv1d(x(1, 1, 2, dtype=torch.float), x(1, 1, 2, dtype=torch.float), x(1, dtype=torch.half))",
        "F.layer_norm(x(2, 2, dtype=torch.half), (2,), x(2, dtype=torch.float)).dtype",
        "F.batch_norm(x(2, 2, dtype=torch.half), x(2, dtype=torch.float), x(2, dtype=torch.float)).dtype",
        "F.batch_norm(x(2, 2, dtype=torch.half), x(2, dtype=torch.double), x(2, dtype=torch.double)).dtype",
        "F.embedding(x(2, dtype=torch.float), x(2, 2, dtype=torch.float))",
        "F.embedding(x(2, dtype=torch.int32), x(2, 2, dtype=torch.float))",
        "F.embedding(x(2, dtype=torch.int16), x(2, 2, dtype=torch.float))",
        "F.mse_loss(x(2, dtype=torch.float), x(2, dtype=torch.double)).dtype",
        "F.binary_cross_entropy(x(2, dtype=torch.float), x(2))",
        "F.scaled_dot_product_attention(*(x(1, 1, 2, 8, dtype=d) for d in (torch.half, torch.half, torch.float)))",
        "torch.lerp(x(2, dtype=torch.float), x(2, dtype=torch.double), 0.5)",
        "torch.searchsorted(x(2, dtype=torch.float), x(2, dtype=torch.double))",
        "x(2).add_(1.5)",
        "x(2).div_(2)",
        "torch.add(x(2, dtype=torch.float), 1, out=x(2))",
        "torch.sum(x(2, dtype=torch.float), 0, out=x().double())",
        "torch.mm(x(2, 2, dtype=torch.float), x(2, 2, dtype=torch.float), out=x(2, 2, dtype=torch.double))",
        # Indices and masks
        "x(2, 2).gather(1, x(2, 2, dtype=torch.int16))",
        "x(2, 2).gather(1, x(2, 2, dtype=torch.int32))",
        "x(2, 2).index_select(0, x(1, dtype=torch.float))",
        "x(2, 2)[x(1, dtype=torch.float)]",
        "x(2)[x(2, dtype=torch.uint8)]",
        "x(2, 2).scatter(1, x(2, 2), x(2, 2, dtype=torch.float))",
        "x(2, 2).index_put_((x(1),), x(1, 2, dtype=torch.float))",
        "x(2, 2).index_add(0, x(1), x(1, 2, dtype=torch.float))",
        "x(2).masked_fill(x(2), 0)",
        "x(2).masked_fill(x(2, dtype=torch.uint8), 0)",
        "torch.where(x(2), x(2), x(2))",
        "torch.where(x(2, dtype=torch.uint8), x(2), x(2))",
        # Losses, activations and layers of integers
        "F.softmax(x(2, 2), 1)",
        "F.log_softmax(x(2, 2), 1)",
        "torch.softmax(x(2, 2), 1, dtype=torch.float).dtype",
        "F.gelu(x(2))",
        "F.relu(x(2, dtype=torch.bool))",
        "F.silu(x(2))",
        "F.leaky_relu(x(2))",
        "F.dropout(x(2))",
        "F.layer_norm(x(2, 2), (2,))",
        "F.group_norm(x(2, 2), 1)",
        "F.batch_norm(x(2, 2), None, None, training=True)",
        "F.mse_loss(x(2), x(2))",
        "F.l1_loss(x(2), x(2))",
        "F.huber_loss(x(2), x(2))",
        "F.nll_loss(x(2, 2, dtype=torch.float), x(2, dtype=torch.int32))",
        "F.cross_entropy(x(2, 2, dtype=torch.float), x(2, dtype=torch.float))",
        "F.cross_entropy(x(2, 2), x(2))",
        "F.max_pool2d(x(1, 1, 2, 2), 2)",
        "F.avg_pool2d(x(1, 1, 2, 2), 2)",
        "F.adaptive_avg_pool2d(x(1, 1, 2, 2), 1)",
        "F.interpolate(x(1, 1, 2, 2), scale_factor=2)",
        "F.interpolate(x(1, 1, 2, 2, dtype=torch.uint8), scale_factor=2, mode='bilinear')",
        "F.grid_sample(x(1, 1, 2, 2), x(1, 2, 2, 2), align_corners=False)",
        "F.pad(x(1, 2, dtype=torch.bool), (1, 1), mode='reflect')",
        "F.one_hot(x(2, dtype=torch.int32), 2)",
        # Reductions, sorting and counting
        "x(2).mean()",
        "x(2).std()",
        "x(2, dtype=torch.bool).median()",
        "torch.quantile(x(2, dtype=torch.half), 0.5)",
        "x(2, dtype=torch.complex64).sort().values.dtype",
        "x(2, dtype=torch.complex64).max().dtype",
        "x(2, dtype=torch.bool).topk(1).values",
        "x(2, dtype=torch.complex64).topk(1).values.dtype",
        "x(2, dtype=torch.bool).kthvalue(1)",
        "x(2, dtype=torch.complex64).cummax(0).values.dtype",
        "x(2).logcumsumexp(0)",
        "torch.unique(x(2, dtype=torch.complex64)).dtype",
        "torch.histc(x(2), 2, 0, 3)",
        "said(lambda: torch.histogram(x(2, dtype=torch.float), 2))",
        "torch.bincount(x(2, dtype=torch.float))",
        "torch.bincount(-x(2))",
        "x(2, 2, dtype=torch.bool).trace()",
        "x(2, 2).renorm(2, 0, 1.0)",
        # Pointwise
        "x(2, dtype=torch.float) & 1",
        "~x(2, dtype=torch.float)",
        "x(2, dtype=torch.float) << 1",
        "x(2, dtype=torch.bool) - x(2, dtype=torch.bool)",
        "-x(2, dtype=torch.bool)",
        "torch.gcd(x(2, dtype=torch.float), x(2, dtype=torch.float))",
        "torch.remainder(x(2, dtype=torch.complex64), 2).dtype",
        "torch.floor(x(2, dtype=torch.complex64)).dtype",
        "torch.lgamma(x(2, dtype=torch.complex64)).dtype",
        "torch.erf(x(2, dtype=torch.complex64)).dtype",
        "x(2, dtype=torch.complex64) < 1",
        "torch.nextafter(x(2, dtype=torch.half), x(2, dtype=torch.half))",
        "torch.igamma(x(2, dtype=torch.half), x(2, dtype=torch.half))",
        "torch.complex(x(2), x(2)).dtype",
        "torch.polar(x(2, dtype=torch.half), x(2, dtype=torch.half)).dtype",
        "torch.frexp(x(2))",
        "x(2, dtype=torch.float8_e4m3fn) + 1",
        "x(2, dtype=torch.float8_e4m3fn).sum()",
        "x(2, 2, dtype=torch.float8_e4m3fn) @ x(2, 2, dtype=torch.float8_e4m3fn)",
        "x(2, dtype=torch.uint16) + x(2, dtype=torch.uint16)",
        "x(2, dtype=torch.uint32).sum()",
        "x(2, dtype=torch.uint64) < 3",
        "(x(2, dtype=torch.complex32) * 2).dtype",
        # The quotient is unspecified, but a GPU does not trap.
        "(x(2) // 0).shape",
        "(x(2) % 0).shape",
        "torch.fmod(x(2), 0).shape",
        # Random numbers and ranges
        "x(2).uniform_().dtype",
        "x(2).normal_().dtype",
        "x(2).exponential_()",
        "x(2).cauchy_()",
        "torch.rand(2, device=DEVICE, dtype=torch.int64)",
        "torch.randn(2, device=DEVICE, dtype=torch.int64)",
        "torch.multinomial(x(2), 1)",
        "torch.bernoulli(x(2))",
        "torch.randperm(3, device=DEVICE, dtype=torch.bool)",
        "torch.arange(2, device=DEVICE, dtype=torch.bool)",
        "torch.randint(0, 300, (2,), device=DEVICE, dtype=torch.uint8)",
        "torch.linspace(0, 1, 2, device=DEVICE, dtype=torch.bool)",
        # fft
        "torch.fft.fft(x(3, dtype=torch.half)).dtype",
        "torch.fft.fft(x(2, dtype=torch.bfloat16)).dtype",
        "torch.fft.fft(x(4, dtype=torch.half)).dtype",
        # Quantized tensors
        "torch.quantize_per_tensor(x(2, dtype=torch.float), 0.5, 0, torch.quint8).dequantize()",
        "said(lambda: torch.quantize_per_tensor(x(2, dtype=torch.float), 0.5, 0, torch.quint8) + 1)",
        "said(lambda: torch.quantize_per_tensor(x(2, 2, dtype=torch.float), 0.5, 0, torch.qint8).mm(x(2, 2)))",
        "torch.quantize_per_tensor(x(2), 0.5, 0, torch.quint8)",
        "torch.quantize_per_tensor(x(2, dtype=torch.half), 0.5, 0, torch.quint8)",
    )
]

SHAPES = [
    VALUES.replace("torch.int64", "torch.float") + expression
    for expression in (
        "x(2, 3) @ x(2, 3)",
        "torch.mm(x(2), x(2, 2))",
        "torch.addmm(x(3), x(2, 2), x(2, 2))",
        "torch.mv(x(2, 2), x(3))",
        "torch.dot(x(2), x(3))",
        "torch.bmm(x(1, 2, 3), x(2, 3, 2))",
        "torch.baddbmm(x(1, 3, 3), x(1, 2, 2), x(1, 2, 2))",
        "F.linear(x(2, 3), x(2, 2))",
        "F.linear(x(2, 2), x(2, 2), x(3))",
        "F.conv2d(x(1, 2, 3, 3), x(1, 3, 2, 2))",
        "F.conv2d(x(1, 1, 2, 2), x(1, 1, 3, 3))",
        "F.conv2d(x(1, 1, 2, 2), x(2, 1, 1, 1), x(1))",
        "F.conv2d(x(2, 2), x(1, 1, 1, 1))",
        "F.max_pool2d(x(1, 1, 2, 2), 3)",
        "x(2) + x(3)",
        "x(2).add_(x(3, 2))",
        "torch.cat([x(2, 2), x(3, 3)])",
        "torch.stack([x(2), x(3)])",
        "x(2, 2).t().view(4)",
        "F.cross_entropy(x(2, 2), x(3).long())",
        "F.mse_loss(x(2), x(2, 1)).item()",
        "F.binary_cross_entropy(x(2), x(2, 1))",
        "F.layer_norm(x(2, 2), (3,))",
        "F.batch_norm(x(1, 2), None, None, training=True)",
        "F.batch_norm(x(2, 2), x(3), x(3))",
        "F.embedding(x(1).long(), x(2))",
        "F.scaled_dot_product_attention(x(1, 1, 2, 8), x(1, 1, 2, 4), x(1, 1, 2, 8))",
        "x(2, 2)[x(2).bool(), x(3).bool()]",
        "x(2, 2)[x(3, 2).bool()]",
        "x(3)[x(2).long()] = x(3)",
        "x(2, 2).gather(1, x(3, 1).long())",
        "x(2, 2).scatter(1, x(3, 2).long(), x(3, 2))",
        "x(2, 2).index_add(0, x(2).long(), x(3, 2))",
        "x(2).masked_fill(x(3).bool(), 0)",
        "torch.add(x(2), 1, out=x(3))",
        "torch.mm(x(2, 2), x(2, 2), out=x(3))",
        "x(1).expand(3).add_(1)",
        "c = x(4)\ntorch.add(c[:3], 1, out=c[1:])",
        "c = x(4)\ntorch.cat([c[:1], c[1:2]], out=c[:2])",
        "x(0).max()",
        "x(0).argmax()",
        "x(0).median().isnan()",
        "x(0, 2).sort(5)",
        "x(2).topk(3)",
        "x(2, 2).kthvalue(3)",
        "torch.linalg.inv(x(2, 3))",
        "torch.linalg.inv(x(2, 2))",
        "torch.linalg.solve(x(2, 2), x(2, 2))",
        "torch.linalg.cholesky(-x(2, 2))",
        "torch.linalg.inv(x(2, 2, 2))",
        "torch.linalg.lstsq(x(3, 2), x(3, 1), driver='gelsy')",
        "torch.linalg.svd(x(2, 2), driver='nope')",
        "torch.linalg.svdvals(x(2, 2), driver='gesvd').shape",
        "torch.normal(0.0, -x(2))",
        "x(2).uniform_(2, 1)",
        "x(2).normal_(0, -1)",
        "x(2).bernoulli_(2.0)",
        "torch.randint(3, 3, (2,), device=DEVICE)",
        "torch.multinomial(x(2), 3)",
        "F.dropout(x(2), 1.5)",
        "torch.randperm(-1, device=DEVICE)",
        "F.nll_loss(x(2, 2, 2, 2), x(2, 2, 2).long(), weight=x(3))",
        "F.ctc_loss(x(2, 1, 2), x(1, 1).long(), x(2).long(), x(1).long())",
        "torch.nn.LSTM(2, 2, device=DEVICE)(x(1, 1, 3))",
        "torch.fft.fft(x(2), n=0).dtype",
    )
]

DEVICES = [
    "torch.ones(1, device=f'{DEVICE}:7')",
    "torch.device(f'{DEVICE}:99').index",
    "torch.ones(1, device=f'{DEVICE}:99')",
    "torch.ones(1).to(f'{DEVICE}:7')",
    "torch.ones(1, device=DEVICE).to(f'{DEVICE}:7')",
    "torch.ones(1, device=DEVICE).to(7)",
    "torch.ones(1, device=7)",
    "torch.ones(1, device=-1)",
    "torch.device(0).type",
    "torch.device(-1)",
    "torch.device(f'{DEVICE}:x')",
    "torch.device(f'{DEVICE}:-1')",
    "torch.device(f'{DEVICE}:')",
    "torch.device(f'{DEVICE}:01')",
    "torch.device(f'{DEVICE}:0:0')",
    "torch.device(f'{DEVICE}:300')",
    "torch.device(DEVICE.upper())",
    "torch.device(f'{DEVICE} :0')",
    "torch.device(DEVICE, -1)",
    "torch.device(DEVICE, 200)",
    "torch.device(f'{DEVICE}:0', 0)",
    "torch.device(DEVICE) == torch.device(DEVICE, 0)",
    "module.set_device(7)",
    "module.set_device(-1)",
    "module.set_device('cpu')",
    "module.set_device(DEVICE)",
    "module.set_device(f'{DEVICE}:7')",
    "with module.device(7):\n    pass",
    "with module.device(-1):\n    found = module.current_device()\nfound",
    "with module.device('cpu'):\n    pass",
    "with torch.device(f'{DEVICE}:7'):\n    torch.ones(1)",
    "with module.device_of(torch.ones(1)):\n    found = module.current_device()\nfound",
    "torch.accelerator.set_device_index(7)",
    "torch.accelerator.current_stream(7)",
    "torch.accelerator.synchronize(7)",
    "torch.set_default_device(f'{DEVICE}:7')\ntry:\n    torch.ones(1)\nfinally:\n    torch.set_default_device(None)",
    "module.get_device_name(7)",
    "module.get_device_properties(7)",
    "module.get_device_properties('cpu')",
    "module.get_device_capability(-2)",
    "module.synchronize(7)",
    "module.synchronize('cpu')",
    "module.current_stream(7)",
    "module.Stream(device=7)",
    "module.Stream(device='cpu')",
    "module.memory_allocated(7)",
    "module.mem_get_info(7)",
    "module.can_device_access_peer(0, 7)",
    "module.can_device_access_peer(0, 0)",
    "module.get_rng_state(7)",
    "module.set_rng_state(torch.zeros(3, dtype=torch.uint8))",
    "module.set_rng_state(torch.zeros(16))",
    "module.set_rng_state(module.get_rng_state().to(DEVICE))",
    # Generators
    "torch.Generator('cpu').device.type, torch.Generator(f'{DEVICE}:7').device.index",
    "torch.randn(2, device=DEVICE, generator=torch.Generator())",
    "torch.randn(2, generator=torch.Generator(DEVICE))",
    "torch.rand(2, device=f'{DEVICE}:0', generator=torch.Generator(DEVICE)).shape",
    "torch.ones(2, device=DEVICE).normal_(generator=torch.Generator())",
    "torch.ones(2).uniform_(generator=torch.Generator(DEVICE))",
    "torch.randperm(3, device=DEVICE, generator=torch.Generator())",
    "torch.randint(3, (2,), device=DEVICE, generator=torch.Generator())",
    "torch.multinomial(torch.ones(2, device=DEVICE), 1, generator=torch.Generator())",
    "torch.bernoulli(torch.ones(2, device=DEVICE), generator=torch.Generator())",
    "torch.normal(0.0, torch.ones(2, device=DEVICE), generator=torch.Generator())",
    "torch.Generator(DEVICE).set_state(torch.Generator().get_state())",
    "torch.Generator(DEVICE).set_state(torch.zeros(16))",
    "g = torch.Generator(DEVICE)\ng.set_state(g.get_state().to(DEVICE))",
    "torch.Generator(DEVICE).set_offset(3)",
    "torch.Generator().set_offset(4)",
    "torch.Generator(DEVICE).graphsafe_set_state(torch.Generator())",
    "torch.Generator(DEVICE).manual_seed(-1).initial_seed()",
    "torch.Generator(DEVICE).manual_seed(2**64)",
    "next(iter(torch.utils.data.DataLoader([1, 2], shuffle=True, generator=torch.Generator(DEVICE))))",
]

SAVED = """\
import io
def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file
"""

LOADING = [
    SAVED + expression
    for expression in (
        "torch.load(saved(torch.ones(1)), map_location=f'{DEVICE}:7')",
        "torch.load(saved(torch.ones(1, device=DEVICE)), map_location={f'{DEVICE}:0': f'{DEVICE}:7'})",
        "torch.load(saved(torch.ones(1, device=DEVICE)), map_location={f'{DEVICE}:0': 'cpu'})",
        "torch.load(saved(torch.ones(1)), map_location={'cpu': DEVICE})",
        "torch.load(saved(torch.ones(1, device=DEVICE)), map_location='nope')",
        "torch.load(saved(torch.ones(1, device=DEVICE)), map_location='meta')",
        "torch.load(saved(torch.ones(1)), map_location=torch.device(DEVICE, 0))",
        "torch.load(saved(torch.ones(1)), map_location=lambda storage, _: storage.to(device=DEVICE))",
        "torch.load(saved(torch.Generator(DEVICE)), weights_only=False).device.type",
    )
]

TRAINING = [
    # Autograd
    "torch.ones(2, device=DEVICE, dtype=torch.int64, requires_grad=True)",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\na.add_(1)",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\na.to('cpu', copy=True).is_leaf",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\n(a * 2).backward()",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\nb = a.exp()\nb.add_(1)\nb.sum().backward()",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\nb = (a * a).sum()\nb.backward()\nb.backward()",
    "a = torch.ones(2, requires_grad=True)\nb = a.to(DEVICE)\nb.sum().backward()\n(a.grad, b.grad)",
    "a = torch.ones(2, device=DEVICE, requires_grad=True)\ntorch.add(a, 1, out=torch.empty(2, device=DEVICE))",
    # autocast
    "with torch.autocast(DEVICE, dtype=torch.float32):\n    found = torch.is_autocast_enabled(DEVICE)\nfound",
    "with torch.autocast(DEVICE, dtype=torch.int32):\n    found = torch.is_autocast_enabled(DEVICE)\nfound",
    "with torch.autocast(DEVICE, dtype=torch.float64):\n    found = torch.is_autocast_enabled(DEVICE)\nfound",
    "torch.autocast(DEVICE, dtype='float16')",
    "torch.autocast(f'{DEVICE}:0')",
    "torch.autocast(torch.device(DEVICE))",
    "torch.autocast('nope')",
    "torch.is_autocast_enabled('nope')",
    "a = torch.ones(2, device=DEVICE)\nwith torch.autocast(DEVICE):\n    F.binary_cross_entropy(a, a)",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n    torch.mm(a, a, out=a.clone())",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n"
    "    found = torch.mm(a.double(), a.double())\nfound",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n    found = torch.mm(a, a.double())\nfound",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n"
    "    found = torch.ones(2, 2) @ torch.ones(2, 2)\nfound",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast('cpu'):\n    found = a @ a\nfound",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n    a @ torch.ones(2, 2)",
    "a = torch.ones(2, 2, device=DEVICE)\nwith torch.autocast(DEVICE):\n    found = a.long() @ a.long()\nfound",
    "torch.cuda.amp.autocast().fast_dtype",
    "torch.cuda.amp.GradScaler().get_scale()",
    "torch.amp.custom_fwd(device_type=f'{DEVICE}:0')(lambda ctx: None)",
    "torch.amp.custom_fwd(lambda ctx: None, device_type=None)",
    # torch.nn modules
    "torch.nn.Linear(2, 2).to(f'{DEVICE}:7')",
    "torch.nn.Linear(2, 2).to(DEVICE, torch.int32)",
    "torch.nn.Linear(2, 2, device='meta').to(DEVICE)",
    "torch.ones(2, device='meta').to(DEVICE)",
    "torch.nn.Linear(2, 2, device=DEVICE)(torch.ones(2))",
    "torch.nn.Linear(2, 2, device=DEVICE)(torch.ones(1, 2))",
    "torch.nn.Linear(2, 2)(torch.ones(1, 2, device=DEVICE))",
    "torch.nn.Linear(2, 2, bias=False)(torch.ones(1, 2, device=DEVICE))",
    "torch.nn.Linear(2, 2)(torch.ones(1, 1, 2, device=DEVICE))",
    "torch.nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2, device=DEVICE))",
    "torch.nn.Conv2d(1, 1, 1, device=DEVICE)(torch.ones(1, 1, 2, 2))",
    "torch.nn.Conv2d(1, 1, 1, device=DEVICE)(torch.ones(1, 1, 2, 2, device=DEVICE).half())",
    "torch.nn.ConvTranspose2d(1, 1, 1, device=DEVICE)(torch.ones(1, 1, 2, 2))",
    "torch.nn.BatchNorm1d(2)(torch.ones(2, 2, device=DEVICE))",
    "torch.nn.BatchNorm1d(2).eval()(torch.ones(2, 2, device=DEVICE))",
    "torch.nn.BatchNorm1d(2, device=DEVICE)(torch.ones(2, 2))",
    "torch.nn.LayerNorm(2)(torch.ones(2, 2, device=DEVICE))",
    "torch.nn.LayerNorm(2, device=DEVICE)(torch.ones(2, 2))",
    "torch.nn.GroupNorm(1, 2)(torch.ones(2, 2, device=DEVICE))",
    "torch.nn.RMSNorm(2)(torch.ones(2, 2, device=DEVICE))",
    "torch.nn.Embedding(2, 2, device=DEVICE)(torch.tensor([0]))",
    "torch.nn.Embedding(2, 2)(torch.tensor([0], device=DEVICE))",
    "torch.nn.EmbeddingBag(2, 2, device=DEVICE)(torch.tensor([[0]]))",
    "torch.nn.PReLU()(torch.ones(2, device=DEVICE))",
    "torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2, device=DEVICE))",
    "torch.nn.LSTM(2, 2, device=DEVICE)(torch.ones(1, 1, 2))",
    "torch.nn.GRU(2, 2, device=DEVICE)(torch.ones(1, 1, 2, device=DEVICE), torch.ones(1, 1, 2))",
    "torch.nn.MultiheadAttention(2, 1, device=DEVICE)(*[torch.ones(1, 1, 2)] * 3)",
    "n, i = torch.nn.CrossEntropyLoss(weight=torch.ones(2)), torch.tensor([0], device=DEVICE)\n"
    "n(torch.ones(1, 2, device=DEVICE), i)",
    "n = torch.nn.Linear(2, 2, device=DEVICE)\n"
    "n.load_state_dict(torch.nn.Linear(2, 2).state_dict())\nn.weight.device.type",
    "n = torch.nn.Linear(2, 2)\nn.weight = torch.ones(2, 2, device=DEVICE)",
    "n = torch.nn.Linear(2, 2)\nn.weight.data = torch.ones(2, 2, device=DEVICE)\nn.weight.device.type",
    "n = torch.nn.Linear(2, 2)\nn(torch.ones(2)).sum().backward()\nn.to(DEVICE)\nn.weight.grad.device.type",
    # torch.nn.parallel
    "torch.cuda.is_available()\ntorch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 7])",
    "torch.cuda.is_available()\ntorch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[7])",
    "torch.cuda.is_available()\ntorch.nn.DataParallel(torch.nn.Linear(2, 2), [0]).module.weight.device.type",
    "torch.cuda.is_available()\ntorch.nn.DataParallel(torch.nn.Linear(2, 2), [0])(torch.ones(1, 2)).device.type",
    "torch.cuda.is_available()\n"
    "n = torch.nn.DataParallel(torch.nn.Linear(2, 2), [0])\nn.module.cpu()\nn(torch.ones(1, 2))",
    "torch.cuda.is_available()\ntorch.nn.parallel.replicate(torch.nn.Linear(2, 2), [0])",
    "torch.cuda.is_available()\ntorch.nn.parallel.comm.reduce_add([torch.ones(2), torch.ones(2, device=DEVICE)])",
    "torch.cuda.is_available()\ntorch.nn.parallel.comm.broadcast(torch.ones(2), [0, 7])",
    "torch.cuda.is_available()\ntorch.nn.parallel.comm.scatter(torch.ones(2), [0])",
    "torch.cuda.is_available()\ntorch.nn.parallel.comm.gather([torch.ones(2)], destination=0)",
]

OPTIMIZER = """\
p = torch.nn.Parameter(torch.ones(2, device=DEVICE))
p.grad = torch.ones_like(p)
q = torch.nn.Parameter(torch.ones(2))
q.grad = torch.ones_like(q)
"""

OPTIMIZERS = [
    OPTIMIZER + expression
    for expression in (
        "torch.optim.SGD([p, q], 0.5).step()\n(p.data, q.data)",
        "torch.optim.SGD([p, q], 0.5, foreach=True).step()\n(p.data, q.data)",
        "torch.optim.SGD([p, q], 0.5, fused=True).step()\n(p.data, q.data)",
        "torch.optim.Adam([p], fused=True, foreach=True)",
        "torch.optim.Adam([p], fused=True, differentiable=True)",
        "torch.optim.Adam([p], lr=torch.tensor(0.5, device=DEVICE), foreach=True)",
        "torch.optim.Adam([p], lr=torch.tensor(0.5), fused=True).step()\np.data",
        "torch.optim.Adam([p], lr=torch.tensor(0.5, device=DEVICE)).step()\np.data",
        "torch.optim.Adam([q], lr=torch.tensor(0.5, device=DEVICE)).step()\nq.data",
        "torch.optim.Adam([q], capturable=True).step()",
        "torch.optim.Adam([p], 0.5, capturable=True).step()\np.data",
        "o = torch.optim.Adam([p])\no.step()\no.state[p]['step']",
        "o = torch.optim.Adam([p], fused=True)\no.step()\no.state[p]['step']",
        "o = torch.optim.Adam([p], capturable=True, foreach=True)\no.step()\n"
        "o.state[p]['step'] = torch.ones(())\no.step()",
        "torch.optim.Adam([torch.ones(2, device=DEVICE, dtype=torch.complex64, requires_grad=True)], fused=True)",
        "torch.optim.Adam([torch.ones(2, device='meta', requires_grad=True)], fused=True)",
        "torch.optim.RMSprop([p], fused=True)",
        "torch.optim.Adagrad([p], fused=True).step()",
        "torch.optim.SGD([p * 2], 0.5)",
        "torch.optim.SGD([p, p], 0.5)",
        "torch.optim.LBFGS([p, q]).step(lambda: (p.sum(), p.sum().backward())[0])",
    )
]

SCALER = """\
p = torch.nn.Parameter(torch.ones(2, device=DEVICE))
o = torch.optim.SGD([p], 0.5)
s = torch.amp.GradScaler(DEVICE, init_scale=4.0)
s.scale(p.sum()).backward()
"""

SCALERS = [
    SCALER + expression
    for expression in (
        "s.unscale_(o)\ns.unscale_(o)",
        "s.step(o)\ns.unscale_(o)",
        "s.step(o)\ns.step(o)",
        "s.update()",
        "s.step(o)\ns.update()\n(p.data, s.get_scale())",
        "p.grad = None\ns.step(o)",
        "s.step(o, closure=lambda: 0)",
        "s.update(new_scale=torch.ones(1))",
        "s.update(new_scale=torch.ones(2, device=DEVICE))",
        "s.update(new_scale=torch.ones(1, device=DEVICE, dtype=torch.half))",
        "s.load_state_dict({})",
        "s.scale([1, 2])",
        "s.scale([torch.ones(2), p.sum().detach()])",
        "s.unscale_(torch.optim.SGD([torch.ones(2, device=DEVICE, requires_grad=True)], 0.5))\ns.get_scale()",
        "h = torch.ones(2, device=DEVICE, dtype=torch.half, requires_grad=True)\nh.grad = h.detach()\n"
        "s.unscale_(torch.optim.SGD([h], 0.5))",
        "q = torch.ones(2, requires_grad=True)\nq.grad = q.detach() * 4\ns.unscale_(torch.optim.SGD([q], 0.5))\nq.grad",
        "p.grad = torch.full_like(p, float('inf'))\ns.step(o)\ns.update()\n(p.data, s.get_scale())",
        "import pickle\ns.step(o)\npickle.dumps(s)",
    )
] + [
    "torch.amp.GradScaler(DEVICE).update()",
    "torch.amp.GradScaler(DEVICE).unscale_(torch.optim.SGD([torch.ones(2, device=DEVICE, requires_grad=True)], 0.5))",
    "torch.amp.GradScaler(DEVICE).scale(torch.ones(2)).device.type",
    "torch.amp.GradScaler(DEVICE, growth_factor=0.5)",
    "torch.amp.GradScaler(DEVICE, enabled=False).get_scale()",
    "torch.amp.GradScaler('nope')",
]

PROGRAMS = [*TWO_DEVICES, *HOST, *DTYPES, *SHAPES, *DEVICES, *LOADING, *TRAINING, *OPTIMIZERS, *SCALERS]
