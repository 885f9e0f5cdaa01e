"""Level 2: operators, in cases that PyTorch's databases do not have. `sweep` has the cases of the databases."""

import torch

from ..kit import (
    NotOffered,
    accepted,
    equal,
    note,
    out_is_resized,
    python,
    raises,
    read_if_lazy,
    refused,
    same,
    taken_or_refused,
    usable,
)
from ..registry import Topic

dispatch = Topic(
    "operators/dispatch",
    why="Programs do not only call an operator on two tensors. They also use out=, in-place operators, views, Python "
    "numbers, mixed dtypes and foreach operators, and each of these has its own path to the kernel.",
    defined="aten/src/ATen/native/README.md; ATen/TensorIterator.h; torchgen's structured kernels",
    chapter="operators",
)


@dispatch.check()
def types_are_promoted(device):
    """An operator on two dtypes, or on a tensor and a Python number, gives a result of the same dtype as on the CPU."""
    i, f = torch.arange(3).to(device), torch.ones(3).to(device)
    equal((i + f).dtype, torch.float32)
    equal((i / 2).dtype, torch.float32)
    equal((i * 2).dtype, torch.int64)
    equal((i > 1).dtype, torch.bool)
    same(i / 2, torch.arange(3) / 2)


@dispatch.check()
def numbers_are_operands(device):
    """Comparisons, clamps and powers with Python numbers agree with the CPU, in place too."""
    x = torch.tensor([-1.0, 1.0, 2.5])
    y = x.to(device)
    for f in (lambda t: t == 1, lambda t: t != 1, lambda t: t < 1, lambda t: t <= 1, lambda t: t > 1, lambda t: t >= 1,
              lambda t: t.clamp(0, 1), lambda t: t.clamp_min(0), lambda t: t.clamp_max(1), lambda t: t.clone().clamp_(0, 2),
              lambda t: t.clone().relu_(), lambda t: t**2, lambda t: 2**t, lambda t: t % 2, lambda t: 1 - t, lambda t: t.lerp(t + 1, 0.5),
              lambda t: torch.ops.aten.norm.ScalarOpt_dim(t, 2, [0])):  # fmt: skip
        same(f(y), f(x))


@dispatch.check()
def operands_are_broadcast(device):
    """Operands of different shapes are broadcast against each other."""
    x, y = torch.arange(3.0).to(device).view(3, 1), torch.arange(4.0).to(device)
    same(x * y, torch.arange(3.0).view(3, 1) * torch.arange(4.0))


@dispatch.check()
def out_is_written_and_returned(device):
    """The tensor out= is written and returned."""
    x, out = torch.arange(4.0).to(device), torch.zeros(4).to(device)
    assert torch.add(x, 1, out=out) is out
    same(out, torch.arange(4.0) + 1)


@dispatch.check()
def an_empty_out_is_resized(device):
    """The tensor out= is resized if it has no elements."""
    out = torch.empty(0, device=device)
    torch.add(torch.arange(4.0).to(device), 1, out=out)
    same(out, torch.arange(4.0) + 1)


@dispatch.check()
def a_strided_out_is_written(device):
    """If out= is a view with gaps, only the elements of the view are written."""
    base = torch.zeros(4, 2).to(device)
    torch.mul(torch.arange(4.0).to(device), 2, out=base[:, 0])
    same(base, torch.stack([torch.arange(4.0) * 2, torch.zeros(4)], 1))


@dispatch.check()
def an_out_of_a_wrong_dtype_raises(device):
    """A result that cannot be cast to the dtype of out= raises."""
    x, out = torch.arange(4.0).to(device), torch.zeros(4, dtype=torch.int64).to(device)
    with raises(RuntimeError, "can't be cast|dtype"):
        read_if_lazy(torch.add(x, 0.5, out=out))


@dispatch.check()
def in_place_keeps_the_tensor(device):
    """An in-place operator writes the tensor itself, also through a view."""
    x = torch.ones(4).to(device)
    assert x.add_(1) is x
    x[1:3].mul_(5)
    same(x, torch.tensor([2.0, 10.0, 10.0, 2.0]))


@dispatch.check()
def in_place_keeps_the_dtype(device):
    """An in-place operator raises if its result cannot be cast to the dtype of the tensor."""
    x = torch.ones(3, dtype=torch.int64).to(device)
    with raises(RuntimeError, "can't be cast"):
        read_if_lazy(x.add_(0.5))


@dispatch.check()
def overlapping_memory_is_refused(device):
    """Writing in place to an expanded tensor raises."""
    with raises(RuntimeError, "single memory location|overlap"):
        read_if_lazy(torch.ones(1).to(device).expand(4).add_(1))
    usable(device)


