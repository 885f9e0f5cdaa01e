"""Compares the estimates of time of dry execution with published measurements on four cards.

    python -m benchmarks.dry_time

- One layer of BERT-large and of GPT-2 medium in float16: TFLOP/s, from github.com/mli/transformers-benchmarks (README.md;
  the shapes with the largest rate, from micro_bench.ipynb).
- Training ResNet-50: images per second, from github.com/NVIDIA/DeepLearningExamples
  (PyTorch/Classification/ConvNets/resnet50v1.5/README.md, one GPU).

The rates of the models come from tables of single kernels. They were committed before the first run of this program, and
were not changed afterwards.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PUBLISHED = {  # model, what the measured card has otherwise -> program -> the published number
    ("cuda-a100", ("memory_bandwidth", 2039e9)): {  # the card of 80 GB
        "bert forward": 110,
        "bert forward+backward": 136,
        "gpt2 forward": 45,
        "gpt2 forward+backward": 53,
        "resnet tf32 256": 938,
        "resnet amp 256": 2470,
    },
    ("cuda-v100",): {
        "bert forward": 53,
        "bert forward+backward": 64,
        "gpt2 forward": 32,
        "gpt2 forward+backward": 36,
        "resnet fp32 128": 367,
        "resnet amp 256": 1200,
    },
    (  # GeForce RTX 3090 Ti
        "consumer-8gb",
        ("memory_bandwidth", 1008e9),
        ("flops_float32", 40e12),
        ("flops_tf32", 40e12),
        ("flops_float16", 80e12),
    ): {
        "bert forward": 56,
        "bert forward+backward": 62,
        "gpt2 forward": 37,
        "gpt2 forward+backward": 39,
    },
}
HIDDEN, HEADS = 1024, 16
SHAPES = {"bert": (128, 128), "gpt2": (64, 512)}  # batch and length


def transformer_layer(name: str) -> Callable[[], None]:
    """A layer as transformers had it in 2022: attention and the GELU of GPT-2 consist of single operators."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
            self.qkv_in_one = nn.Linear(HIDDEN, 3 * HIDDEN)
            self.out, self.up, self.down = (
                nn.Linear(*sizes) for sizes in ((HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN))
            )
            self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
            self.dropout = nn.Dropout(0.1)
            self.register_buffer("mask", torch.ones(1024, 1024, dtype=torch.bool).tril())

        def attention(self, parts: list[torch.Tensor], causal: bool) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
            scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)
            if causal:
                length = scores.size(-1)
                lowest = torch.full((), torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
                scores = torch.where(self.mask[:length, :length], scores, lowest)
            return (self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(-2)

        def bert(self, x: torch.Tensor) -> torch.Tensor:
            attended = self.attention([linear(x) for linear in self.qkv], causal=False)
            x = self.norms[0](self.dropout(self.out(attended)) + x)
            return self.norms[1](self.dropout(self.down(nn.functional.gelu(self.up(x)))) + x)

        def gpt2(self, x: torch.Tensor) -> torch.Tensor:
            attended = self.attention(list(self.qkv_in_one(self.norms[0](x)).chunk(3, -1)), causal=True)
            x = self.dropout(self.out(attended)) + x
            y = self.up(self.norms[1](x))
            y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * torch.pow(y, 3))))
            return x + self.dropout(self.down(y))

    device = torch.accelerator.current_accelerator()
    kind, passes = name.split()
    layer = Layer().half().to(device)
    x = torch.randn(*SHAPES[kind], HIDDEN).half().to(device)

    def run() -> None:
        output = getattr(layer, kind)(x)
        if "backward" in passes:
            output.sum().backward()

    return run


def resnet(name: str) -> Callable[[], None]:
    """A step of training ResNet-50 v1.5."""
    import torch
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            sizes = ((before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
            self.convolutions = nn.ModuleList(
                nn.Conv2d(inner, outer, kernel, step, kernel // 2, bias=False) for inner, outer, kernel, step in sizes
            )
            self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _, outer, _, _ in sizes)
            self.shortcut = nn.Sequential()
            if before != 4 * width or stride > 1:
                shortcut = nn.Conv2d(before, 4 * width, 1, stride, bias=False)
                self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x
            for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
                y = norm(convolution(y))
                y = y.relu_() if index < 2 else y
            return (y + self.shortcut(x)).relu_()

    device = torch.accelerator.current_accelerator()
    _, precision, batch = name.split()
    blocks: list[nn.Module] = []
    before = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for index in range(count):
            blocks.append(Bottleneck(before, 64 << stage, 2 if stage and not index else 1))
            before = 4 * 64 << stage
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).to(device)
    amp = precision == "amp"
    if amp:
        model = model.to(memory_format=torch.channels_last)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.875, weight_decay=3e-5)
    scaler = torch.amp.GradScaler(device.type, enabled=amp)
    images = torch.randn(int(batch), 3, 224, 224).to(device)
    images = images.to(memory_format=torch.channels_last) if amp else images
    labels = torch.zeros(int(batch), dtype=torch.long).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def run() -> None:
        with torch.autocast(device.type, torch.float16, enabled=amp):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return run


def measure(names: list[str]) -> None:
    """Runs within dry execution. Prints the seconds of one run of each program, when the host is ahead of the device."""
    import torch

    for name in names:
        run = resnet(name) if name.startswith("resnet") else transformer_layer(name)
        run()
        before = torch.openreg.dry.clock()
        run()
        print(torch.openreg.dry.clock().since(before).seconds, flush=True)


def rate(name: str, seconds: float) -> float:
    """What the measurement counts: TFLOP/s of a layer, or images per second."""
    kind, *_, last = name.split()
    if kind == "resnet":
        return int(last) / seconds
    batch, length = SHAPES[kind]
    flops = 24.0 * batch * length * HIDDEN**2 + 4.0 * batch * HIDDEN * length**2
    return flops * (3 if "backward" in name else 1) / seconds / 1e12


def main() -> None:
    print(f"{'model':<14}{'program':<24}{'published':>10}{'estimate':>10}{'error of the time':>20}")
    for (base, *changed), programs in PUBLISHED.items():
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder, "card.json")
            rates = {each: {"value": value, "source": "the data sheet of the measured card"} for each, value in changed}
            model.write_text(json.dumps({"like": [base], "rates": rates}))
            environment = os.environ | {"OPENREG_DRY": "1M", "OPENREG_MODEL": str(model)}
            command = [sys.executable, "-m", "benchmarks.dry_time", *programs]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for (name, published), seconds in zip(programs.items(), done.stdout.split(), strict=True):
            found = rate(name, float(seconds))
            print(f"{base:<14}{name:<24}{published:>10}{found:>10.0f}{published / found - 1:>+20.0%}", flush=True)


if __name__ == "__main__":
    measure(sys.argv[1:]) if len(sys.argv) > 1 else main()
