"""Level 3: a model trains: autograd, modules, random numbers, mixed precision, optimizers, data loading."""

import torch

from ..kit import NotOffered, busy, device_module, equal, in_threads, note, raises, same, usable
from ..registry import Topic

autograd = Topic(
    "trains/autograd",
    why="In most backends, backward runs on a thread for each device. The guard sets the current device of that "
    "thread.",
    defined="torch/csrc/autograd/engine.cpp; c10::impl::DeviceGuardImplInterface",
    chapter="device",
    issue="pytorch/pytorch#179008",
)


@autograd.check()
def backward_gives_the_cpus_gradients(device):
    """A chain of matmul, relu and a loss has the CPU's gradients."""

    def gradients(where):
        draw = torch.Generator().manual_seed(0)
        x = torch.randn(4, 5, generator=draw).to(where).requires_grad_()
        w = torch.randn(5, 3, generator=draw).to(where).requires_grad_()
        ((x @ w).relu() ** 2).mean().backward()
        return x.grad.cpu(), w.grad.cpu()

    same(gradients(device), gradients("cpu"))


@autograd.check()
def gradients_accumulate(device):
    """A second backward adds to .grad. zero_grad(set_to_none=False) sets the elements of .grad to zero."""
    p = torch.nn.Parameter(torch.ones(3).to(device))
    for _ in range(2):
        (p * 2).sum().backward()
    same(p.grad, torch.full((3,), 4.0))
    torch.optim.SGD([p], lr=0.1).zero_grad(set_to_none=False)
    same(p.grad, torch.zeros(3))


@autograd.check()
def double_backward(device):
    """The gradient of a gradient has the right values."""
    x = torch.tensor([1.0, 2.0, 3.0]).to(device).requires_grad_()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    same(h, torch.tensor([6.0, 12.0, 18.0]))


@autograd.check()
def hooks_see_the_gradient(device):
    """A hook of a tensor and a hook after the accumulation are called with gradients on the device."""
    seen = []
    p = torch.nn.Parameter(torch.ones(3).to(device))
    p.register_hook(lambda g: seen.append(g.device.type))
    p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad.device.type))
    (p * 2).sum().backward()
    equal(seen, [torch.device(device).type] * 2)


@autograd.check()
def a_custom_function_is_called(device):
    """A torch.autograd.Function saves a tensor of the device, and its backward gets that tensor back."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = torch.tensor([3.0]).to(device).requires_grad_()
    Double.apply(x).sum().backward()
    same(x.grad, torch.tensor([6.0]))


@autograd.check()
def an_error_in_backward_arrives(device):
    """An exception in a backward reaches the caller, and the device works afterwards."""

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise KeyError("in backward")

    x = torch.ones(2).to(device).requires_grad_()
    with raises(KeyError, "in backward"):
        Fails.apply(x).sum().backward()
    usable(device)


@autograd.check()
def backward_in_several_threads(device):
    """Four threads that run forward and backward at once each get the right gradient."""

    def work(n):
        x = torch.full((50, 50), 1.0).to(device).requires_grad_()
        for _ in range(3):
            y = ((x @ x) * n).sum()
        y.backward()
        return x.grad[0, 0].item()

    equal(in_threads(*[lambda n=n: work(n) for n in range(4)]), [100.0 * n for n in range(4)])


@autograd.check("two_devices", "storage")
def backward_across_devices(device):
    """A graph over two devices gives gradients on each tensor's own device."""
    type = torch.device(device).type
    x = torch.ones(3, device=f"{type}:0", requires_grad=True)
    ((x * 2).to(f"{type}:1") * 3).sum().backward()
    equal(x.grad.device.index, 0)
    same(x.grad, torch.full((3,), 6.0))


@autograd.check()
def checkpointing_recomputes(device):
    """torch.utils.checkpoint gives the gradients of the same model without checkpointing."""
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(4, 8).to(device).requires_grad_()
    layer = torch.nn.Linear(8, 8).to(device)
    checkpoint(layer, x, use_reentrant=False).relu().sum().backward()
    recomputed = x.grad.clone()
    x.grad = None
    layer(x).relu().sum().backward()
    same(recomputed, x.grad.cpu())