@dispatch.check(issue="pytorch/pytorch#102081")
def indexing_reads_and_writes(device):
    """Reading, writing and accumulating through index tensors, masks and lists agree with the CPU."""
    x = torch.arange(12.0).reshape(3, 4)
    y = x.to(device)
    rows, mask = torch.tensor([2, 0]), x > 5
    same(y[rows.to(device)], x[rows])
    same(y[mask.to(device)], x[mask])
    same(y[[0, 2], [1, 3]], x[[0, 2], [1, 3]])
    for t, r, m in ((x, rows, mask), (y, rows.to(device), mask.to(device))):
        t[r] = 7
        t[m] *= 2
        t.index_put_((r, r), torch.ones(2, device=t.device), accumulate=True)
    same(y, x)


@dispatch.check("not_the_host")
def index_tensors_of_the_cpu_are_taken(device):
    """A tensor of the device may be indexed by an index tensor of the CPU, as on CUDA."""
    x = torch.arange(4.0).to(device)
    accepted(lambda: x[torch.tensor([3, 1])], torch.tensor([3.0, 1.0]))


@dispatch.check()
def reductions_agree(device):
    """sum, mean, max, any, all, std, logsumexp, cumsum, sort and argsort along each dimension agree with the CPU."""
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    y = x.to(device)
    for dim in (0, 1, 2):
        for f in (lambda t: t.sum(dim), lambda t: t.mean(dim), lambda t: list(t.max(dim)), lambda t: (t > 0).any(dim),
                  lambda t: t.std(dim), lambda t: t.cumsum(dim), lambda t: t.argsort(dim), lambda t: list(t.sort(dim)),
                  lambda t: t.logsumexp(dim), lambda t: (t > -9).all(dim)):  # fmt: skip
            same(f(y), f(x))


@dispatch.check()
def a_large_reduction_is_right(device):
    """The sum of four million elements is right. GPUs usually add so many elements in two steps."""
    equal(torch.ones(4 << 20).to(device).sum().item(), float(4 << 20))
    equal(torch.ones(2048, 2048).to(device).sum(0).max().item(), 2048.0)


@dispatch.check()
def foreach_operators_agree(device):
    """_foreach_add, _foreach_mul_ and _foreach_norm give the results of a loop over the tensors."""
    xs = [torch.full((n,), float(n)).to(device) for n in (1, 2, 3)]
    for got, n in zip(torch._foreach_add(xs, 1), (1, 2, 3), strict=True):
        same(got, torch.full((n,), n + 1.0))
    torch._foreach_mul_(xs, 2)
    same(xs[2], torch.full((3,), 6.0))
    same(torch._foreach_norm(xs)[0], torch.tensor(2.0))


@dispatch.check()
def results_depend_on_data(device):
    """nonzero, unique, masked_select, repeat_interleave and bincount give the CPU's sizes and values."""
    x = torch.tensor([0, 3, 0, 3, 5])
    y = x.to(device)
    for f in (torch.nonzero, torch.unique, lambda t: t.masked_select(t > 0), lambda t: t.repeat_interleave(2),
              lambda t: torch.bincount(t)):  # fmt: skip
        same(f(y), f(x))


@dispatch.check()
def linear_algebra_agrees(device):
    """solve, cholesky, inv, det, qr and eigvalsh agree with the CPU."""
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    x = x @ x.t() + 4 * torch.eye(4)
    y = x.to(device)
    la = torch.linalg
    for f in (la.cholesky, la.inv, la.det, la.eigvalsh, lambda t: la.solve(t, t[:, :1]), lambda t: la.qr(t)[1].abs()):
        same(f(y), f(x), rtol=1e-3, atol=1e-3)


@dispatch.check(defined="torch/linalg/__init__.py: svd; aten/src/ATen/native/BatchLinearAlgebra.cpp: linalg_svd")
def cudas_drivers_of_svd_are_taken(device):
    """linalg.svd takes the names of CUDA's drivers, as programs for CUDA give them, and has the CPU's singular values."""
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    y, expected = x.to(device), torch.linalg.svdvals(x)
    for driver in ("gesvd", "gesvdj", "gesvda"):
        if torch.device(device).type == "cpu":
            raise NotOffered("drivers are for devices beside the CPU")
        accepted(lambda: torch.linalg.svd(y, full_matrices=False, driver=driver)[1], expected)
        out = [torch.empty(0, device=device) for _ in range(3)]
        accepted(lambda: torch.linalg.svd(y, full_matrices=False, driver=driver, out=out)[1], expected)


