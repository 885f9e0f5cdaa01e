"""Compiled training steps, the call of a compiled kernel, and the time to compile, in a separate process per device."""

from __future__ import annotations

import tempfile
import time
import timeit

import torch

from benchmarks import training

# Names of training.RECIPES.
STEPS = ("MLP", "transformer", "tiny MLP", "convolution, 64 MB activations")


def measure(device: str, quick: bool) -> dict[str, float]:
    """Seconds by name, with an empty cache of compiled code. ``quick``: only the call, to save compilations."""
    from torch._inductor.utils import fresh_cache

    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder):
        took = {}
        if not quick:
            start = time.perf_counter()
            training.make_step("MLP", device, compiled=True)()
            took["cold compilation of the MLP"] = time.perf_counter() - start
            for name in STEPS:
                torch.compiler.reset()
                took[name] = training.seconds_a_step(name, device, quick, compiled=True)
            torch.compiler.reset()
        took["call of a kernel, 16 elements"] = seconds_a_call(device)
    return took


def seconds_a_call(device: str) -> float:
    """The seconds of one call of a C++ kernel from Python, as the generated code of a graph calls it."""
    from torch._inductor.codecache import PyCodeCache

    x, result = torch.ones(16, device=device), torch.empty(16, device=device)
    torch.compile(lambda x: x.sin() + 1)(x)
    (kernel,) = (value for name, value in vars(PyCodeCache.modules[-1]).items() if name.startswith("cpp_fused"))
    timer = timeit.Timer("kernel(x, result)", globals={"kernel": kernel, "x": x, "result": result})
    return min(timer.repeat(30, 20_000)) / 20_000