@autograd.check("events", why="A backward on a side stream that starts too early reads what forward has not written.")
def backward_follows_forwards_stream(device):
    """If the forward ran on a side stream, the backward gives the right gradient."""
    stream = torch.Stream(device=device)
    x = torch.ones(64, 64, device=device, requires_grad=True)
    stream.wait_stream(torch.accelerator.current_stream(device))
    with stream:
        y = (x * busy(device, 0.05)[:64, :64]).sum()
    torch.accelerator.current_stream(device).wait_stream(stream)
    y.backward()
    same(x.grad, torch.ones(64, 64))


modules = Topic(
    "trains/modules",
    why="Users call modules, and modules call fused kernels that no plain operator calls.",
    defined="torch/nn/modules; native_functions.yaml: native_batch_norm, _thnn_fused_lstm_cell, "
    "convolution_overrideable",
    chapter="operators",
)


def _agree(device, make, shape):
    """Raises unless the module's output and gradients on the device agree with the CPU's. ``shape`` is the input's."""
    import copy

    torch.manual_seed(0)
    model = make()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = []
    for where in ("cpu", device):
        here, given = copy.deepcopy(model).to(where), x.clone().to(where).requires_grad_()
        outputs = here(given)
        output = outputs[0] if isinstance(outputs, tuple) else outputs
        output.float().pow(2).sum().backward()
        gradients = [p.grad.cpu() for p in (*here.parameters(), given) if p.grad is not None]
        found.append([output.detach().cpu(), *gradients])
    same(found[1], found[0], rtol=1e-3, atol=1e-4)


@modules.check()
def mlp(device):
    """Linear layers and GELU: the output and the gradients agree with the CPU's."""
    nn = torch.nn
    _agree(device, lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (5, 8))


@modules.check()
def convolutional_network(device):
    """A convolution with batch norm and pooling: the output and the gradients agree with the CPU's."""
    nn = torch.nn

    def make():
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())

    _agree(device, make, (2, 3, 8, 8))


@modules.check()
def transposed_convolution(device):
    """ConvTranspose2d: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5))


@modules.check()
def grouped_and_dilated_convolution(device):
    """Conv1d with groups and dilation: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.Conv1d(4, 8, 3, groups=2, dilation=2), (2, 4, 16))


@modules.check()
def lstm(device):
    """A two-layer LSTM: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.LSTM(6, 8, num_layers=2, batch_first=True), (3, 5, 6))


@modules.check()
def gru(device):
    """A bidirectional GRU: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.GRU(6, 8, bidirectional=True), (5, 3, 6))


@modules.check()
def transformer_layer(device):
    """TransformerEncoderLayer: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (2, 5, 16))


@modules.check()
def group_and_layer_norm(device):
    """GroupNorm and LayerNorm: the output and the gradients agree with the CPU's."""
    _agree(device, lambda: torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.LayerNorm(6)), (2, 4, 6))


@modules.check()
def adaptive_pooling_and_upsampling(device):
    """AdaptiveAvgPool2d and Upsample: the output and the gradients agree with the CPU's."""
    nn = torch.nn
    _agree(device, lambda: nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Upsample(scale_factor=2)), (1, 2, 7, 7))


@modules.check()
def embeddings(device):
    """Embedding and EmbeddingBag: the output and the gradients agree with the CPU's."""

    class Embeds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.bag = torch.nn.Embedding(10, 4, padding_idx=0), torch.nn.EmbeddingBag(10, 4, mode="sum")

        def forward(self, x):
            index = (x.abs() * 3).long().clamp(0, 9)
            return self.table(index).sum(1) + self.bag(index)

    _agree(device, Embeds, (3, 5))


@modules.check()
def to_moves_parameters_in_place(device):
    """module.to(device) keeps the Parameter objects, and moves buffers and gradients."""
    model = torch.nn.BatchNorm1d(3)
    before = model.weight
    model(torch.randn(4, 3)).sum().backward()
    model.to(device)
    assert model.weight is before, "model.weight is another Parameter now, and an earlier optimizer has the old one"
    equal({t.device.type for t in (model.weight, model.weight.grad, model.running_mean)}, {torch.device(device).type})


