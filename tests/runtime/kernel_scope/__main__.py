"""Runs the float32 samples of PyTorch's database of operators, and one training step of each network of the zoo, and
watches each call (watch.py). Prints a summary as JSON."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import numbers
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

import torch
from comparison import DEVICE
from sample_inputs import sample_inputs
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from tests.operators.test_nn_zoo import CASES
from tests.runtime.kernel_scope.watch import native_handle, watch
from torch_openreg import openreg


def tensors_of(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def shares_memory(result: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    def storages(tensor: torch.Tensor) -> set[int]:
        return {tensor.untyped_storage()._cdata} if tensor.layout == torch.strided else set()

    return any(storages(result) & storages(each) for each in inputs)


def computes(result: object, inputs: list[torch.Tensor]) -> bool:
    """Whether the call made a tensor on the device that is no view of its arguments, or computed a number from them."""

    def on_device(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [t for t in tensors if t.device.type == DEVICE and t.numel() > 0]

    if any(isinstance(leaf, numbers.Number) for leaf in tree_leaves(result)):
        return bool(on_device(inputs))
    return any(not shares_memory(t, inputs) for t in on_device(tensors_of(result)))


def step(module: torch.nn.Module, arguments: tuple[object, ...]) -> object:
    """A forward and a backward."""
    result = module(*arguments)
    parts = [t for t in tensors_of(result) if t.requires_grad]
    if parts:
        torch.autograd.backward([t.sum() for t in parts])
    return result


def calls_of_the_database(
    most: int, names: list[str]
) -> Iterator[tuple[str, Callable[[], object], list[torch.Tensor]]]:
    for op in op_db:
        if torch.float32 in op.dtypes and (not names or op.name in names):
            samples = sample_inputs(op, torch.float32, device=DEVICE)
            for sample in itertools.islice(samples, most):
                name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
                call = functools.partial(op, sample.input, *sample.args, **sample.kwargs)
                yield name, call, tensors_of((sample.input, sample.args, sample.kwargs))


def calls_of_the_zoo(names: list[str]) -> Iterator[tuple[str, Callable[[], object], list[torch.Tensor]]]:
    for name, case in CASES.items():
        if not names or name in names:
            module = case.make().to(DEVICE)
            arguments = tree_map(lambda x: x.to(DEVICE) if isinstance(x, torch.Tensor) else x, case.arguments())
            yield name, functools.partial(step, module, arguments), tensors_of(arguments)


def run(mode: str, most: int, names: list[str]) -> dict[str, object]:
    openreg.execution_mode(mode, seed=1) if mode == "chaos" else openreg.execution_mode(mode)
    stream = openreg.Stream()
    handle = native_handle(stream)
    calls = kernels = 0
    skipped: list[str] = []
    faults: dict[str, list[str]] = {}
    with openreg.stream(stream):
        for name, call, inputs in itertools.chain(calls_of_the_database(most, names), calls_of_the_zoo(names)):
            try:
                result, count, wrong = watch(call, handle)
            # jiterator asserts that there is CUDA
            except (RuntimeError, ValueError, TypeError, AssertionError) as error:
                skipped.append(f"{name}: {error}".splitlines()[0])
                continue
            calls += 1
            kernels += count
            # empty() and similar functions return unwritten memory
            if not count and computes(result, inputs) and "empty" not in name:
                wrong.append("it computes, and no kernel was told")
            if wrong:
                faults.setdefault(name, []).extend(wrong)
    return {"mode": mode, "calls": calls, "kernels": kernels, "skipped": skipped, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.kernel_scope", description=__doc__)
    parser.add_argument("--mode", choices=("inline", "async", "chaos"), default="inline")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator: %(default)s")
    parser.add_argument("names", nargs="*", help="operators; default: all of the database")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    json.dump(run(arguments.mode, arguments.samples, arguments.names), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
