"""Programs that run with and without dry execution; each prints the peak of each step. Usage: dry_programs.py [NAME...]"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEVICE = torch.accelerator.current_accelerator()
assert DEVICE is not None
Step = Callable[[], object]


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A step of training."""

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def training(model: nn.Module, inputs: Tensor, loss_of: Callable[[Tensor], Tensor], optimizer: str = "AdamW") -> Step:
    model, inputs = model.to(DEVICE), inputs.to(DEVICE)
    chosen = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
    return step_of(model, chosen, lambda: loss_of(model(inputs)))


def squares(output: Tensor) -> Tensor:
    return output.float().square().mean()


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    def __init__(self, words: int = 512, width: int = 128, length: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(2)), nn.LayerNorm(width))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        return self.head(self.blocks(self.words(tokens) + self.places(places)))


def gpt(*, autocast: bool = False, checkpoint: bool = False, **settings: object) -> Step:
    torch.manual_seed(0)
    model = GPT().to(DEVICE)
    if checkpoint:
        from torch.utils.checkpoint import checkpoint as recomputed

        blocks = model.blocks.forward
        model.blocks.forward = lambda x: recomputed(blocks, x, use_reentrant=False)  # type: ignore[method-assign]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **settings)
    tokens = torch.randint(512, (4, 65)).to(DEVICE)

    def loss() -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast):
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return step_of(model, optimizer, loss)


def conv_net() -> Step:
    layers = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3))
    rest = (nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return training(nn.Sequential(*layers, *rest), torch.ones(8, 3, 32, 32), squares, "SGD")


def conv_net_eval() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).to(DEVICE).eval()
    images = torch.ones(8, 3, 32, 32).to(DEVICE)
    return lambda: model(images).square().mean().backward()


class LastOutput(nn.Module):
    def __init__(self, network: nn.RNNBase) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)[0]


def lstm() -> Step:
    return training(LastOutput(nn.LSTM(32, 64, 2, batch_first=True)), torch.ones(8, 20, 32), squares)


def gru() -> Step:
    return training(LastOutput(nn.GRU(32, 64, batch_first=True)), torch.ones(8, 20, 32), squares)


def mlp() -> Step:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 256))
    return training(model, torch.ones(32, 256), squares, "Adam")


def encoder() -> Step:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return training(nn.TransformerEncoder(layer, 2), torch.ones(4, 32, 64), squares)


ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "bilinear_upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 8, 16, 16)),
    "celu": (nn.CELU, (64, 64)),
    "conv1d": (lambda: nn.Conv1d(8, 16, 3), (4, 8, 64)),
    "conv3d": (lambda: nn.Conv3d(4, 8, 3), (2, 4, 8, 8, 8)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), (2, 8, 16, 16)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), (2, 8, 16, 16)),
    "gelu": (nn.GELU, (64, 64)),
    "glu": (nn.GLU, (64, 64)),
    "group_norm": (lambda: nn.GroupNorm(2, 8), (4, 8, 16, 16)),
    "hardswish": (nn.Hardswish, (64, 64)),
    "instance_norm": (lambda: nn.InstanceNorm2d(8, affine=True), (4, 8, 16, 16)),
    "layer_norm": (lambda: nn.LayerNorm(64), (32, 64)),
    "leaky_relu": (nn.LeakyReLU, (64, 64)),
    "log_softmax": (lambda: nn.LogSoftmax(-1), (64, 64)),
    "max_pool1d": (lambda: nn.MaxPool1d(2), (4, 8, 64)),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), (4, 8, 16, 16)),
    "mish": (nn.Mish, (64, 64)),
    "multihead_attention": (lambda: LastOutput(nn.MultiheadAttention(64, 4)), (16, 4, 64)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (2, 16, 8, 8)),
    "prelu": (nn.PReLU, (64, 64)),
    "reflection_pad": (lambda: nn.ReflectionPad2d(1), (2, 8, 16, 16)),
    "rms_norm": (lambda: nn.RMSNorm(64), (32, 64)),
    "sigmoid": (nn.Sigmoid, (64, 64)),
    "silu": (nn.SiLU, (64, 64)),
    "softmax": (lambda: nn.Softmax(-1), (64, 64)),
    "softplus": (nn.Softplus, (64, 64)),
    "tanh": (nn.Tanh, (64, 64)),
}


def module(name: str) -> Step:
    make, sizes = ZOO[name]
    network = make().to(DEVICE)
    inputs = torch.ones(sizes).to(DEVICE).requires_grad_()
    if isinstance(network, LastOutput):
        return lambda: network.network(inputs, inputs, inputs)[0].square().mean().backward()
    return lambda: network(inputs).square().mean().backward()


PROGRAMS: dict[str, Callable[[], Step]] = {
    "gpt": gpt,
    "gpt_autocast": lambda: gpt(autocast=True),
    "gpt_fused": lambda: gpt(fused=True),
    "gpt_one_tensor_at_a_time": lambda: gpt(foreach=False),
    "gpt_checkpoint": lambda: gpt(checkpoint=True),
    "conv_net": conv_net,
    "conv_net_eval": conv_net_eval,
    "lstm": lstm,
    "gru": gru,
    "mlp": mlp,
    "encoder": encoder,
} | {f"nn_{name}": lambda name=name: module(name) for name in ZOO}


def peaks(program: Callable[[], Step], steps: int = 2) -> list[int]:
    """The peak of each step, with the memory that was in use before the program left out."""
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    step = program()
    found = []
    for _ in range(steps):
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()
        step()
        found.append(torch.accelerator.max_memory_allocated() - before)
    del step
    gc.collect()
    return found


if __name__ == "__main__":
    result: dict[str, object] = {}
    for each in sys.argv[1:] or PROGRAMS:
        try:
            result[each] = peaks(PROGRAMS[each])
        except Exception as error:
            result[each] = repr(error)
    print(json.dumps(result))