@modules.check()
def an_earlier_optimizer_trains_what_to_has_moved(device):
    """An optimizer that was made before module.to(device) changes the parameters that the module has afterwards."""
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model.weight.detach().clone()
    model.to(device)
    model(torch.ones(1, 2).to(device)).sum().backward()
    optimizer.step()
    same(model.weight.detach().cpu(), before - 0.5)


@modules.check()
def attention_agrees(device):
    """scaled_dot_product_attention, with is_causal and with a mask, gives the CPU's output and gradients."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8, generator=draw) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    for settings in ({"is_causal": True}, {"attn_mask": mask}):
        found = []
        for where in ("cpu", device):
            given = [t.clone().to(where).requires_grad_() for t in (q, k, v)]
            how = {n: s.to(where) if isinstance(s, torch.Tensor) else s for n, s in settings.items()}
            out = torch.nn.functional.scaled_dot_product_attention(*given, **how)
            out.sum().backward()
            found.append([out.detach().cpu(), *[t.grad.cpu() for t in given]])
        same(found[1], found[0], rtol=1e-4, atol=1e-4)


@modules.check()
def attentions_kernel_is_the_one_that_is_named(device):
    """torch._fused_sdp_choice names an enabled kernel, which gives the output and the gradients of the math kernel."""
    from contextlib import nullcontext

    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(n)).to(device) for n in range(3))
    try:
        choice = SDPBackend(torch._fused_sdp_choice(q, k, v))
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    assert choice != SDPBackend.ERROR
    with sdpa_kernel(SDPBackend.MATH):
        equal(SDPBackend(torch._fused_sdp_choice(q, k, v)), SDPBackend.MATH)
    # OVERRIDEABLE is for backends outside PyTorch. Under CUDA's name a program cannot enable it alone, as on CUDA.
    is_cuda = torch.device(device).type == "cuda"
    alone = nullcontext() if is_cuda and choice == SDPBackend.OVERRIDEABLE else sdpa_kernel(choice)
    found = []
    for enabled in (alone, sdpa_kernel(SDPBackend.MATH)):
        given = [t.clone().requires_grad_() for t in (q, k, v)]
        with enabled:
            out = torch.nn.functional.scaled_dot_product_attention(*given)
        out.pow(2).sum().backward()
        found.append([out.detach().cpu(), *[t.grad.cpu() for t in given]])
    same(found[0], found[1], rtol=1e-4, atol=1e-4)


@modules.check("private_use", defined="native_functions.yaml: _scaled_dot_product_fused_attention_overrideable")
def the_overrideable_attention_agrees(device):
    """The backend's fused attention, and its backward, give what attention gives on the CPU."""
    given = [torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    host = [t.clone().requires_grad_() for t in given]
    there = [t.to(device).requires_grad_() for t in given]
    try:
        out = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*there)[0]
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    wanted = torch.nn.functional.scaled_dot_product_attention(*host)
    out.pow(2).sum().backward(), wanted.pow(2).sum().backward()
    same(out, wanted.detach(), rtol=1e-4, atol=1e-4)
    same([t.grad for t in there], [t.grad for t in host], rtol=1e-4, atol=1e-4)


