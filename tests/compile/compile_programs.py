"""Programs that torch.compile compiles for the device: each is compared with eager execution on the CPU, and the first
seventeen, bit for bit, with the same program compiled for the CPU.

    python -m tests.compile.compile_programs                                  # all programs, static and dynamic shapes
    python -m tests.compile.compile_programs --mode chaos --dynamic true lstm dropout

A program is a function of a device. It returns what is compiled and its arguments; the tensors among the arguments that
require gradients, and the parameters of a module, get gradients.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from torch_openreg._identity import device_type as DEVICE

Program = Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]]

PROGRAMS: dict[str, Program] = {}
BIT_FOR_BIT = 17
"""How many programs, from the first on, are compared with the compiled CPU bit for bit."""

WITHIN_ROUNDING = {
    "residual_block": "PyTorch's decomposition of GroupNorm orders the arithmetic in another way for CPU tensors",
    "transformer_encoder_layer": "the fused attention of a device outside PyTorch is another operator, whose gradients "
    "lie in another order in memory, so that a bias' gradient is summed in another order",
    "lstm": "for CPU tensors an LSTM is one operator of oneDNN (mkldnn_rnn_layer)",
}
"""The programs among these first ones whose results need not be equal bit for bit, with the reason."""


def program(make: Program) -> Program:
    PROGRAMS[make.__name__] = make
    return make


def tensor(device: str, *size: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A random tensor, drawn on the CPU so that every device gets the same numbers."""
    return torch.randn(*size).to(dtype).to(device).requires_grad_(grad and dtype.is_floating_point)


def on(device: str, module: nn.Module) -> nn.Module:
    return module.to(device)


# ---- compared with the compiled CPU, too


@program
def mlp_gelu(device: str) -> Any:
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    return on(device, layers), (tensor(device, 16, 32),)


@program
def mlp_layer_norm(device: str) -> Any:
    layers = nn.Sequential(
        nn.Linear(32, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.SiLU()
    )
    return on(device, layers), (tensor(device, 16, 32),)


@program
def conv_batch_norm(device: str) -> Any:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
    )
    return on(device, layers), (tensor(device, 4, 3, 16, 16),)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


@program
def residual_block(device: str) -> Any:
    return on(device, nn.Sequential(Residual(), Residual())), (tensor(device, 2, 8, 12, 12),)


@program
def depthwise_conv(device: str) -> Any:
    layers = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1), nn.Hardswish())
    return on(device, layers), (tensor(device, 2, 8, 12, 12),)


@program
def transformer_encoder_layer(device: str) -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return on(device, layer), (tensor(device, 4, 10, 32),)


class Block(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


@program
def gpt2_block(device: str) -> Any:
    return on(device, Block()), (tensor(device, 2, 12, 32),)


@program
def lstm(device: str) -> Any:
    return on(device, nn.LSTM(8, 16, num_layers=2, batch_first=True)), (tensor(device, 3, 7, 8),)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 16), nn.Linear(16, 10)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.out(self.embedding(words)).flatten(0, 1), labels.flatten())


@program
def embedding_cross_entropy(device: str) -> Any:
    return on(device, Classifier()), (torch.randint(50, (4, 6)).to(device), torch.randint(10, (4, 6)).to(device))


@program
def softmax_layer_norm(device: str) -> Any:
    return lambda x, y: x.softmax(-1) * F.layer_norm(y, (64,)), (tensor(device, 8, 64), tensor(device, 8, 64))


@program
def pointwise_chain(device: str) -> Any:
    return lambda x: ((x * 2 + 1).sin() * x.cos() - x.tanh()).abs().add(1).sqrt(), (tensor(device, 1000, 1000),)


@program
def reductions(device: str) -> Any:
    def reduce(x: torch.Tensor) -> Any:
        # + 1: the sum of x itself is nearly 0, so its rounding errors would be large in comparison.
        return x.sum(1), x.mean(0), x.var(1), x.amax(0), x.logsumexp(1), (x + 1).sum()

    return reduce, (tensor(device, 37, 65),)