@dispatch.check(defined="aten/src/ATen/native/TensorFactories.cpp")
def windows_agree(device):
    """The windows of signal processing, which are made on the device, have the CPU's numbers."""
    for make in (torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window):
        same(make(7, device=device), make(7))


@dispatch.check(defined="aten/src/ATen/native/TensorFactories.cpp: kaiser_window_stub")
def the_kaiser_window_agrees(device):
    """torch.kaiser_window, for which a device fills a stub of PyTorch, has the CPU's numbers."""
    try:
        found = torch.kaiser_window(7, device=device)
    except RuntimeError as error:
        if "missing kernel" in str(error):
            raise NotOffered(str(error).splitlines()[-1]) from error
        raise
    same(found, torch.kaiser_window(7))


@dispatch.check("not_the_host")
def out_on_another_device_is_refused(device):
    """add refuses out= on another device."""
    x = torch.ones(3).to(device)
    with raises(RuntimeError, "(?i)device|Attempting to copy"):
        torch.add(x, x, out=torch.empty(3))
    usable(device)


@dispatch.check("not_the_host")
def operators_refuse_a_second_device(device):
    """cat, linear, where and index_select refuse 1-D and 2-D tensors of the CPU."""
    x, mask = torch.ones(3).to(device), torch.tensor([True, False, True]).to(device)
    refused(lambda: torch.cat([x, torch.ones(3)]))
    refused(lambda: torch.nn.functional.linear(x.view(1, 3), torch.ones(2, 3)))
    refused(lambda: torch.where(mask, x, torch.ones(3)))
    refused(lambda: x.index_select(0, torch.tensor([0])))
    usable(device)


@dispatch.check("complex64")
def lazily_conjugated_operands(device):
    """Operators on x.conj() and on a lazily negated tensor give the CPU's values."""
    host = torch.tensor([1 + 2j, 3 - 1j])
    x = host.to(device)
    same(x.conj() * x, host.conj() * host)
    same(x.clone().conj_physical_(), host.clone().conj_physical_())
    same(x.conj().imag + 1, host.conj().imag + 1)
    same(torch.dot(x.conj(), x), torch.dot(host.conj(), host))


@dispatch.check("storage")
def sparse_tensors(device):
    """Sparse COO tensors can be made, multiplied and made dense. Sparse CSR tensors can be made and made dense."""
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    y = x.to(device)
    try:
        sparse = y.to_sparse()
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    same(sparse.to_dense(), x)
    with torch.sparse.check_sparse_tensor_invariants():
        parts = sparse.coalesce()
        same(torch.sparse_coo_tensor(parts.indices(), parts.values(), (2, 2), is_coalesced=True).to_dense(), x)
    same(torch.sparse.mm(sparse, y), x @ x)
    same(y.to_sparse_csr().to_dense(), x)


@dispatch.check("storage")
def quantized_tensors(device):
    """A tensor can be quantized and dequantized."""
    x = torch.tensor([0.0, 1.0, 2.0])
    try:
        q = torch.quantize_per_tensor(x.to(device), 0.5, 0, torch.quint8)
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    same(q.dequantize(), x)
    equal(q.int_repr().tolist(), [0, 2, 4])


@dispatch.check("storage")
def nested_tensors(device):
    """A jagged nested tensor can be made on the device. After a multiplication by 2, each of its parts is doubled."""
    parts = [torch.ones(2, 3).to(device), torch.full((4, 3), 2.0).to(device)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    same(list((nested * 2).unbind()), [2 * part.cpu() for part in parts])


@dispatch.check("storage", defined="aten/src/ATen/native/nested/NestedTensorMath.cpp")
def nested_tensors_of_one_buffer(device):
    """A nested tensor is made of a padded tensor and a mask, or is a view of a buffer. Its sizes are on the CPU."""
    padded = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    parts = torch.nested.nested_tensor([padded[0, :2], padded[1]])
    sizes = parts._nested_tensor_size(), parts._nested_tensor_strides(), parts._nested_tensor_storage_offsets()
    buffer = torch.cat([padded[0, :2].reshape(-1), padded[1].reshape(-1)])
    try:
        of_mask = torch._nested_tensor_from_mask(padded.to(device), mask.to(device))
        of_sizes = torch._nested_from_padded(padded.to(device), sizes[0])
        of_buffer = torch._nested_view_from_buffer(buffer.to(device), *sizes)
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    for nested in (of_mask, of_sizes, of_buffer):
        same([part.cpu() for part in nested.unbind()], [padded[0, :2], padded[1]])


outputs = Topic(
    "operators/out",
    why="PyTorch checks out= in the kernels of its own devices. A kernel that a backend registers for the form with out= "
    "replaces this check. Without a check of its own, the kernel writes past the end of a smaller out=, into the memory "
    "of other tensors. Given a CPU tensor, it uses an address of the host as if it were memory of the device.",
    defined="torchgen/dest/register_dispatch_key.py: gen_class_set_output_functions; ATen/native/Resize.cpp",
    chapter="from-minimal",
    needs=("not_the_host",),
)


@outputs.check("storage")
def add_resizes_its_output(device):
    """torch.add gives out= the size of the sum. It changes no other element of the tensor that out= is a part of."""
    out_is_resized(device, torch.add, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0.5, -0.5]))