@modules.check("private_use", defined="ATen/native/transformers/attention.cpp: _fused_sdp_choice_stub")
def attention_reaches_the_backends_kernel(device):
    """If the backend has a fused attention, scaled_dot_product_attention calls it for some dtype."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operator = "_scaled_dot_product_fused_attention_overrideable"
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", "PrivateUse1"):
        raise NotOffered(f"the backend has no kernel for {operator}")
    seen = set()

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.add(function._schema.name)
            return function(*args, **(kwargs or {}))

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        try:
            x = torch.ones(2, 4, 16, 64, dtype=dtype).to(device)
            with Log():
                torch.nn.functional.scaled_dot_product_attention(x, x, x)
        except (RuntimeError, TypeError):  # the device lacks the dtype
            continue
    if f"aten::{operator}" not in seen:
        note(f"attention never calls the backend's {operator}: _fused_sdp_choice does not name it")


@modules.check(why="Exported programs and functional transforms call this form, not native_batch_norm.")
def the_functional_batch_norm_agrees(device):
    """_native_batch_norm_legit normalizes and updates the running statistics as on the CPU."""
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    found = []
    for where in ("cpu", device):
        weight, bias, mean, variance = (torch.full((3,), value).to(where) for value in (2.0, 1.0, 0.0, 1.0))
        y = torch.ops.aten._native_batch_norm_legit(x.to(where), weight, bias, mean, variance, True, 0.1, 1e-5)[0]
        found.append([t.cpu() for t in (y, mean, variance)])
    same(found[1], found[0], rtol=1e-4, atol=1e-4)


@modules.check(
    why="SyncBatchNorm is made of these operators. The CPU has no kernels for them, so a fallback does not help.",
    defined="torch/nn/modules/_functions.py: SyncBatchNorm",
)
def the_parts_of_sync_batch_norm_agree(device):
    """The statistics of two halves give the batch norm of the whole batch, forward and backward, as on the CPU."""
    host = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight, bias = torch.full((3,), 2.0, requires_grad=True), torch.ones(3, requires_grad=True)
    running = torch.zeros(3), torch.ones(3)
    expected = torch.nn.functional.batch_norm(host, *running, weight, bias, training=True)
    expected.backward(host.detach())
    x, w, b = (t.detach().to(device) for t in (host, weight, bias))
    try:
        halves = [torch.batch_norm_stats(half.contiguous(), 1e-5) for half in x.chunk(2)]
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    mean, invstd = (torch.stack(parts) for parts in zip(*halves, strict=True))
    there = torch.zeros(3).to(device), torch.ones(3).to(device)
    counts = torch.full((2,), 10.0).to(device)
    whole = torch.batch_norm_gather_stats_with_counts(x, mean, invstd, *there, 0.1, 1e-5, counts)
    same(there, running, rtol=1e-4, atol=1e-4)
    same(torch.batch_norm_gather_stats(x, mean, invstd, None, None, 0.1, 1e-5, 10), whole, rtol=1e-4, atol=1e-4)
    same(torch.batch_norm_elemt(x, w, b, *whole, 1e-5), expected.detach(), rtol=1e-4, atol=1e-4)
    out = torch.batch_norm_elemt(x, w, b, *whole, 1e-5, out=torch.empty_like(x))
    same(out, expected.detach(), rtol=1e-4, atol=1e-4)
    dy, dy_xmu, dw, db = torch.batch_norm_backward_reduce(x, x, *whole, w, True, True, True)
    count = torch.full((1,), 20, dtype=torch.int32).to(device)
    dx = torch.batch_norm_backward_elemt(x, x, *whole, w, dy, dy_xmu, count)
    same([dx, dw, db], [host.grad, weight.grad, bias.grad], rtol=1e-4, atol=1e-4)


@modules.check()
def dropout_drops_the_same_gradients(device):
    """The gradient of a dropout is zero for the elements whose output is zero. For the others it is 1 / (1 - p)."""
    torch.manual_seed(0)
    x = torch.ones(1000).to(device).requires_grad_()
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    kept = (y != 0).float()
    assert 600 < kept.sum().item() < 900
    same(x.grad, (kept / 0.75).detach().cpu())
    same(y, x.grad.cpu())


random = Topic(
    "trains/random",
    why="A run that cannot be repeated cannot be debugged. If a draw on the device advances the CPU's generator, the "
    "order of the training data changes.",
    defined="at::AcceleratorHooksInterface::getDefaultGenerator, getNewGenerator; c10/core/GeneratorImpl.h",
    chapter="generator",
    issue="intel/intel-extension-for-pytorch#580",
)


@random.check()
def the_same_seed_gives_the_same_numbers(device):
    """After torch.manual_seed, rand, randn, randint, randperm, bernoulli and dropout repeat."""

    def draw():
        torch.manual_seed(7)
        x = torch.rand(50, device=device)
        return [x, torch.randn(50, device=device), torch.randint(0, 99, (50,), device=device),
                torch.randperm(50, device=device), torch.bernoulli(x), torch.nn.functional.dropout(x, 0.5)]  # fmt: skip

    for first, second in zip(draw(), draw(), strict=True):
        assert torch.equal(first.cpu(), second.cpu())


@random.check()
def numbers_differ_from_call_to_call(device):
    """Two draws in a row differ; another seed gives other numbers."""
    torch.manual_seed(7)
    first, second = torch.rand(50, device=device), torch.rand(50, device=device)
    torch.manual_seed(8)
    third = torch.rand(50, device=device)
    assert not torch.equal(first.cpu(), second.cpu()) and not torch.equal(first.cpu(), third.cpu())


@random.check()
def the_distributions_are_right(device):
    """rand is uniform on [0, 1), randn has mean 0 and deviation 1, over 100,000 numbers."""
    torch.manual_seed(1)
    x, y = torch.rand(100_000, device=device).cpu(), torch.randn(100_000, device=device).cpu()
    assert x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.01 and abs(x.var() - 1 / 12) < 0.01
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02


@random.check("generator", "not_the_host")
def a_generator_belongs_to_the_device(device):
    """torch.Generator(device) belongs to the device. Operators of the device refuse a generator of the CPU."""
    generator = torch.Generator(device)
    equal(generator.device.type, torch.device(device).type)
    torch.rand(3, device=device, generator=generator)
    with raises(RuntimeError, "(?i)generator"):
        torch.rand(3, device=device, generator=torch.Generator())


@random.check("generator")
def a_generator_repeats_from_its_state(device):
    """get_state, set_state, manual_seed, initial_seed and seed work as on a generator of the CPU."""
    generator = torch.Generator(device)
    generator.manual_seed(11)
    equal(generator.initial_seed(), 11)
    state = generator.get_state()
    first = torch.rand(9, device=device, generator=generator).cpu()
    second = torch.rand(9, device=device, generator=generator).cpu()
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(torch.rand(9, device=device, generator=generator).cpu(), first)
    generator.manual_seed(11)
    assert torch.equal(torch.rand(9, device=device, generator=generator).cpu(), first)
    seed = generator.seed()
    equal(generator.initial_seed(), seed)
    assert seed != 11 and seed != generator.seed()


@random.check()
def integers_are_drawn_from_their_range(device):
    """random_ draws from the given range. Without a range, it draws from the non-negative numbers of the dtype."""
    x = torch.zeros(200, dtype=torch.int64).to(device)
    for arguments, low, high in (((5,), 0, 5), ((-3, 2), -3, 2), ((), 0, 1 << 63)):
        drawn = x.random_(*arguments).cpu()
        assert ((drawn >= low) & (drawn <= high - 1)).all() and drawn.unique().numel() > 3, drawn


@random.check("generator")
def a_generator_can_be_cloned(device):
    """clone_state gives a generator that continues with the same numbers, independently of the first one."""
    generator = torch.Generator(device).manual_seed(3)
    torch.rand(4, device=device, generator=generator)
    other = generator.clone_state()
    first = torch.rand(9, device=device, generator=generator).cpu()
    assert torch.equal(torch.rand(9, device=device, generator=other).cpu(), first)
    assert not torch.equal(torch.rand(9, device=device, generator=other).cpu(), first)


@random.check("generator")
def a_generator_can_share_its_state(device):
    """After graphsafe_set_state two generators share a state: a draw from one also advances the other."""
    one, two = torch.Generator(device).manual_seed(3), torch.Generator(device).manual_seed(4)
    first = torch.rand(9, device=device, generator=torch.Generator(device).manual_seed(3)).cpu()
    try:
        two.graphsafe_set_state(one.graphsafe_get_state())
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    assert torch.equal(torch.rand(9, device=device, generator=two).cpu(), first)
    assert not torch.equal(torch.rand(9, device=device, generator=one).cpu(), first)


@random.check("generator")
def an_offset_is_kept_or_refused(device):
    """set_offset and get_offset either keep the offset, or both raise because the generator has none."""
    generator = torch.Generator(device).manual_seed(3)
    found = []
    for call in (lambda: (generator.set_offset(16), "set")[1], generator.get_offset):
        try:
            found.append(call())
        except (RuntimeError, NotImplementedError):
            found.append("refused")
    assert found in (["set", 16], ["refused", "refused"]), found


@random.check("generator")
def a_wrong_state_is_refused(device):
    """set_state with a tensor that is no state raises, and the generator works afterwards."""
    generator = torch.Generator(device).manual_seed(3)
    with raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(3, dtype=torch.uint8))
    equal(torch.rand(3, device=device, generator=generator.manual_seed(3)).numel(), 3)


@random.check("generator", "not_the_host")
def the_cpus_generator_is_left_alone(device):
    """Drawing on the device does not advance the CPU's generator."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    torch.rand(99, device=device), torch.nn.functional.dropout(torch.ones(99).to(device))
    assert torch.equal(before, torch.get_rng_state())