@program
def scatter_index_add(device: str) -> Any:
    def scatter(x: torch.Tensor, index: torch.Tensor) -> Any:
        rows = torch.zeros(7, 5, device=x.device).scatter_add(0, index[:, None].expand(-1, 5), x)
        return rows, torch.zeros(7, 5, device=x.device).index_add(0, index, x * 2)

    return scatter, (tensor(device, 20, 5), torch.randint(7, (20,)).to(device))


@program
def in_place_through_views(device: str) -> Any:
    def mutate(x: torch.Tensor) -> Any:
        y = x.clone()
        y[:, 1:3] += 1
        y.t()[0].mul_(3)
        y.view(-1)[::2] = 0.5
        return y, y[1]

    return mutate, (tensor(device, 6, 8),)


@program
def dropout(device: str) -> Any:
    return lambda x: F.dropout(x, 0.3) * F.dropout(x, 0.5), (tensor(device, 30, 40),)


@program
def attention_by_hand(device: str) -> Any:
    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return (query @ key.transpose(-2, -1)).div(4.0).softmax(-1) @ value

    return attend, tuple(tensor(device, 2, 4, 12, 16) for _ in range(3))


@program
def optimizer_step(device: str) -> Any:
    weight = tensor(device, 6, 8)
    optimizer = torch.optim.AdamW([weight], lr=0.1, foreach=True)  # the default on an accelerator, not on the CPU

    def step(gradient: torch.Tensor) -> torch.Tensor:
        weight.grad = gradient * 2
        optimizer.step()
        return weight.detach().clone()

    return step, (tensor(device, 6, 8, grad=False),)


# ---- views, mutation, aliasing


@program
def outputs_that_alias_an_input(device: str) -> Any:
    return lambda x: (x.view(-1), x.t(), x[2:], x * 2), (tensor(device, 6, 8),)