@outputs.check("storage")
def sum_resizes_its_output(device):
    """torch.sum gives out= the size of the sum. It changes no other element of the tensor that out= is a part of."""
    out_is_resized(device, lambda x, out: torch.sum(x, 0, out=out), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


@outputs.check("storage")
def mm_resizes_its_output(device):
    """torch.mm gives out= the size of the product. It changes no other element of the tensor that out= is a part of."""
    out_is_resized(
        device, torch.mm, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.5, 1.0, 2.0], [1.0, -1.0, 0.0]])
    )


@outputs.check()
def add_refuses_an_output_of_the_cpu(device):
    """torch.add of tensors of the device raises if out= is on the CPU, and out= keeps its values."""
    x, out = torch.ones(3).to(device), torch.zeros(3)
    with raises((RuntimeError, TypeError)):
        torch.add(x, x, out=out)
    same(out, torch.zeros(3))


@outputs.check()
def sum_refuses_an_output_of_the_cpu(device):
    """torch.sum of a tensor of the device raises if out= is on the CPU, and out= keeps its values."""
    x, out = torch.ones(2, 3).to(device), torch.zeros(3)
    with raises((RuntimeError, TypeError)):
        torch.sum(x, 0, out=out)
    same(out, torch.zeros(3))


@outputs.check()
def mm_refuses_an_output_of_the_cpu(device):
    """torch.mm of matrices of the device raises if out= is on the CPU, and out= keeps its values."""
    x, out = torch.ones(2, 2).to(device), torch.zeros(2, 2)
    with raises((RuntimeError, TypeError)):
        torch.mm(x, x, out=out)
    same(out, torch.zeros(2, 2))


mixed = Topic(
    "operators/mixed",
    why="Programs mix scalars, indices and masks of the CPU with tensors of the device. CUDA accepts some mixes. If a "
    "device accepts fewer mixes than CUDA, these programs fail. If it accepts more, its kernels get addresses of the "
    "CPU's memory, which they cannot read.",
    defined="ATen/TensorIterator.cpp, compute_types; ATen/native/TensorAdvancedIndexing.cpp, ATen/native/cuda",
    chapter="operators",
    needs=("not_the_host",),
)


