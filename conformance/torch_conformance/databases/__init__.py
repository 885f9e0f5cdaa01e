"""PyTorch's databases of operators, modules and optimizers: what is run on the CPU and on the device.

A suite has the entries of a database and the variants in which each can run. Who compares the two results decides how
exactly they must agree, and how a sample gets to the device: `torch_conformance.sweep` does so for any backend.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
import torch
from torch.testing._internal.common_utils import SEED
from torch.utils._pytree import tree_leaves, tree_map


@dataclass
class Sample:
    """The arguments of one call, and the device they are on. ``error`` is the exception that the call raises."""

    input: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    process: Callable[[Any], Any] = lambda output: output
    device: str = "cpu"
    error: type[BaseException] | None = None

    def arguments(self) -> Any:
        return self.input, self.args, self.kwargs

    def place(self, device: str, copy: Callable[[Any, str], Any]) -> Sample:
        """A copy on ``device``, made by ``copy(arguments, device)``."""
        input, args, kwargs = copy(self.arguments(), device)
        return replace(self, input=input, args=args, kwargs=kwargs, device=device)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        """A copy in which `function(tensor)` replaces every strided tensor. `requires_grad` stays as it is."""

        def change(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
                return leaf
            return function(leaf.detach()).requires_grad_(leaf.requires_grad)

        input, args, kwargs = tree_map(change, self.arguments())
        return replace(self, input=input, args=args, kwargs=kwargs)

    def call(self, function: Callable[..., Any], **more: Any) -> Any:
        return function(self.input, *self.args, **self.kwargs, **more)


@dataclass(frozen=True)
class Variant:
    """One way to run an entry of a suite. `run` gets each sample once on the CPU and once on the device. It must return
    the same on both, or raise the same."""

    help: str
    applies: Callable[[Any, torch.dtype], bool]
    samples: Callable[[Any, torch.dtype], Iterator[Sample]]
    run: Callable[[Any, Sample], Any]


@dataclass(frozen=True)
class Suite:
    """Named entries of one kind."""

    entries: dict[str, Any]
    dtypes: Callable[[Any], set[torch.dtype]]
    variants: dict[str, Variant]


def suite(kind: str) -> Suite:
    """The suite of a kind, which is "op", "module" or "optimizer". The first use of each takes seconds.

    Raises ImportError if PyTorch's test modules cannot be imported.
    """
    module = {"op": "operators", "module": "modules", "optimizer": "optimizers"}[kind]
    found: Suite = importlib.import_module(f"{__name__}.{module}").SUITE
    return found


def always(entry: Any, dtype: torch.dtype) -> bool:
    return True


def seeded(made: Iterable[Any]) -> Iterator[Any]:
    """What ``op.sample_inputs()`` and ``op.error_inputs()`` make of ``made``, with the same numbers, in a hundredth of
    the time.

    PyTorch's functions walk the stack to find the name of the test, which takes 50 ms. They seed all devices before
    each sample, which takes half a millisecond. This function seeds the generators of the CPU, of Python and of NumPy.
    """
    iterator = iter(made)
    while True:
        torch.default_generator.manual_seed(SEED)
        random.seed(SEED)
        numpy.random.seed(SEED)
        try:
            sample = next(iterator)
        except StopIteration:
            return
        yield sample


def sample_inputs(op: Any, dtype: torch.dtype, requires_grad: bool = False, device: str = "cpu") -> Iterator[Any]:
    """The samples of ``op.sample_inputs()`` for an operator of any database: see `seeded`."""
    return seeded(op.sample_inputs_func(op, device, dtype, requires_grad))


def cotangent(output: torch.Tensor, seed: int) -> torch.Tensor:
    """The gradient of an output, from which a backward starts (`grad_outputs`). It is also called a direction.

    It has the same random numbers on the device and on the CPU. A sparse or nested output is its own direction.
    Ones would hide mistakes: the gradient of softmax or of a layer_norm without weights would be 0.
    """
    if output.layout is not torch.strided or output.is_nested:
        return output.detach().clone()
    # Drawn in double precision, so that every dtype gets the same direction.
    wide = torch.complex128 if output.is_complex() else torch.float64
    # device="cpu": the caller may be inside `with torch.device(...)`, which changes the default device.
    draw = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(output.shape, generator=draw, device="cpu", dtype=wide).to(output.dtype).to(output.device)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _gradients(outputs: Any, inputs: Any, create_graph: bool) -> tuple[list[Any], list[torch.Tensor]]:
    """The gradients, and the directions of the outputs."""
    made = [t for t in tensors(outputs) if t.requires_grad]
    given = [t for t in tensors(inputs) if t.requires_grad]
    if not made or not given:
        return [], []
    directions = [cotangent(t, seed).requires_grad_(create_graph) for seed, t in enumerate(made)]
    grads = torch.autograd.grad(made, given, directions, allow_unused=True, create_graph=create_graph)
    return list(grads), directions


def differentiate(outputs: Any, inputs: Any, create_graph: bool = False) -> list[Any]:
    """The gradients of the outputs that require a gradient with respect to the inputs that require one."""
    return _gradients(outputs, inputs, create_graph)[0]


def forward_and_backward(function: Callable[..., Any], sample: Sample) -> Any:
    """Outputs and gradients. If a gradient is required, some operators take another kernel for the outputs too."""
    outputs = tree_leaves(sample.process(sample.call(function)))
    return outputs, differentiate(outputs, sample.arguments())


def double_backward(function: Callable[..., Any], sample: Sample) -> Any:
    """Gradients of gradients. The gradients of a linear operator depend on nothing but the directions."""
    grads, directions = _gradients(sample.process(sample.call(function)), sample.arguments(), create_graph=True)
    return differentiate(grads, (sample.arguments(), directions))