@random.check("module", "storage", "generator", "not_the_host")
def dropout_of_a_nested_tensor_draws_on_the_device(device):
    """The dropout of a nested tensor repeats after torch.TYPE.manual_seed, and leaves the CPU's generator alone."""
    try:
        nested = torch.nested.nested_tensor([torch.ones(5, 9).to(device), torch.ones(7, 9).to(device)])
    except (NotImplementedError, RuntimeError) as error:
        raise NotOffered(str(error)) from error
    before, found = torch.get_rng_state(), []
    for _ in range(2):
        device_module(device).manual_seed(5)
        found.append(torch.nn.functional.dropout(nested, 0.5).to_padded_tensor(0.0).cpu())
    same(found[1], found[0])
    assert torch.equal(before, torch.get_rng_state()), "the CPU's generator has advanced"


@random.check("module", "generator", "not_the_host")
def the_modules_state_can_be_restored(device):
    """torch.TYPE.set_rng_state and torch.TYPE.manual_seed repeat a draw. fork_rng restores the generator's state."""
    module, type = device_module(device), torch.device(device).type
    module.manual_seed(21)
    state = module.get_rng_state()
    first = torch.rand(5, device=device).cpu()
    module.set_rng_state(state)
    with torch.random.fork_rng(devices=[torch.empty(0, device=device).device.index], device_type=type):
        module.manual_seed(99)
        torch.rand(5, device=device)
    assert torch.equal(torch.rand(5, device=device).cpu(), first)
    module.manual_seed(21)
    assert torch.equal(torch.rand(5, device=device).cpu(), first)