@program
def input_mutation(device: str) -> Any:
    def mutate(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(y)
        x[0].copy_(y[1])
        return x.sum() + y, x

    return mutate, (tensor(device, 6, 8, grad=False), tensor(device, 6, 8, grad=False))


class Counter(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += x.detach().sum(0)
        return x * self.count


@program
def buffer_mutation(device: str) -> Any:
    return on(device, Counter()), (tensor(device, 4, 3),)


@program
def as_strided_windows(device: str) -> Any:
    return lambda x: x.unfold(0, 4, 2).mul(2).sum(-1) + x.as_strided((9,), (2,)), (tensor(device, 20),)


@program
def cat_split_stack(device: str) -> Any:
    def combine(x: torch.Tensor, y: torch.Tensor) -> Any:
        left, right = torch.cat([x, y * 2], 1).split([3, 13], 1)
        return torch.stack([left, left + 1]), right.chunk(2, 1)[0].exp()

    return combine, (tensor(device, 6, 8), tensor(device, 6, 8))


@program
def pad_and_roll(device: str) -> Any:
    return lambda x: F.pad(x, (1, 2), value=3.0).roll(2, 1).flip(0) * 2, (tensor(device, 6, 8),)


# ---- indices, sorting


@program
def gather_and_take(device: str) -> Any:
    def gather(x: torch.Tensor, index: torch.Tensor) -> Any:
        return x.gather(1, index), x[index[:, 0] % 6], x.index_select(1, index[0]), torch.take_along_dim(x, index, 1)

    return gather, (tensor(device, 6, 8), torch.randint(8, (6, 4)).to(device))


@program
def index_put_accumulate(device: str) -> Any:
    def put(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> Any:
        return x.index_put((index,), values, accumulate=True), x.index_put((index % 1,), values[0])

    return put, (tensor(device, 6, 8), torch.randint(6, (10,)).to(device), tensor(device, 10, 8))


@program
def sort_and_topk(device: str) -> Any:
    def order(x: torch.Tensor) -> Any:
        values, indices = x.sort(dim=1, descending=True, stable=True)
        return values * 2, indices, x.topk(3, 1).values, x.argsort(0), x.kthvalue(2, 1).values

    return order, (tensor(device, 6, 8),)


@program
def argmax_and_extremes(device: str) -> Any:
    return lambda x: (x.argmax(1), x.t().argmin(0), x.max(1).values, x.min(0).indices, x.aminmax(dim=1)), (
        tensor(device, 6, 8),
    )


@program
def where_and_masks(device: str) -> Any:
    def mask(x: torch.Tensor) -> Any:
        return (
            torch.where(x > 0, x, x.exp()),
            x.masked_fill(x < 0, -1.0),
            x.tril(),
            torch.triu(x * 2, 1),
            x.clamp(-1, 1),
        )

    return mask, (tensor(device, 8, 8),)


@program
def embedding_bag(device: str) -> Any:
    return on(device, nn.EmbeddingBag(20, 8, mode="mean")), (torch.randint(20, (5, 4)).to(device),)


# ---- scalars, dtypes


@program
def cpu_scalar(device: str) -> Any:
    return lambda scale, x: scale * x + scale.exp(), (torch.tensor(1.5), tensor(device, 6, 8))


@program
def python_scalars(device: str) -> Any:
    return lambda x, by: x / 3 + by - x * by, (tensor(device, 6, 8), 2.5)


@program
def autocast_bfloat16(device: str) -> Any:
    layers = on(device, nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))

    def cast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            return layers(x).float()

    return cast, (tensor(device, 8, 16),)


@program
def bfloat16(device: str) -> Any:
    return lambda x, y: (x @ y).relu() + x.amax(1, keepdim=True), (
        tensor(device, 8, 8, dtype=torch.bfloat16),
        tensor(device, 8, 8, dtype=torch.bfloat16),
    )


@program
def integers(device: str) -> Any:
    def compute(x: torch.Tensor) -> Any:
        return x // 3, x % 4, x & 6, x << 1, x.bitwise_xor(5), x.sum(), x.to(torch.uint8), (x > 2).any(1), x.cumsum(0)

    return compute, (torch.randint(20, (6, 8)).to(device),)


@program
def float64(device: str) -> Any:
    return lambda x: torch.linalg.solve(x @ x.t() + 8 * torch.eye(8, device=x.device, dtype=x.dtype), x).sin(), (
        tensor(device, 8, 8, dtype=torch.float64),
    )


@program
def complex_numbers(device: str) -> Any:
    return lambda x: torch.view_as_real(torch.fft.rfft(x) * 2).square().sum(-1), (tensor(device, 4, 16),)


# ---- operators of other kinds


@program
def scans(device: str) -> Any:
    return lambda x: (x.cumsum(1) + 1, x.cumprod(0), x.logcumsumexp(1), x.cummax(1).values), (tensor(device, 6, 8),)


@program
def moments(device: str) -> Any:
    return lambda x: (*torch.var_mean(x, 1), x.std(0), x.norm(dim=1), x.prod(1), F.normalize(x)), (
        tensor(device, 6, 8),
    )


@program
def products(device: str) -> Any:
    return lambda x, y: (torch.einsum("bij,bkj->bik", x, y), torch.bmm(x, y.mT) + 1, x[0] @ y[0, 0]), (
        tensor(device, 3, 6, 8),
        tensor(device, 3, 6, 8),
    )


@program
def pooling_and_interpolation(device: str) -> Any:
    def pool(x: torch.Tensor) -> Any:
        small = F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 4)
        return F.interpolate(small, scale_factor=2.0, mode="bilinear"), F.max_pool2d(x, 2), F.pixel_shuffle(x, 2)

    return pool, (tensor(device, 2, 4, 8, 8),)


@program
def losses(device: str) -> Any:
    def compute(x: torch.Tensor, y: torch.Tensor) -> Any:
        return F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")

    return compute, (tensor(device, 6, 8), tensor(device, 6, 8))


@program
def foreach(device: str) -> Any:
    def step(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> Any:
        return torch._foreach_add(torch._foreach_mul(xs, 0.9), ys, alpha=0.1)

    return step, (
        [tensor(device, n, grad=False) for n in (3, 5, 7)],
        [tensor(device, n, grad=False) for n in (3, 5, 7)],
    )


@torch.library.custom_op("compile_programs::scaled_sum", mutates_args=())
def scaled_sum(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x.sum(0) * scale


scaled_sum.register_fake(lambda x, scale: x.new_empty(x.shape[1:]))
scaled_sum.register_autograd(
    lambda ctx, grad: (grad.expand(ctx.shape) * ctx.scale, None),
    setup_context=lambda ctx, inputs, output: ctx.__dict__.update(shape=inputs[0].shape, scale=inputs[1]),
)


@program
def custom_operator(device: str) -> Any:
    return lambda x: scaled_sum(x * 2, 0.5).relu(), (tensor(device, 6, 8),)


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(result := x.exp())
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0] * 2


@program
def autograd_function(device: str) -> Any:
    return lambda x: Exponential.apply(x * 0.5) + x, (tensor(device, 6, 8),)


@program
def random_numbers(device: str) -> Any:
    def draw(x: torch.Tensor) -> Any:
        noise = torch.randn_like(x) + torch.rand(6, 8, device=x.device)
        return x * noise, torch.bernoulli(x.sigmoid()), torch.randint(9, (4,), device=x.device)

    return draw, (tensor(device, 6, 8),)


# ---- control flow, transforms


@program
def graph_break(device: str) -> Any:
    def branch(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        return x.sin() if x.sum().item() > 0 else x.cos()

    return branch, (tensor(device, 6, 8),)


@program
def conditional(device: str) -> Any:
    return lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,)), (
        tensor(device, 6, 8, grad=False),
    )


@program
def sizes_that_depend_on_data(device: str) -> Any:
    return lambda x: (x[x > 0] * 2, (x > 1).nonzero()), (tensor(device, 6, 8, grad=False),)


@program
def checkpointed(device: str) -> Any:
    layers = on(device, nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)))
    return lambda x: checkpoint(layers, x, use_reentrant=False).sin(), (tensor(device, 6, 8),)


