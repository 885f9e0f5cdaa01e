"""Level 2: operators, in cases that PyTorch's databases do not have. `sweep` has the cases of the databases."""

import torch

from ..kit import NotOffered, equal, out_is_resized, raises, same, usable
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
    i, f = torch.arange(3, device=device), torch.ones(3, device=device)
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
    x, y = torch.arange(3.0, device=device).view(3, 1), torch.arange(4.0, device=device)
    same(x * y, torch.arange(3.0).view(3, 1) * torch.arange(4.0))


@dispatch.check()
def out_is_written_and_returned(device):
    """The tensor out= is written and returned, and it is resized if it has no elements. A wrong dtype raises."""
    x = torch.arange(4.0, device=device)
    out = torch.empty(0, device=device)
    assert torch.add(x, 1, out=out) is out
    same(out, torch.arange(4.0) + 1)
    strided = torch.zeros(4, 2, device=device)[:, 0]
    torch.mul(x, 2, out=strided)
    same(strided, torch.arange(4.0) * 2)
    with raises(RuntimeError, "can't be cast|dtype"):
        torch.add(x, 0.5, out=torch.empty(4, dtype=torch.int64, device=device))


@dispatch.check()
def in_place_keeps_the_tensor(device):
    """An in-place operator writes the tensor itself, also through a view. A result of another dtype raises."""
    x = torch.ones(4, device=device)
    assert x.add_(1) is x
    x[1:3].mul_(5)
    same(x, torch.tensor([2.0, 10.0, 10.0, 2.0]))
    with raises(RuntimeError, "can't be cast"):
        torch.ones(3, dtype=torch.int64, device=device).add_(0.5)


@dispatch.check()
def overlapping_memory_is_refused(device):
    """Writing in place to an expanded tensor raises."""
    with raises(RuntimeError, "single memory location|overlap"):
        torch.ones(1, device=device).expand(4).add_(1)
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
    x = torch.arange(4.0, device=device)
    same(x[torch.tensor([3, 1])], torch.tensor([3.0, 1.0]))


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
    equal(torch.ones(4 << 20, device=device).sum().item(), float(4 << 20))
    equal(torch.ones(2048, 2048, device=device).sum(0).max().item(), 2048.0)


@dispatch.check()
def foreach_operators_agree(device):
    """_foreach_add, _foreach_mul_ and _foreach_norm give the results of a loop over the tensors."""
    xs = [torch.full((n,), float(n), device=device) for n in (1, 2, 3)]
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


@dispatch.check("not_the_host")
def out_on_another_device_is_refused(device):
    """add refuses out= on another device. cat, linear, where and index_select refuse 1-D and 2-D tensors of the CPU."""
    x = torch.ones(3, device=device)
    with raises(RuntimeError, "(?i)device|Attempting to copy"):
        torch.add(x, x, out=torch.empty(3))
    with raises(RuntimeError, "(?i)device"):
        torch.cat([x, torch.ones(3)])
    with raises(RuntimeError, "(?i)device"):
        torch.nn.functional.linear(x.view(1, 3), torch.ones(2, 3))
    with raises(RuntimeError, "(?i)device"):
        torch.where(x > 0, x, torch.ones(3))
    with raises(RuntimeError, "(?i)device"):
        x.index_select(0, torch.tensor([0]))
    usable(device)


