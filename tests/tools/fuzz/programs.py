"""Runs a program, a list of lines of Python, on the CPU and on the device, and compares all its variables.

A line is executed in both worlds. A world is a namespace with its own `DEVICE`. If the line raises an error, it must
raise the same error in both worlds. A device with a queue may raise the error only when the program next waits for it.
A program goes on after an error, so that `shrink` can leave out any line.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from comparison import bits, comparable, significant_strides
from sweep.errors import outcome, sentence
from torch import Tensor
from torch.utils._pytree import tree_leaves


# Programs may call this function besides torch. The script of a program contains the source of this function.
def make(shape, dtype, seed, device):  # type: ignore[no-untyped-def]
    """A tensor of small numbers, the same on every device."""
    draw = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        values = torch.randn(shape, generator=draw, dtype=wide)
    else:
        values = torch.randint(-4 if dtype.is_signed else 0, 5, shape, generator=draw)
    return values.to(dtype).to(device)


class Difference(Exception):
    """The device and the CPU disagree; the message says in what."""


def _raised(action: Callable[[], Any]) -> str | None:
    try:
        action()
    except Exception as error:
        # For queued work, the device adds the name of the operator that raised.
        text = re.sub(r" \(raised by aten::[^()]*\)$", "", sentence(error))
        # If a number is assigned to an indexed CPU tensor, PyTorch makes a tensor of the number, through double
        # (scalar_tensor_static). On every other device PyTorch fills a tensor, so the message names another type.
        return re.sub(r"(value cannot be converted to type )[\w:]+( without overflow)", r"\1T\2", text)
    return None


@dataclass
class World:
    """A namespace in which a program runs."""

    device: str
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names.update(torch=torch, DEVICE=self.device, F=torch.nn.functional)
        self.names["make"] = lambda shape, dtype, seed: make(shape, dtype, seed, self.device)

    def execute(self, code: Any) -> str | None:
        """Runs a line. Returns the type and message of the error that it raises, or None."""
        return _raised(lambda: exec(code, self.names))

    def wait(self) -> str | None:
        """Waits until all work is done. Returns the type and message of an error that the work has raised, or None."""
        if self.device == "cpu":
            return None
        return _raised(torch.get_device_module(self.device).synchronize)

    def results(self) -> Iterator[tuple[str, Any]]:
        """The program's variables: tensors t1, t2, ..., tensors that stay on the CPU c1, ..., plain values v1, ..."""
        for name, value in self.names.items():
            if name[1:].isdigit():
                yield name, value


_PROPERTIES = (
    ("dtype", lambda t: t.dtype),
    ("layout", lambda t: t.layout),
    ("shape", lambda t: tuple(t.shape)),
    ("requires_grad", lambda t: t.requires_grad),
    ("is_leaf", lambda t: t.is_leaf),
    ("is_conj", lambda t: t.is_conj()),
    ("is_neg", lambda t: t.is_neg()),
    ("version", lambda t: None if t.is_inference() else t._version),
    ("strides", lambda t: significant_strides(t) if t.layout is torch.strided else None),
    ("storage offset", lambda t: t.storage_offset() if t.layout is torch.strided and t.numel() else None),
)


def _compare_tensor(name: str, actual: Tensor, expected: Tensor, device: str, values: bool) -> None:
    where = "cpu" if name[0] == "c" else torch.device(device).type
    if actual.device.type != where:
        raise Difference(f"{name} is on {actual.device}")
    for what, get in _PROPERTIES:
        # If the base of a view was written to, reading a property of the view may raise.
        found, wanted = outcome(lambda get=get: get(actual)), outcome(lambda get=get: get(expected))  # type: ignore[misc]
        if found != wanted:
            raise Difference(f"{what} of {name} is {found}, the CPU's {wanted}")
    if (actual.grad is None) != (expected.grad is None):
        raise Difference(f"{name}.grad is {actual.grad}, the CPU's {expected.grad}")
    if actual.grad is not None and expected.grad is not None:
        _compare_tensor(f"{name}.grad", actual.grad, expected.grad, device, values)
    if values:
        try:
            on_cpu = comparable(expected)
        except NotImplementedError:
            return  # lazily negated bools: not even the CPU can read them
        for x, y in zip(comparable(actual), on_cpu, strict=True):
            if not torch.equal(bits(x), bits(y)):
                raise Difference(f"{name} is {x.tolist()}, the CPU's {y.tolist()}"[:2000])