@program
def checkpointed_dropout(device: str) -> Any:
    layers = on(device, nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.4), nn.Linear(32, 8)))
    return lambda x: checkpoint(layers, x, use_reentrant=False).sin(), (tensor(device, 6, 8),)


@program
def vmap(device: str) -> Any:
    return torch.func.vmap(lambda x, y: (x * y).sum().sin() + x), (tensor(device, 5, 8), tensor(device, 5, 8))


@program
def jacobian(device: str) -> Any:
    return torch.func.jacrev(lambda x: x.sin() * x.sum()), (tensor(device, 6, grad=False),)


@program
def per_sample_gradients(device: str) -> Any:
    loss = torch.func.grad(lambda weight, x: (weight @ x).square().sum())
    return torch.func.vmap(loss, (None, 0)), (tensor(device, 3, 8, grad=False), tensor(device, 5, 8, grad=False))


# ---- devices, streams (for the CPU, these programs use one device and no streams)


@program
def two_devices(device: str) -> Any:
    second = "cpu" if device == "cpu" else f"{device}:1"
    return lambda x: (x * 2).to(second).sin().to(x.device) + x, (tensor(device, 6, 8),)


@program
def copies_to_the_host(device: str) -> Any:
    return lambda x: ((x * 2).cpu().sin() + 1, (x + 1).cpu().to(x.device) * x), (tensor(device, 6, 8),)


@program
def streams_and_events(device: str) -> Any:
    if device == "cpu":
        return lambda x: (x * 2).sin() + x.cos(), (tensor(device, 200, 300, grad=False),)
    side = torch.Stream(device)

    def compute(x: torch.Tensor) -> torch.Tensor:
        current = torch.accelerator.current_stream()
        ready = torch.Event(device)
        ready.record()
        with side:
            ready.wait()
            y = (x * 2).sin()
        z = x.cos()
        current.wait_stream(side)  # after an event's wait() instead, PyTorch 2.13 may read y too early
        return y + z

    return compute, (tensor(device, 200, 300, grad=False),)