@random.check("two_devices", "generator")
def every_device_has_its_own_generator(device):
    """torch.manual_seed gives all devices the same seed. A draw on one device does not advance another device."""
    type = torch.device(device).type
    torch.manual_seed(4)
    first = torch.rand(5, device=f"{type}:0").cpu()
    torch.rand(5, device=f"{type}:0")
    assert torch.equal(torch.rand(5, device=f"{type}:1").cpu(), first)


@random.check("generator", "events", chapter="streams")
def streams_draw_in_the_order_of_their_launches(device):
    """If two streams draw from one generator, the numbers are handed out in the order of the launches."""
    draw = torch.Generator(device).manual_seed(5)
    expected = [torch.rand(9, device=device, generator=draw).cpu() for _ in range(2)]
    draw.manual_seed(5)
    first, second = torch.Stream(device=device), torch.Stream(device=device)
    torch.accelerator.synchronize(device)
    with first:
        busy(device, 0.3)
        x = torch.rand(9, device=device, generator=draw)
    with second:
        y = torch.rand(9, device=device, generator=draw)
    torch.accelerator.synchronize(device)
    assert torch.equal(x.cpu(), expected[0]) and torch.equal(y.cpu(), expected[1])


@random.check("generator", "two_devices")
def a_new_generator_has_the_index(device):
    """torch.Generator of a device with an index belongs to that device."""
    type = torch.device(device).type
    equal(torch.Generator(f"{type}:1").device, torch.device(type, 1))


amp = Topic(
    "trains/amp",
    why="Autocast has lists of operators for each device type. An operator that they do not name computes in the dtype "
    "of its operands: a product of float32 weights stays slow, and a softmax in low precision loses digits.",
    defined="aten/src/ATen/autocast_mode.h; torch/amp/autocast_mode.py; get_amp_supported_dtype of the device module",
    chapter="autocast",
    needs=("amp",),
    issue="torch-spyre/torch-spyre#1213",
)