@dispatch.check()
def lazily_conjugated_operands(device):
    """Operators on x.conj() and on a lazily negated tensor give the CPU's values."""
    try:
        x = torch.tensor([1 + 2j, 3 - 1j], device=device)
    except (RuntimeError, TypeError) as error:
        raise NotOffered(f"complex64: {error}") from error
    host = torch.tensor([1 + 2j, 3 - 1j])
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
    parts = [torch.ones(2, 3, device=device), torch.full((4, 3), 2.0, device=device)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    same(list((nested * 2).unbind()), [2 * part.cpu() for part in parts])


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
    """A binary operator on the device accepts a 0-dim tensor of the CPU, and refuses other tensors of the CPU."""
    i, two = torch.arange(3, device=device), torch.tensor(2)
    b, true = i > 0, torch.tensor(True)
    for op in ("floor_divide", "__lshift__", "__rshift__", "floor_divide_", "__ilshift__", "__irshift__"):
        with_device, with_host = i.clone(), torch.arange(3)
        same(getattr(with_device, op)(two), getattr(with_host, op)(two))
        with raises(RuntimeError, "(?i)device"):
            getattr(i.clone(), op)(torch.ones(3, dtype=torch.int64))
    same(torch.rsub(i, two), 2 - torch.arange(3))
    with raises(RuntimeError, "(?i)device"):
        torch.rsub(i, torch.ones(3, dtype=torch.int64))
    for op in (torch.logical_and, torch.logical_or, torch.logical_xor):
        same(op(b, true), op(b.cpu(), true))
        same(op(b, true, out=torch.zeros_like(b)), op(b.cpu(), true))
        for refused in (lambda: op(b, b.cpu()), lambda: op(b, b.cpu(), out=b.clone()), lambda: op(b, b, out=b.cpu())):
            with raises(RuntimeError, "(?i)device"):
                refused()
    same(torch.floor_divide(i, two, out=i.clone()), torch.arange(3) // 2)
    with raises(RuntimeError, "(?i)device"):
        torch.floor_divide(i, two, out=torch.zeros(3, dtype=torch.int64))


@mixed.check()
def a_scalar_of_the_cpu_is_not_copied_to_out(device):
    """An operator of one operand refuses out= on another device, for a 0-dim operand too."""
    on, off = torch.full((), 0.5, device=device), torch.tensor(0.5)
    many = torch.tensor([0.5, 1.5])
    for op in (torch.abs, torch.angle, torch.logical_not, torch._C._nn.hardswish, torch._C._nn.hardtanh,
               lambda x, out: torch.clamp(x, 0, 1, out=out)):  # fmt: skip
        for operand, out in (
            (off, on.clone()),
            (on, off.clone()),
            (many, many.to(device)),
            (many.to(device), many.clone()),
        ):
            with raises(RuntimeError, "(?i)device"):
                op(operand, out=out)
    for op in (torch.std, torch.var):
        for operand, out in ((many, on.clone()), (many.to(device), off.clone()), (off, on.clone())):
            with raises(RuntimeError, "(?i)device"):
                op(operand, dim=0, correction=0, out=out)
    norm, index = torch.ops.aten.norm.dtype_out, torch.zeros((), dtype=torch.int64)
    for op in (torch.max, torch.min, lambda x, out: norm(x, 2, [0], False, dtype=torch.float, out=out),
               lambda x, out: torch.mode(x, out=(out, index.to(out.device))),
               lambda x, out: torch.mode(x, out=(out, index.to(x.device)))):  # fmt: skip
        op(many.to(device), out=on.clone())
        for operand, out in ((many.to(device), off.clone()), (off, on.clone())):
            with raises(RuntimeError, "(?i)device"):
                op(operand, out=out)
    with raises(RuntimeError, "(?i)device"):
        torch.renorm(many.to(device).view(2, 1), 2, 0, 1, out=many.view(2, 1).clone())
    usable(device)


@mixed.check()
def indices_may_be_on_the_cpu(device):
    """Index tensors may be on the CPU if the indexed tensor is on the device. A CPU tensor refuses device indices."""
    x, host = torch.arange(3.0, device=device), torch.arange(3.0)
    i, at = torch.tensor([2, 0], device=device), torch.tensor([2, 0])
    same(x[at], host[at])
    same(torch.ops.aten.index.Tensor_out(x, [at], out=torch.zeros(2, device=device)), host[at])
    same(x.clone().index_put_([at], torch.ones(2, device=device)), host.clone().index_put_([at], torch.ones(2)))
    same(x.clone().index_put_([i], torch.tensor(7.0)), host.clone().index_put_([at], torch.tensor(7.0)))
    # CUDA computes host.index_put_([i], ...): at::native::_index_put_impl_ moves each index to the indexed tensor.
    for refused in (lambda: host[i],
                    lambda: x.clone().index_put_([i], torch.ones(2)),
                    lambda: torch.ops.aten.index.Tensor_out(x, [i], out=torch.zeros(2))):  # fmt: skip
        with raises(RuntimeError, "(?i)device"):
            refused()


@mixed.check()
def fills_take_a_value_of_the_cpu(device):
    """fill_, index_fill_ and masked_fill_ take a 0-dim value of the CPU. Indices and masks of the CPU are refused."""
    x, seven = torch.arange(3.0, device=device), torch.tensor(7.0)
    i, mask = torch.tensor([1]), torch.tensor([False, True, False])
    same(x.clone().fill_(seven), torch.full((3,), 7.0))
    same(torch.arange(3.0).fill_(seven.to(device)), torch.full((3,), 7.0))
    same(x.index_fill(0, i.to(device), seven), torch.tensor([0.0, 7.0, 2.0]))
    same(x.masked_fill(mask.to(device), seven), torch.tensor([0.0, 7.0, 2.0]))
    for refused in (lambda: x.index_fill(0, i, seven), lambda: x.index_fill(0, i, 7.0),
                    lambda: x.index_fill(0, i[0], 7.0), lambda: x.index_fill(0, i[0], seven.to(device)),
                    lambda: x.masked_fill(mask[1], 7.0), lambda: x.masked_fill(mask[1], seven.to(device)),
                    lambda: x.masked_fill(mask, seven.to(device)), lambda: x.masked_fill(mask, 7.0),
                    lambda: x.cpu().masked_fill(mask.to(device), 7.0),
                    lambda: x.cpu().masked_fill_(mask, seven.to(device)),
                    lambda: x.cpu().index_fill(0, i.to(device), 7.0)):  # fmt: skip
        with raises(RuntimeError, "(?i)device"):
            refused()


@mixed.check()
def where_takes_scalars_of_the_cpu(device):
    """Each argument of torch.where may be a 0-dim tensor of the CPU. Other tensors of the CPU are refused."""
    x, host, one = torch.arange(3.0, device=device), torch.arange(3.0), torch.tensor(1.0)
    same(torch.where(x > 0, x, one), torch.where(host > 0, host, one))
    same(torch.where(x > 0, one, one), torch.where(host > 0, one, one))
    same(torch.where(one > 0, x, x), host)
    for other, expected in ((x, torch.where(host > 0, one, host)), (one, torch.ones(3))):
        same(torch.where(x > 0, one, other, out=torch.zeros(3, device=device)), expected)
    for refused in (lambda: torch.where(host > 0, x, x), lambda: torch.where(x > 0, x, host),
                    lambda: torch.where(x > 0, x, x, out=torch.zeros(3))):  # fmt: skip
        with raises(RuntimeError, "(?i)device"):
            refused()


@mixed.check()
def distributions_take_probabilities_of_the_cpu(device):
    """bernoulli on the device accepts probabilities on the CPU. binomial refuses operands on two devices."""
    host = torch.tensor([1.0, 0.0, 1.0])
    same(torch.zeros(3, device=device).bernoulli_(host), host)
    same(torch.bernoulli(host, out=torch.zeros(3, device=device)), host)
    # bernoulli_ of a CPU tensor with probabilities on the device is not tried: PyTorch's kernel for CPU tensors moves them.
    for refused in (lambda: torch.binomial(host.to(device), host), lambda: torch.binomial(host, host.to(device)),
                    lambda: torch.binomial(host.to(device), torch.tensor(0.5))):  # fmt: skip
        with raises(RuntimeError, "(?i)device"):
            refused()


@mixed.check()
def losses_take_a_scalar_weight_of_the_cpu(device):
    """binary_cross_entropy takes a 0-dim weight of the CPU. The unused buffer of logsigmoid may be on any device."""
    aten, x, host = torch.ops.aten, torch.full((3,), 0.5, device=device), torch.full((3,), 0.5)
    expected = aten.binary_cross_entropy(host, host, torch.tensor(2.0))
    same(aten.binary_cross_entropy(x, x, torch.tensor(2.0)), expected)
    out = torch.zeros((), device=device)
    same(aten.binary_cross_entropy.out(x, x, torch.tensor(2.0), 1, out=out), expected)
    for refused in (lambda: aten.binary_cross_entropy(x, host), lambda: aten.binary_cross_entropy(x, x, host),
                    lambda: aten.binary_cross_entropy(x.sum(), host.sum()),
                    lambda: aten.binary_cross_entropy.out(x, host, None, 1, out=out),
                    lambda: aten.binary_cross_entropy.out(x.sum(), host.sum(), None, 1, out=out)):  # fmt: skip
        with raises(RuntimeError, "(?i)device"):
            refused()
    given = {"output": torch.zeros(3, device=device), "buffer": torch.zeros(3)}
    same(aten.log_sigmoid_forward.output(x, **given)[0], torch.nn.functional.logsigmoid(host))
    with raises(RuntimeError, "(?i)device"):
        aten.log_sigmoid_forward.output(x, output=torch.zeros(3), buffer=torch.zeros(3, device=device))


@mixed.check()
def copies_and_questions_take_every_device(device):
    """copy_ copies in both directions. With tensors of two devices, is_set_to returns False and set_ raises."""
    x, host = torch.arange(3.0, device=device), torch.arange(3.0)
    same(torch.zeros(3, device=device).copy_(host), host)
    same(torch.zeros(3).copy_(x), host)
    assert not x.is_set_to(host) and not host.is_set_to(x)
    with raises(RuntimeError, "(?i)device"):
        torch.zeros(3, device=device).set_(host)


@mixed.check()
def a_learning_rate_may_be_on_the_cpu(device):
    """A fused optimizer takes a learning rate that is a 0-dim tensor of the CPU."""
    for kind in (torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW):
        results = []
        for where in (device, "cpu"):
            p = torch.ones(3, device=where, requires_grad=True)
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
    first, second = [torch.zeros(3, device=device)], [torch.zeros(3, device=device)]
    steps = [torch.ones((), device=device)]
    adam = (first, second, [], steps), {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    sgd = (first,), {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
    adagrad = (first, steps), {"lr_decay": 0.0, "eps": 1e-8}
    for name, (lists, settings) in {"sgd": sgd, "adagrad": adagrad, "adam": adam, "adamw": adam}.items():
        settings = {**settings, "lr": torch.tensor(0.1, device=device), "weight_decay": 0.0, "maximize": False}
        p, grad = torch.ones(3, device=device), torch.ones(3, device=device)
        step = getattr(torch.ops.aten, f"_fused_{name}_").tensor_lr
        try:
            step([p], [grad], *lists, **settings, found_inf=torch.tensor(1.0, device=device))
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
    x = torch.ones(3, device=device, requires_grad=True)
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
    equal(torch.ops.conformance_key.where(torch.ones(1, device=device)), "device")
    equal(torch.ops.conformance_key.where(torch.ones(1)), "cpu")


@custom.check()
def a_dispatch_mode_sees_operators(device):
    """A TorchDispatchMode sees the operators that get tensors of the device, and may call them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.ones(3, device=device)
    with Log():
        x + x
    assert any("add" in name for name in seen), seen


@custom.check()
def func_transforms(device):
    """vmap, grad, jvp and functional_call give the CPU's results on tensors of the device."""
    x = torch.arange(6.0, device=device).reshape(2, 3)
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
        index = torch.tensor([0, 1, 0, 1], device=device)
        found = [torch.zeros(2, device=device).index_add(0, index, torch.ones(4, device=device)) for _ in range(2)]
    except RuntimeError as error:
        assert "deterministic" in str(error), error
        return
    finally:
        torch.use_deterministic_algorithms(False)
    same(found[0], torch.full((2,), 2.0))
    same(found[1], found[0].cpu())
