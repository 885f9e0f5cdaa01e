"""Single operators and optimizer steps, at 16 and at 1M float32 elements, interleaved with the CPU device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from benchmarks import targets
from benchmarks.report import Row, ratio, summary
from benchmarks.timing import Effort, Side, absolute, alternate


class Operator(NamedTuple):
    """A statement that uses the names of `operands()`. `grows`: whether its work grows with the number of elements."""

    name: str
    statement: str
    grows: bool = True


# The list does not change, because figures of different days can be compared only with the same list.
OPERATORS = {
    "elementwise": (
        Operator("add", "torch.add(x, y)"),
        Operator("sub", "torch.sub(x, y)"),
        Operator("mul", "torch.mul(x, y)"),
        Operator("div", "torch.div(x, y)"),
        Operator("add, number", "torch.add(x, 2.0)"),
        Operator("add, row", "torch.add(x, row)"),
        Operator("add, in place", "accumulator.add_(y)"),
        Operator("mul, out=", "torch.mul(x, y, out=out)"),
        Operator("neg", "torch.neg(x)"),
        Operator("abs", "torch.abs(x)"),
        Operator("sqrt", "torch.sqrt(x)"),
        Operator("exp", "torch.exp(x)"),
        Operator("sigmoid", "torch.sigmoid(x)"),
        Operator("tanh", "torch.tanh(x)"),
        Operator("relu", "torch.relu(x)"),
        Operator("gelu", "F.gelu(x)"),
        Operator("clamp", "torch.clamp(x, 0.6, 1.2)"),
        Operator("maximum", "torch.maximum(x, y)"),
        Operator("lt", "torch.lt(x, y)"),
        Operator("where", "torch.where(mask, x, y)"),
    ),
    "reductions": (
        Operator("sum", "torch.sum(x)"),
        Operator("sum, rows", "torch.sum(x, 1)"),
        Operator("mean, columns", "torch.mean(x, 0)"),
        Operator("amax, rows", "torch.amax(x, 1)"),
        Operator("argmax, rows", "torch.argmax(x, 1)"),
        Operator("norm", "torch.linalg.vector_norm(x)"),
    ),
    "matmul, conv, norm": (
        Operator("mm", "torch.mm(x, y)"),
        Operator("bmm", "torch.bmm(batch, batch)"),
        Operator("linear", "F.linear(x, y, row)"),
        Operator("conv2d", "F.conv2d(image, kernel, padding=1)"),
        Operator("max_pool2d", "F.max_pool2d(image, 2)"),
        Operator("layer_norm", "F.layer_norm(x, row.shape, row, row)"),
        Operator("batch_norm", "F.batch_norm(x, None, None, row, row, True)"),
        Operator("attention", "F.scaled_dot_product_attention(query, query, query)"),
    ),
    "indexing, cat": (
        Operator("x[index]", "x[index]"),
        Operator("x[index] = y", "accumulator[index] = y"),
        Operator("index_select", "torch.index_select(x, 0, index)"),
        Operator("gather", "torch.gather(x, 1, places)"),
        Operator("scatter_add_", "accumulator.scatter_add_(1, places, y)"),
        Operator("masked_fill", "torch.masked_fill(x, mask, 0.0)"),
        Operator("cat", "torch.cat((x, y))"),
        Operator("stack", "torch.stack((x, y))"),
    ),
    "views, factories": (
        Operator("view", "x.view(-1)", grows=False),
        Operator("t", "x.t()", grows=False),
        Operator("x[1:]", "x[1:]", grows=False),
        Operator("unsqueeze", "x.unsqueeze(0)", grows=False),
        Operator("expand", "row.expand(x.shape)", grows=False),
        Operator("empty", "torch.empty(x.shape, device=device)", grows=False),
        Operator("zeros", "torch.zeros(x.shape, device=device)"),
        Operator("arange", "torch.arange(elements, device=device)"),
    ),
}

# One step for 20 parameters, with 16 elements each or with 1M together. Both devices have the same flags.
OPTIMIZERS = {
    "SGD, foreach": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, foreach=True),
    "Adam, foreach": lambda p: torch.optim.Adam(p, lr=1e-6, foreach=True),
    "SGD, fused": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, fused=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-6, fused=True),
}

# The case of a table -> the number of elements, and the shapes of operands that are not square matrices.
SIZES = {
    "16": {"elements": 16, "batch": (4, 2, 2), "image": (1, 1, 4, 4), "kernel": (1, 1, 3, 3), "query": (1, 1, 4, 4)},
    "1M": {
        "elements": 1 << 20,
        "batch": (16, 256, 256),
        "image": (4, 16, 128, 128),
        "kernel": (16, 16, 3, 3),
        "query": (8, 8, 256, 64),
    },
}


def operands(size: str, device: str) -> dict[str, Any]:
    """The names in the statements, with their values. Random values are from 0.5 to 1.5, and equal on all devices."""
    shapes = SIZES[size]
    elements = shapes["elements"]
    assert isinstance(elements, int)
    side = math.isqrt(elements)
    numbers = torch.Generator().manual_seed(0)

    def random(shape: tuple[int, ...]) -> torch.Tensor:
        return (torch.rand(shape, generator=numbers) + 0.5).to(device)

    x, y = random((side, side)), random((side, side))
    return {
        "torch": torch,
        "F": F,
        "device": device,
        "elements": elements,
        "x": x,
        "y": y,
        "row": random((side,)),
        "out": torch.empty_like(x),
        "accumulator": torch.zeros_like(x),
        "mask": x < y,
        "index": torch.randperm(side, generator=numbers).to(device),
        "places": torch.randint(side, (side, side), generator=numbers).to(device),
        **{name: random(shapes[name]) for name in ("batch", "image", "kernel", "query")},  # type: ignore[arg-type]
    }


def measure_operators(device: str, effort: Effort) -> Iterator[Row]:
    """Measures every operator, and then gives the medians."""
    for size in SIZES:
        names = [operands(size, side) for side in (device, "cpu")]
        by_group: dict[str, list[Row]] = {}
        for group, operators in OPERATORS.items():
            for operator in operators:
                if size == "16" or operator.grows:
                    sides = [Side(operator.statement, found, found["device"]) for found in names]
                    row = ratio(operator.name, alternate(sides, effort), targets.OPERATOR_WORST[size], size)
                    by_group.setdefault(group, []).append(row)
                    yield row
        by_group["all"] = [row for rows in by_group.values() for row in rows]
        for group, rows in by_group.items():
            yield from summary(rows, f"median, {group}", targets.OPERATOR_MEDIAN[size].get(group), size)


def seconds_of_small_operators(device: str, effort: Effort) -> dict[str, float]:
    """The seconds of one execution of each operator at 16 elements, for a comparison of processes."""
    names = operands("16", device)
    every = [operator for group in OPERATORS.values() for operator in group]
    return {operator.name: absolute(Side(operator.statement, names, device), effort) for operator in every}


def measure_optimizers(device: str, effort: Effort) -> Iterator[Row]:
    """Measures one step of each optimizer."""
    for size, elements in {"16": 16, "1M": (1 << 20) // 20}.items():
        for name, make in OPTIMIZERS.items():
            sides = []
            for place in (device, "cpu"):
                parameters = [torch.ones(elements, device=place, requires_grad=True) for _ in range(20)]
                for parameter in parameters:
                    parameter.grad = torch.ones_like(parameter)
                sides.append(Side("optimizer.step()", {"optimizer": make(parameters)}, place))
            yield ratio(name, alternate(sides, effort), targets.OPTIMIZER, size)