@mixed.check()
def one_scalar_of_the_cpu_is_an_operand(device):
    """A binary operator on the device accepts a 0-dim tensor of the CPU as its second operand."""
    i, two, true = torch.arange(3).to(device), torch.tensor(2), torch.tensor(True)
    b, host = torch.tensor([False, True, True]).to(device), torch.tensor([False, True, True])
    for op in ("floor_divide", "__lshift__", "__rshift__", "floor_divide_", "__ilshift__", "__irshift__"):
        accepted(lambda op=op: getattr(i.clone(), op)(two), getattr(torch.arange(3), op)(two))
    accepted(lambda: torch.rsub(i, two), 2 - torch.arange(3))
    accepted(lambda: torch.floor_divide(i, two, out=i.clone()), torch.arange(3) // 2)
    for op in (torch.logical_and, torch.logical_or, torch.logical_xor):
        accepted(lambda op=op: op(b, true), op(host, true))
        accepted(lambda op=op: op(b, true, out=torch.zeros(3, dtype=torch.bool).to(device)), op(host, true))


@mixed.check()
def a_tensor_of_the_cpu_is_no_operand(device):
    """Division, shifts and rsub on the device refuse a 1-dim tensor of the CPU as operand or as out=."""
    i, ones = torch.arange(3).to(device), torch.ones(3, dtype=torch.int64)
    for op in ("floor_divide", "__lshift__", "__rshift__", "floor_divide_", "__ilshift__", "__irshift__"):
        refused(lambda op=op: getattr(i.clone(), op)(ones))
    refused(lambda: torch.rsub(i, ones))
    refused(lambda: torch.floor_divide(i, torch.tensor(2), out=torch.zeros(3, dtype=torch.int64)))


@mixed.check()
def logical_operators_refuse_the_cpu(device):
    """logical_and, logical_or and logical_xor on the device refuse a 1-dim tensor of the CPU as operand or as out=."""
    host = torch.tensor([False, True, True])
    b = host.to(device)
    for op in (torch.logical_and, torch.logical_or, torch.logical_xor):
        refused(lambda op=op: op(b, host))
        refused(lambda op=op: op(b, host, out=b.clone()))
        refused(lambda op=op: op(b, b, out=host.clone()))


@mixed.check()
def a_scalar_of_the_cpu_is_not_copied_to_out(device):
    """A pointwise operator of one operand refuses out= on another device, for a 0-dim operand too."""
    on, off = torch.tensor(0.5).to(device), torch.tensor(0.5)
    many = torch.tensor([0.5, 1.5])
    for op in (torch.abs, torch.angle, torch.logical_not, torch._C._nn.hardswish, torch._C._nn.hardtanh,
               lambda x, out: torch.clamp(x, 0, 1, out=out)):  # fmt: skip
        for operand, out in ((off, on), (on, off), (many, many.to(device)), (many.to(device), many)):
            refused(lambda op=op, operand=operand, out=out: op(operand, out=out.clone()))
    usable(device)


@mixed.check()
def a_reduction_refuses_out_on_another_device(device):
    """std, var, max, min, norm, mode and renorm refuse out= on another device, for a 0-dim operand too."""
    on, off = torch.tensor(0.5).to(device), torch.tensor(0.5)
    many, norm, index = torch.tensor([0.5, 1.5]), torch.ops.aten.norm.dtype_out, torch.zeros((), dtype=torch.int64)
    for op in (torch.std, torch.var):
        for operand, out in ((many, on), (many.to(device), off), (off, on)):
            refused(lambda op=op, operand=operand, out=out: op(operand, dim=0, correction=0, out=out.clone()))
    for op in (torch.max, torch.min, lambda x, out: norm(x, 2, [0], False, dtype=torch.float, out=out),
               lambda x, out: torch.mode(x, out=(out, index.to(out.device))),
               lambda x, out: torch.mode(x, out=(out, index.to(x.device)))):  # fmt: skip
        op(many.to(device), out=on.clone())
        for operand, out in ((many.to(device), off), (off, on)):
            refused(lambda op=op, operand=operand, out=out: op(operand, out=out.clone()))
    usable(device)


@mixed.check()
def the_refusal_of_an_output_names_its_device(device):
    """The errors of renorm and mode for out= on another device name the device that out= must have."""
    host = torch.tensor([0.5, 1.5])
    x, index = host.to(device), torch.zeros((), dtype=torch.int64)
    with raises(RuntimeError, "Expected out tensor to have device"):
        torch.renorm(x.view(2, 1), 2, 0, 1, out=host.view(2, 1).clone())
    with raises(RuntimeError, "expected device '.*' but got 'cpu' for values output"):
        torch.mode(x, out=(torch.tensor(0.5), index.to(device)))
    with raises(RuntimeError, "expected device '.*' but got 'cpu' for indices output"):
        torch.mode(x, out=(torch.tensor(0.5).to(device), index))
    usable(device)


@mixed.check(defined="ATen/native/cuda/PointwiseOpsKernel.cu: addcmul_cuda_kernel")
def only_the_last_factor_of_addcmul_is_a_scalar_of_the_cpu(device):
    """addcmul takes a 0-dim tensor2 of the CPU. It refuses a 0-dim self or tensor1 of the CPU, or computes with it."""
    host, two = torch.arange(3.0), torch.tensor(2.0)
    x = host.to(device)
    accepted(lambda: torch.addcmul(x, x, two), host * 3)
    accepted(lambda: torch.addcmul(x, x, two, out=x.clone()), host * 3)
    accepted(lambda: x.clone().addcmul_(x, two), host * 3)
    taken_or_refused(lambda: torch.addcmul(x, two, x), host * 3)
    taken_or_refused(lambda: torch.addcmul(x, two, x, out=x.clone()), host * 3)
    taken_or_refused(lambda: x.clone().addcmul_(two, x), host * 3)
    taken_or_refused(lambda: torch.addcmul(two, x, x), 2 + host * host)
    usable(device)


@mixed.check()
def indices_may_be_on_the_cpu(device):
    """Index tensors may be on the CPU if the indexed tensor is on the device, and index_put_ takes a 0-dim value."""
    x, host = torch.arange(3.0).to(device), torch.arange(3.0)
    i, at = torch.tensor([2, 0]).to(device), torch.tensor([2, 0])
    accepted(lambda: x[at], host[at])
    accepted(lambda: torch.ops.aten.index.Tensor_out(x, [at], out=torch.zeros(2).to(device)), host[at])
    accepted(lambda: x.clone().index_put_([at], torch.ones(2).to(device)), torch.tensor([1.0, 1.0, 1.0]))
    accepted(lambda: x.clone().index_put_([i], torch.tensor(7.0)), torch.tensor([7.0, 1.0, 7.0]))


@mixed.check()
def indexing_refuses_the_wrong_device(device):
    """A CPU tensor refuses indices on the device. Values and out= must be on the device of the indexed tensor."""
    x, host, i = torch.arange(3.0).to(device), torch.arange(3.0), torch.tensor([2, 0]).to(device)
    # CUDA computes host.index_put_([i], ...): at::native::_index_put_impl_ moves each index to the indexed tensor.
    refused(lambda: host[i])
    refused(lambda: x.clone().index_put_([i], torch.ones(2)))
    refused(lambda: torch.ops.aten.index.Tensor_out(x, [i], out=torch.zeros(2)))


@mixed.check()
def fills_take_a_value_of_the_cpu(device):
    """fill_, index_fill and masked_fill take a 0-dim value of the CPU."""
    x, seven = torch.arange(3.0).to(device), torch.tensor(7.0)
    i, mask = torch.tensor([1]).to(device), torch.tensor([False, True, False]).to(device)
    accepted(lambda: x.clone().fill_(seven), torch.full((3,), 7.0))
    accepted(lambda: torch.arange(3.0).fill_(seven.to(device)), torch.full((3,), 7.0))
    accepted(lambda: x.index_fill(0, i, seven), torch.tensor([0.0, 7.0, 2.0]))
    accepted(lambda: x.masked_fill(mask, seven), torch.tensor([0.0, 7.0, 2.0]))


@mixed.check()
def index_fill_refuses_the_wrong_device(device):
    """index_fill refuses an index on another device than the filled tensor."""
    x, seven, i = torch.arange(3.0).to(device), torch.tensor(7.0), torch.tensor([1])
    refused(lambda: x.index_fill(0, i, seven))
    refused(lambda: x.index_fill(0, i, 7.0))
    refused(lambda: x.index_fill(0, i[0], 7.0))
    refused(lambda: x.index_fill(0, i[0], seven.to(device)))
    refused(lambda: x.cpu().index_fill(0, i.to(device), 7.0))


@mixed.check()
def masked_fill_refuses_the_wrong_device(device):
    """masked_fill refuses a mask on another device than the filled tensor, and a CPU tensor a value of the device."""
    x, seven, mask = torch.arange(3.0).to(device), torch.tensor(7.0), torch.tensor([False, True, False])
    refused(lambda: x.masked_fill(mask[1], 7.0))
    refused(lambda: x.masked_fill(mask[1], seven.to(device)))
    refused(lambda: x.masked_fill(mask, seven.to(device)))
    refused(lambda: x.masked_fill(mask, 7.0))
    refused(lambda: x.cpu().masked_fill(mask.to(device), 7.0))
    refused(lambda: x.cpu().masked_fill_(mask, seven.to(device)))


@mixed.check()
def where_takes_scalars_of_the_cpu(device):
    """Each argument of torch.where may be a 0-dim tensor of the CPU."""
    host, one, mask = torch.arange(3.0), torch.tensor(1.0), torch.tensor([False, True, True])
    x, there = host.to(device), mask.to(device)
    accepted(lambda: torch.where(there, x, one), torch.where(mask, host, one))
    accepted(lambda: torch.where(there, one, one), torch.ones(3))
    accepted(lambda: torch.where(one > 0, x, x), host)
    accepted(lambda: torch.where(there, one, x, out=torch.zeros(3).to(device)), torch.where(mask, one, host))
    accepted(lambda: torch.where(there, one, one, out=torch.zeros(3).to(device)), torch.ones(3))


@mixed.check()
def where_refuses_the_wrong_device(device):
    """torch.where refuses a 1-dim tensor of the CPU beside tensors of the device, and out= on the CPU."""
    host, mask = torch.arange(3.0), torch.tensor([False, True, True])
    x, there = host.to(device), mask.to(device)
    refused(lambda: torch.where(mask, x, x))
    refused(lambda: torch.where(there, x, host))
    refused(lambda: torch.where(there, x, x, out=torch.zeros(3)))


@mixed.check()
def distributions_take_probabilities_of_the_cpu(device):
    """bernoulli on the device accepts probabilities on the CPU."""
    host = torch.tensor([1.0, 0.0, 1.0])
    accepted(lambda: torch.zeros(3).to(device).bernoulli_(host), host)
    accepted(lambda: torch.bernoulli(host, out=torch.zeros(3).to(device)), host)


@mixed.check()
def binomial_refuses_two_devices(device):
    """binomial refuses operands on two devices."""
    host = torch.tensor([1.0, 0.0, 1.0])
    # bernoulli_ of a CPU tensor with probabilities on the device is not tried: PyTorch's kernel for CPU tensors moves them.
    refused(lambda: torch.binomial(host.to(device), host))
    refused(lambda: torch.binomial(host, host.to(device)))
    refused(lambda: torch.binomial(host.to(device), torch.tensor(0.5)))


@mixed.check()
def losses_take_a_scalar_weight_of_the_cpu(device):
    """binary_cross_entropy takes a 0-dim weight of the CPU. The unused buffer of logsigmoid may be on any device."""
    aten, host = torch.ops.aten, torch.full((3,), 0.5)
    x, out = host.to(device), torch.tensor(0.0).to(device)
    expected = aten.binary_cross_entropy(host, host, torch.tensor(2.0))
    accepted(lambda: aten.binary_cross_entropy(x, x, torch.tensor(2.0)), expected)
    accepted(lambda: aten.binary_cross_entropy.out(x, x, torch.tensor(2.0), 1, out=out), expected)
    given = {"output": torch.zeros(3).to(device), "buffer": torch.zeros(3)}
    accepted(lambda: aten.log_sigmoid_forward.output(x, **given)[0], torch.nn.functional.logsigmoid(host))


@mixed.check()
def losses_refuse_the_wrong_device(device):
    """binary_cross_entropy and logsigmoid refuse targets, weights of one dimension and out= on another device."""
    aten, host = torch.ops.aten, torch.full((3,), 0.5)
    x, out = host.to(device), torch.tensor(0.0).to(device)
    refused(lambda: aten.binary_cross_entropy(x, host))
    refused(lambda: aten.binary_cross_entropy(x, x, host))
    refused(lambda: aten.binary_cross_entropy(x.mean(), host.mean()))
    refused(lambda: aten.binary_cross_entropy.out(x, host, None, 1, out=out))
    refused(lambda: aten.binary_cross_entropy.out(x.mean(), host.mean(), None, 1, out=out))
    refused(
        lambda: aten.log_sigmoid_forward.output(x, output=torch.zeros(3), buffer=torch.zeros(3).to(device)),
    )


@mixed.check()
def copies_and_questions_take_every_device(device):
    """copy_ copies in both directions. With tensors of two devices, is_set_to returns False."""
    x, host = torch.arange(3.0).to(device), torch.arange(3.0)
    same(torch.zeros(3).to(device).copy_(host), host)
    same(torch.zeros(3).copy_(x), host)
    assert not x.is_set_to(host) and not host.is_set_to(x)


@mixed.check("storage")
def set_refuses_memory_of_the_cpu(device):
    """set_ of a tensor of the device refuses a tensor of the CPU."""
    refused(lambda: torch.zeros(3).to(device).set_(torch.arange(3.0)))


@mixed.check()
def a_learning_rate_may_be_on_the_cpu(device):
    """A fused optimizer takes a learning rate that is a 0-dim tensor of the CPU."""
    for kind in (torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW):
        results = []
        for where in (device, "cpu"):
            p = torch.ones(3).to(where).requires_grad_()
            p.grad = torch.full_like(p, 0.5)
            try:
                kind([p], lr=torch.tensor(0.1), fused=True).step()
            except RuntimeError as error:
                if "fused" in str(error) and where != "cpu":
                    raise NotOffered(str(error)) from error
                raise
            results.append(p.detach())
        same(results[0], results[1])


@mixed.check()
def a_fused_step_refuses_a_flag_of_the_cpu(device):
    """If found_inf is 1 on the device, a fused step with a tensor lr changes no parameter. A CPU found_inf raises."""
    first, second = [torch.zeros(3).to(device)], [torch.zeros(3).to(device)]
    steps = [torch.ones(()).to(device)]
    adam = (first, second, [], steps), {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    sgd = (first,), {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
    adagrad = (first, steps), {"lr_decay": 0.0, "eps": 1e-8}
    for name, (lists, settings) in {"sgd": sgd, "adagrad": adagrad, "adam": adam, "adamw": adam}.items():
        settings = {**settings, "lr": torch.tensor(0.1).to(device), "weight_decay": 0.0, "maximize": False}
        p, grad = torch.ones(3).to(device), torch.ones(3).to(device)
        step = getattr(torch.ops.aten, f"_fused_{name}_").tensor_lr
        try:
            step([p], [grad], *lists, **settings, found_inf=torch.tensor(1.0).to(device))
        except NotImplementedError as error:
            raise NotOffered(str(error)) from error
        same(p, torch.ones(3))
        with raises(RuntimeError, "(?i)device"):
            step([p], [grad], *lists, **settings, found_inf=torch.tensor(1.0))
    usable(device)


custom = Topic(
    "operators/custom",
    why="Extensions register operators for the device's key from outside of the backend.",
    defined="torch/library.py; torch/_library/custom_ops.py; torch/csrc/utils/python_dispatch.cpp",
    chapter="first-operator",
)


@custom.check()
def a_custom_operator_runs(device):
    """A custom_op for the device's type computes on the device, and so does its registered backward."""
    type = torch.device(device).type

    @torch.library.custom_op("conformance::twice", mutates_args=(), device_types=type)
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, g: g * 2)
    x = torch.ones(3).to(device).requires_grad_()
    y = twice(x)
    same(y, torch.full((3,), 2.0))
    y.sum().backward()
    same(x.grad, torch.full((3,), 2.0))


@custom.check("private_use")
def a_kernel_can_be_registered_for_the_key(device):
    """A kernel that torch.library registers for PrivateUse1 runs for tensors of the device, and only for those."""
    library = torch.library.Library("conformance_key", "DEF")
    library.define("where(Tensor x) -> str")
    library.impl("where", lambda x: "device", "PrivateUse1")
    library.impl("where", lambda x: "cpu", "CPU")
    equal(torch.ops.conformance_key.where(torch.ones(1).to(device)), "device")
    equal(torch.ops.conformance_key.where(torch.ones(1)), "cpu")


@custom.check("private_use", why="An operator of a backend that lacks a kernel raises, or cannot be compiled.")
def the_backends_own_operators_have_their_kernels(device):
    """Each operator that the backend defines has a kernel. An operator of the device also has a meta kernel."""
    from torch._library.simple_registry import singleton

    names, has = torch._C._dispatch_get_all_op_names(), torch._C._dispatch_has_kernel_for_dispatch_key
    code = "import torch; print(*{name.split(':')[0] for name in torch._C._dispatch_get_all_op_names()})"
    of_torch = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split()
    spaces = {n.split(":")[0] for n in names if has(n, "PrivateUse1") or has(n, "AutogradPrivateUse1")}
    spaces -= {space for space in spaces if space in of_torch or space.startswith("conformance")}
    if not spaces:
        raise NotOffered("the backend defines no operators of its own")
    everywhere = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "Autograd")
    for name in (name for name in names if name.split(":")[0] in spaces):
        keys = [
            k
            for k in (*everywhere, "PrivateUse1", "AutogradPrivateUse1", "Meta", "CPU", "BackendSelect")
            if has(name, k)
        ]
        assert keys, f"{name} has no kernel: each call raises"
        assert keys != ["Meta"] and keys != ["AutogradPrivateUse1", "Meta"], f"{name} has no kernel for the device"
        fake = singleton.find(name).fake_impl.kernel or "Meta" in keys or any(key in keys for key in everywhere)
        if "PrivateUse1" in keys and not fake:
            note(f"{name} has no meta kernel, so torch.compile and torch.export refuse it")


@custom.check()
def a_dispatch_mode_sees_operators(device):
    """A TorchDispatchMode sees the operators that get tensors of the device, and may call them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.ones(3).to(device)
    with Log():
        x + x
    assert any("add" in name for name in seen), seen


@custom.check()
def func_transforms(device):
    """vmap, grad, jvp and functional_call give the CPU's results on tensors of the device."""
    x = torch.arange(6.0).to(device).reshape(2, 3)
    same(torch.vmap(lambda row: row.sum())(x), torch.tensor([3.0, 12.0]))
    same(torch.func.grad(lambda t: (t**2).sum())(x), 2 * torch.arange(6.0).reshape(2, 3))
    same(torch.func.jvp(lambda t: t * 3, (x,), (torch.ones_like(x),))[1], torch.full((2, 3), 3.0))
    layer, weights = torch.nn.Linear(3, 1), {"weight": torch.ones(1, 3), "bias": torch.ones(1)}
    moved = {name: weight.to(device) for name, weight in weights.items()}
    same(torch.func.functional_call(layer, moved, x), torch.func.functional_call(layer, weights, x.cpu()))


@custom.check()
def deterministic_algorithms(device):
    """After torch.use_deterministic_algorithms(True), index_add gives the same result twice, or raises."""
    torch.use_deterministic_algorithms(True)
    try:
        index = torch.tensor([0, 1, 0, 1]).to(device)
        found = [torch.zeros(2).to(device).index_add(0, index, torch.ones(4).to(device)) for _ in range(2)]
    except RuntimeError as error:
        assert "deterministic" in str(error), error
        return
    finally:
        torch.use_deterministic_algorithms(False)
    same(found[0], torch.full((2,), 2.0))
    same(found[1], found[0].cpu())