@amp.check()
def matmul_runs_in_the_lower_dtype(device):
    """Under autocast, mm, linear, conv2d, addmm and bmm give the lower dtype. After autocast, mm gives float32."""
    type = torch.device(device).type
    dtype = torch.get_autocast_dtype(type)
    x = torch.ones(4, 4).to(device)
    with torch.autocast(type):
        equal((x @ x).dtype, dtype)
        equal(torch.nn.functional.linear(x, x).dtype, dtype)
        equal(torch.nn.functional.conv2d(x.view(1, 1, 4, 4), x.view(1, 1, 4, 4)).dtype, dtype)
        equal(torch.addmm(x, x, x).dtype, dtype)
        equal(torch.bmm(x[None], x[None]).dtype, dtype)
    equal((x @ x).dtype, torch.float32)


@amp.check()
def sensitive_operators_run_in_float32(device):
    """Under autocast, softmax, log, losses, norms and sums of operands of the lower dtype give float32."""
    type = torch.device(device).type
    x = torch.ones(4, 4, dtype=torch.get_autocast_dtype(type)).to(device)
    with torch.autocast(type):
        equal(torch.nn.functional.mse_loss(x, x).dtype, torch.float32)
        if type != "cpu":
            equal(x.softmax(0).dtype, torch.float32)
            equal(x.log().dtype, torch.float32)
            equal(torch.nn.functional.layer_norm(x, (4,)).dtype, torch.float32)
            equal(x.exp().dtype, torch.float32)
            equal(x.pow(2).dtype, torch.float32)
            equal(x.sum().dtype, torch.float32)
            equal(torch.ops.aten.norm.Scalar(x, 2).dtype, torch.float32)
            equal(torch.nn.functional.nll_loss(x.log_softmax(1), torch.zeros(4, dtype=torch.long).to(device)).dtype,
                  torch.float32)  # fmt: skip


@amp.check("not_the_host")
def mixed_arguments_are_widened(device):
    """Under autocast, addcmul, dot, cat and stack of two dtypes widen to float32."""
    type = torch.device(device).type
    x = torch.ones(4).to(device)
    y = x.to(torch.get_autocast_dtype(type))
    with torch.autocast(type):
        equal(torch.addcmul(x, y, y).dtype, torch.float32)
        equal(torch.dot(x, y).dtype, torch.float32)
        equal(torch.cat([x, y]).dtype, torch.float32)
        equal(torch.stack([x, y]).dtype, torch.float32)


@amp.check("not_the_host")
def an_unsafe_loss_is_refused(device):
    """Under autocast, binary_cross_entropy raises and names binary_cross_entropy_with_logits."""
    type = torch.device(device).type
    x = torch.full((4,), 0.5).to(device)
    with torch.autocast(type), raises(RuntimeError, "binary_cross_entropy_with_logits"):
        torch.nn.functional.binary_cross_entropy(x, x)


@amp.check()
def it_can_be_switched_off_inside(device):
    """torch.autocast(type, enabled=False) in an autocast region computes in float32. The outer region stays enabled."""
    type = torch.device(device).type
    x = torch.ones(4, 4).to(device)
    with torch.autocast(type):
        equal((x @ x).dtype, torch.get_autocast_dtype(type))
        with torch.autocast(type, enabled=False):
            equal((x @ x).dtype, torch.float32)
        assert torch.is_autocast_enabled(type)
    assert not torch.is_autocast_enabled(type)


@amp.check()
def gradients_have_the_parameters_dtype(device):
    """If a forward ran under autocast, the gradients of float32 parameters have the dtype float32."""
    type = torch.device(device).type
    model = torch.nn.Linear(4, 4).to(device)
    with torch.autocast(type):
        loss = model(torch.ones(2, 4).to(device)).float().pow(2).mean()
    loss.backward()
    equal(model.weight.grad.dtype, torch.float32)


@amp.check()
def the_scaler_skips_infinite_steps(device):
    """GradScaler skips a step with infinite gradients and halves the scale. The next step uses unscaled gradients."""
    p = torch.nn.Parameter(torch.ones(3).to(device))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=8.0)
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(optimizer), scaler.update()
    same(p, torch.ones(3))
    equal(scaler.get_scale(), 4.0)
    optimizer.zero_grad()
    scaler.scale((p * 2).sum()).backward()
    scaler.step(optimizer), scaler.update()
    same(p, torch.full((3,), -1.0))