# ---- running them


def weighted_mean(t: torch.Tensor) -> torch.Tensor:
    """A scalar with gradients of the order of 1. In tiny gradients an absolute tolerance would hide errors."""
    weights = torch.arange(1.0, t.numel() + 1, device=t.device).view(t.shape).cos()
    return t.float().mul(weights).sum() / t.numel() ** 0.5


def results_of(make: Program, device: str, compiler: Callable[[Any], Any]) -> list[torch.Tensor]:
    """The outputs; the arguments, parameters and buffers after the call; the gradients. All on the CPU."""
    torch.manual_seed(0)
    function, arguments = make(device)
    torch.manual_seed(1)
    outputs = compiler(function)(*arguments)
    tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
    leaves = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
    if isinstance(function, nn.Module):
        leaves += [*function.parameters(), *function.buffers()]
    losses = [weighted_mean(t) for t in tensors if t.requires_grad]
    if losses:
        torch.stack([loss.cpu() for loss in losses]).sum().backward()
    gradients = [t.grad for t in leaves if t.grad is not None]
    return [t.detach().cpu() for t in (*tensors, *leaves, *gradients)]


def compiled(dynamic: bool | None, **options: Any) -> Callable[[Any], Any]:
    return lambda function: torch.compile(function, dynamic=dynamic, **options)


def check(name: str, dynamic: bool | None, against_compiled_cpu: bool) -> dict[str, Any]:
    """Compares one program. In the report that is returned, ``error`` is empty or says what differs."""
    torch.compiler.reset()
    make = PROGRAMS[name]
    report: dict[str, Any] = {"name": name, "dynamic": dynamic, "error": "", "bit_for_bit": None}
    try:
        expected = results_of(make, "cpu", lambda function: function)
        found = results_of(make, DEVICE, compiled(dynamic))
        torch.testing.assert_close(found, expected)
        if against_compiled_cpu:
            torch.compiler.reset()
            on_cpu = results_of(make, "cpu", compiled(dynamic))
            report["bit_for_bit"] = all(map(torch.equal, found, on_cpu))
            torch.testing.assert_close(found, on_cpu)
            if not report["bit_for_bit"] and name not in WITHIN_ROUNDING:
                report["error"] = "not equal to the compiled CPU, bit for bit"
    except Exception:
        report["error"] = traceback.format_exc(limit=-6)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--mode", default="inline", choices=["inline", "async", "chaos"])
    parser.add_argument("--dynamic", default="both", choices=["true", "false", "both"])
    parser.add_argument("--against-compiled-cpu", action="store_true", help="the first seventeen, bit for bit")
    parser.add_argument("--json", action="store_true", help="a line for each program")
    options = parser.parse_args()
    import torch._inductor.config

    from torch_openreg.openreg import execution_mode

    warnings.filterwarnings("ignore")
    execution_mode(options.mode)
    failures = 0
    with torch._inductor.config.patch(fallback_random=True):  # compiled code draws eager's random numbers, as on CUDA
        for dynamic in {"true": [True], "false": [False], "both": [False, True]}[options.dynamic]:
            for name in options.names or PROGRAMS:
                compare = options.against_compiled_cpu and list(PROGRAMS).index(name) < BIT_FOR_BIT
                report = check(name, dynamic, compare)
                failures += bool(report["error"])
                if options.json:
                    print(json.dumps(report), flush=True)
                else:
                    against_cpu = {None: "", True: ", equal to the compiled CPU", False: ", within rounding of it"}
                    said = report["error"] or f"ok{against_cpu[report['bit_for_bit']]}"
                    print(f"{name:30} {'dynamic' if dynamic else 'static':8}", said, flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
