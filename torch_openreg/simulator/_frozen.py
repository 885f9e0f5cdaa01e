"""Numbers that a captured graph keeps as they were, for the check "graph" of the sanitizer (Replays.h).

A kernel gets a Python number at its launch, so a replay has the number of the capture. Which variable the number came
from is read from the bytecode of the line that calls the operator: the names on that line, and the attributes behind
them, whose value is the number. Of an optimizer on that line, the settings of its groups count. If such a variable has
another number at a replay, the program expects something that does not happen.

A variable is found again in its module, in its object, or in a function that still runs. Nothing is kept alive.
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

_PACKAGES = tuple(f"{name}." for name in ("torch", "torch_openreg", "contextlib", "threading"))
_LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")
_MISSING = object()


class _Variable(NamedTuple):
    name: str  # as the program writes it
    read: Callable[[], Any]  # its value now; _MISSING if it cannot be found
    number: float  # its value at the capture
    site: int  # the line of the capture, as C++ knows it


_variables: dict[int, dict[object, _Variable]] = {}  # by the graph; the inner key identifies the variable


def forget() -> None:
    """Forgets all graphs: a session begins."""
    _variables.clear()


def note(graph: int, site: int, numbers: Sequence[float]) -> None:
    """The line of the calling thread gives ``numbers`` to an operator, which the graph captures."""
    frame = _user_frame()
    if frame is None:
        return
    known = _variables.setdefault(graph, {})
    for name, key, read in _names(frame):
        value = read()
        if type(value) is float and (value in numbers or -value in numbers):
            known.setdefault(key, _Variable(name, read, value, site))
        optimizer = getattr(value, "__self__", value)  # of optimizer.step
        if isinstance(optimizer, torch.optim.Optimizer):
            for setting_key, variable in _settings(name, optimizer, site):
                known.setdefault(setting_key, variable)


def find_changed(graph: int) -> list[tuple[str, int]]:
    """In words, the variables of the graph that have other numbers than at the capture, each with the line."""
    changed = []
    for variable in _variables.get(graph, {}).values():
        value = variable.read()
        if type(value) is float and value != variable.number:
            text = f"{variable.name} was {variable.number} at the capture and is {value} now"
            changed.append((text, variable.site))
    return changed


def _settings(name: str, optimizer: torch.optim.Optimizer, site: int) -> Iterator[tuple[object, _Variable]]:
    reference = weakref.ref(optimizer)
    for index, group in enumerate(optimizer.param_groups):
        for setting, value in group.items():
            if type(value) is float:

                def read(index: int = index, setting: str = setting) -> Any:
                    found = reference()
                    return _MISSING if found is None else found.param_groups[index].get(setting, _MISSING)

                text = f"{name}.param_groups[{index}][{setting!r}]"
                yield (id(optimizer), index, setting), _Variable(text, read, value, site)


def _user_frame() -> FrameType | None:
    frame = sys._getframe(1)
    while frame is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_PACKAGES):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def _names(frame: FrameType) -> Iterator[tuple[str, object, Callable[[], Any]]]:
    """The names on the line of the frame, with the attributes behind them: the text, a key, and how to read them."""
    for chain in _chains(frame.f_code, frame.f_lineno):
        read = _reader(frame, chain[0])
        key: object = (id(frame.f_code), chain[0]) if chain[0] in frame.f_code.co_varnames else chain[0]
        yield chain[0], key, read
        for depth, attribute in enumerate(chain[1:], 2):
            owner = read()
            try:
                reference = weakref.ref(owner)
            except TypeError:  # a module, for example, has weak references; a tuple has none
                break
            if not isinstance(getattr(type(owner), "__dict__", {}).get(attribute), property):
                read = _attribute(reference, attribute)
                yield ".".join(chain[:depth]), (id(owner), attribute), read


def _attribute(reference: weakref.ref[Any], attribute: str) -> Callable[[], Any]:
    def read() -> Any:
        owner = reference()
        return _MISSING if owner is None else getattr(owner, "__dict__", {}).get(attribute, _MISSING)

    return read


def _reader(frame: FrameType, name: str) -> Callable[[], Any]:
    code = frame.f_code
    if name not in code.co_varnames + code.co_cellvars + code.co_freevars:
        variables = frame.f_globals
        return lambda: variables.get(name, _MISSING)
    owner: FrameType | None = frame
    if name in code.co_freevars:
        while owner is not None and name not in owner.f_code.co_cellvars:
            owner = owner.f_back
    of = code if owner is None else owner.f_code
    return lambda: _local(of, name)


def _local(code: CodeType, name: str) -> Any:
    """The value of a local variable of the innermost call of this function that has not ended."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code:
            variables = frame.f_locals
            value = variables.get(name, _MISSING)
            if isinstance(variables, dict):  # before Python 3.13: a copy, which would keep all objects alive
                variables.clear()
            return value
        frame = frame.f_back
    return _MISSING


_known_chains: dict[tuple[CodeType, int], list[list[str]]] = {}


def _chains(code: CodeType, line: int) -> list[list[str]]:
    """``[["self", "rate"], ["x"]]`` for the line ``return self.rate * x``."""
    key = (code, line)
    if key not in _known_chains:
        chains: list[list[str]] = []
        current = 0
        grows = False
        for instruction in dis.get_instructions(code):
            current = instruction.starts_line if type(instruction.starts_line) is int else current
            current = getattr(instruction, "line_number", None) or current
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if current == line and instruction.opname.startswith(_LOADS):
                chains.extend([name] for name in names)
                grows = True
            elif current == line and grows and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chains[-1].append(instruction.argval)
            else:
                grows = False
        _known_chains[key] = chains
    return _known_chains[key]
