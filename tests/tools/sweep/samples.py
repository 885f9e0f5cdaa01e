"""What the suites are made of: samples, variants, and the steps that several of them share."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from comparison import leaves, place
from torch.utils._pytree import tree_map


@dataclass
class Sample:
    """The arguments of one call, and the device they are on."""

    input: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    process: Callable[[Any], Any] = lambda output: output
    device: str = "cpu"

    def arguments(self) -> Any:
        return self.input, self.args, self.kwargs

    def place(self, device: str) -> Sample:
        """A copy on `device`."""
        input, args, kwargs = place(self.arguments(), device)
        return Sample(input, args, kwargs, self.process, device)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        """A copy in which `function(tensor)` replaces every strided tensor. `requires_grad` stays as it is."""

        def change(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
                return leaf
            return function(leaf.detach()).requires_grad_(leaf.requires_grad)

        input, args, kwargs = tree_map(change, self.arguments())
        return replace(self, input=input, args=args, kwargs=kwargs)

    def in_float64(self) -> Sample:
        """A copy in which every floating-point tensor, and the module if there is one, is in float64."""
        wide = self.map(lambda t: t.double() if t.is_floating_point() else t)
        if isinstance(wide.input, torch.nn.Module):
            wide.input = copy.deepcopy(wide.input).double()
        return wide

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


def always(entry: Any, dtype: torch.dtype) -> bool:
    return True


# Names of devices, tensor types and backends, which differ between the device's messages and the CPU's.
_NAMES = (
    (r"\S+\.(?:cpp|h):\d+: ", ""),  # the line of PyTorch's source, in errors about symbolic sizes
    (r"\b(?:torch\.)?(?:openreg|cuda)\.(\w+Tensor)\b", r"torch.\1"),
    (r"\b(?:CPU|CUDA|openreg)(\w+)Type\b", r"torch.\1Tensor"),
    (r"\b(openreg|cuda)(:\d+)?\b", "cpu"),
    (r", device='cpu'", ""),  # a printed tensor names its device only if it is an accelerator
    (r"PrivateUse1|OPENREG|CUDA|openreg", "CPU"),
    (r"ScaledDotProduct(FusedAttentionOverrideable|FlashAttentionForCpu)", "ScaledDotProductAttention"),
    (r"_scaled_dot_product_(fused_attention_overrideable|flash_attention_for_cpu)", "_scaled_dot_product_attention"),
    (r"\bj\d+\b", "j"),  # the ragged size of a jagged tensor is numbered
    # What follows lists the dispatch keys that have a kernel.
    (r"(?s)with arguments from the '\w+' backend.*", "with arguments from the backend"),
)


def sentence(error: BaseException) -> str:
    """An exception's type and message, with the device's names replaced by the CPU's."""
    text = str(error).strip()
    for pattern, replacement in _NAMES:
        text = re.sub(pattern, replacement, text)
    return f"{type(error).__name__}: {text}"


def outcome(function: Callable[[], Any]) -> Any:
    """What `function` returns, or the sentence of what it raises."""
    try:
        return function()
    except Exception as error:
        return sentence(error)


def cotangent(output: torch.Tensor, seed: int) -> torch.Tensor:
    """A direction for a backward, the same for an output on the device as for the CPU's."""
    if output.layout is not torch.strided or output.is_nested:
        return output.detach().clone()
    generator = torch.Generator().manual_seed(seed)
    # Drawn in float64, so that every dtype gets the same direction.
    values = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return values.to(output.dtype).to(output.device)


def _gradients(outputs: list[Any], inputs: list[Any], create_graph: bool) -> tuple[list[Any], list[torch.Tensor]]:
    """The gradients, and the directions of the outputs."""
    outputs = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return [], []
    directions = [cotangent(t, seed).requires_grad_(create_graph) for seed, t in enumerate(outputs)]
    grads = torch.autograd.grad(outputs, inputs, directions, allow_unused=True, create_graph=create_graph)
    return list(grads), directions


def differentiate(outputs: list[Any], inputs: list[Any], create_graph: bool = False) -> list[Any]:
    """The gradients of the outputs that require a gradient with respect to the inputs that require one."""
    return _gradients(outputs, inputs, create_graph)[0]


def forward_and_backward(function: Callable[..., Any], sample: Sample) -> Any:
    """Outputs and gradients. If a gradient is required, some operators take another kernel for the outputs too."""
    outputs = leaves(sample.process(sample.call(function)))
    return outputs, differentiate(outputs, leaves(sample.arguments()))


def double_backward(function: Callable[..., Any], sample: Sample) -> Any:
    """Gradients of gradients. The gradients of a linear operator depend on nothing but the directions."""
    inputs = leaves(sample.arguments())
    grads, directions = _gradients(leaves(sample.process(sample.call(function))), inputs, create_graph=True)
    return differentiate(grads, [*inputs, *directions])