@amp.check("module")
def the_module_lists_its_dtypes(device):
    """torch.TYPE.get_amp_supported_dtype lists dtypes that autocast accepts."""
    module, type = device_module(device), torch.device(device).type
    if not hasattr(module, "get_amp_supported_dtype"):
        raise NotOffered("the module has no get_amp_supported_dtype")
    x = torch.ones(2, 2).to(device)
    for dtype in module.get_amp_supported_dtype():
        with torch.autocast(type, dtype=dtype):
            equal((x @ x).dtype, dtype)


optimizers = Topic(
    "trains/optimizers",
    why="On an accelerator, optimizers use the foreach form by default. It calls dozens of operators that nothing else "
    "calls.",
    defined="torch/optim; torch/utils/_foreach_utils.py: _get_foreach_kernels_supported_devices",
    chapter="operators",
)


@optimizers.check()
def training_follows_the_cpu(device):
    """Thirty steps of Adam on a small network follow the CPU's losses."""

    def losses(where):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(where)
        x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1)).to(where)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        found = []
        for _ in range(30):
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    found = losses(device)
    assert found[-1] < found[0]
    same(torch.tensor(found), torch.tensor(losses("cpu")), rtol=1e-3, atol=1e-4)


@optimizers.check()
def clipping_gradients(device):
    """clip_grad_norm_ scales the gradients to the given norm, and returns the old norm as a tensor on the device."""
    p = torch.nn.Parameter(torch.zeros(4).to(device))
    p.grad = torch.full((4,), 3.0).to(device)
    norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
    equal(norm.device.type, torch.device(device).type)
    same(norm, torch.tensor(6.0))
    same(p.grad, torch.full((4,), 0.5), rtol=1e-3, atol=1e-3)


@optimizers.check()
def an_optimizers_state_moves_with_its_checkpoint(device):
    """The state dict of an optimizer on the CPU loads into an optimizer on the device, which then makes a step."""
    model = torch.nn.Linear(3, 1)
    first = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    first.step()
    model.to(device)
    second = torch.optim.Adam(model.parameters())
    second.load_state_dict(first.state_dict())
    model(torch.ones(2, 3).to(device)).sum().backward()
    second.step()
    equal({s["exp_avg"].device.type for s in second.state.values()}, {torch.device(device).type})


loading = Topic(
    "trains/loading",
    why="Input pipelines use pinned memory and asynchronous copies. If a copy races with the program, batches are "
    "wrong.",
    defined="at::AcceleratorHooksInterface: getPinnedMemoryAllocator, isPinnedPtr; "
    "torch/utils/data/_utils/pin_memory.py",
    chapter="memory",
)


@loading.check()
def a_loader_feeds_the_device(device):
    """Batches of a DataLoader with a worker process arrive on the device in order."""
    data = torch.utils.data.TensorDataset(torch.arange(12.0))
    found = [x.to(device).tolist() for (x,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)]
    equal(sum(found, []), list(map(float, range(12))))


@loading.check("pinned")
def a_loader_pins_memory(device):
    """DataLoader(pin_memory=True) gives pinned batches, and non_blocking copies of them have their values."""
    data = torch.utils.data.TensorDataset(torch.arange(4096.0).reshape(16, 256))
    total = 0.0
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned()
        total += x.to(device, non_blocking=True).sum().item()
    equal(total, 4096 * 4095 / 2)


@loading.check("pinned")
def pinned_memory_is_known(device):
    """pin_memory() gives a pinned CPU tensor with the same values, and the tensor itself if it is pinned already."""
    x = torch.arange(5.0)
    y = x.pin_memory()
    assert y.is_pinned() and not x.is_pinned() and y.device.type == "cpu" and y.pin_memory() is y
    assert not torch.ones(2).to(device).is_pinned()
    assert torch.empty(8, pin_memory=True).is_pinned()
    assert y[2:].is_pinned() and not y.clone().is_pinned()
    same(y, x)


@loading.check("pinned")
def only_host_memory_can_be_pinned(device):
    """pin_memory() of a tensor of the device raises."""
    with raises(RuntimeError, "only dense CPU tensors can be pinned|[Cc]annot pin"):
        torch.ones(2).to(device).pin_memory()