def _compare_value(name: str, actual: Any, expected: Any, device: str, values: bool) -> None:
    for a, e in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if isinstance(e, Tensor) and isinstance(a, Tensor):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # .grad of a tensor that is not a leaf warns
                _compare_tensor(name, a, e, device, values)
        elif not (a == e or (a != a and e != e)):
            raise Difference(f"{name} is {a!r}, the CPU's {e!r}")


def compare(actual: World, expected: World, values: bool = True) -> None:
    """Raises Difference for the first variable that differs. If `values` is False, compares the metadata only."""
    results = dict(expected.results())
    for name, value in actual.results():
        _compare_value(name, value, results[name], actual.device, values)


@dataclass
class Run:
    """The two worlds of a program, and what it has done so far."""

    device: str
    seed: int
    # Compares values at the end only. A comparison after every line would wait for the device's queue each time.
    values_at_end: bool = False

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.cpu, self.other = World("cpu"), World(self.device)
        torch.manual_seed(self.seed)

    def step(self, line: str) -> str | None:
        """Executes a line in both worlds and compares them. Returns the error that it raises in both, or None."""
        self.lines.append(line)
        code = compile(line, f"<line {len(self.lines)}>", "exec")
        expected, actual = self.cpu.execute(code), self.other.execute(code)
        if expected is not None and actual != expected:  # the device may raise the error only in a wait
            actual = self.other.wait() or actual
            self._forget_unfinished()
        if expected != actual:
            raise Difference(f"the device raises {actual}, the CPU {expected}")
        if expected is not None and (out := re.search(r"out=\(?(\w+)", line)):
            self._forget(out[1])
        else:
            compare(self.other, self.cpu, values=not self.values_at_end)
        return expected

    def _forget(self, name: str) -> None:
        """Removes a tensor, the output of a call that raised: it may have been resized and then not written."""
        output = self.cpu.names.get(name)
        for each in [each for each, value in self.cpu.results() if value is output]:
            del self.cpu.names[each], self.other.names[each]

    def _forget_unfinished(self) -> None:
        """Removes the variables that a line has made or written on the device, if the line raises only in a wait.
        If it has written a tensor, also removes all tensors with an autograd graph: a graph may have saved that one."""
        for name in [name for name, _ in self.other.results() if name not in self.cpu.names]:
            del self.other.names[name]
        written = {name for name, value in self.cpu.results() if self._differs(name, value)}
        for name, value in list(self.cpu.results()):
            with_history = any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(value))
            if name in written or (written and with_history):
                del self.cpu.names[name], self.other.names[name]

    def _differs(self, name: str, value: Any) -> bool:
        try:
            _compare_value(name, self.other.names[name], value, self.device, values=False)
        except Difference:
            return True
        return False

    def finish(self) -> None:
        """Compares the values, and the next random number of each device: the generators must have advanced alike."""
        if (late := self.other.wait()) is not None:
            raise Difference(f"the device raises {late} at the end")
        if self.values_at_end:
            compare(self.other, self.cpu)
        draw = compile("v0 = torch.rand(1, device=DEVICE).item()", "<end>", "exec")
        self.cpu.execute(draw)
        self.other.execute(draw)
        compare(self.other, self.cpu, values=False)


def run(lines: list[str], device: str, seed: int = 0, values_at_end: bool = False) -> None:
    """Runs a program. Raises Difference if the device and the CPU disagree."""
    program = Run(device, seed, values_at_end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for line in lines:
                program.step(line)
            program.finish()
        finally:
            program.other.wait()  # an error of this program must not reach the next one


def script(lines: list[str], device: str, seed: int, execution: str = "inline") -> str:
    """A program as a script that runs alone and prints what it names, on the CPU and on the device."""
    source = inspect.getsource(make).replace("  # type: ignore[no-untyped-def]", "")
    mode = ["import os", f"os.environ['OPENREG_EXECUTION'] = {execution!r}"] if execution != "inline" else []
    return "\n".join([
        *mode,
        "import torch",
        "import torch.nn.functional as F",
        "",
        source,
        "LINES = [",
        *(f"    {line!r}," for line in lines),
        "]",
        "",
        f"for DEVICE in ('cpu', {device!r}):",
        "    names = {'torch': torch, 'F': F, 'DEVICE': DEVICE}",
        "    names['make'] = lambda shape, dtype, seed: make(shape, dtype, seed, DEVICE)",
        f"    torch.manual_seed({seed})",
        "    for line in LINES:",
        "        try:",
        "            exec(line, names)",
        "        except Exception as error:",
        "            print(f'{line}: {type(error).__name__}: {error}')",
        "    print({name: value for name, value in names.items() if name[1:].isdigit()})",
    ])  # fmt: skip
