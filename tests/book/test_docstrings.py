"""The docstrings of the public names say what a caller must know. The book's reference is made of them.

Required: every argument, what is returned, the unit of every size and time, shape and dtype of every tensor, every
error that the code raises, and the function of PyTorch that is followed. The module's docstring says for all functions
what ``device`` may be, and which error a missing device raises. ruff requires that there is a docstring, and that its
first line is a sentence (.ruff.toml).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HOME = "torch_openreg.openreg"
MODULES = ("", ".amp", ".execution", ".fallback", ".memory", ".nvtx", ".profiler", ".random", ".streams")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import api  # noqa: E402

DOCUMENTED = {".memory": api.UNDERSCORED}
# Names that have no counterpart in torch.cuda.
OWN = {
    "Policy",
    "counts",
    "device_model",
    "execution_mode",
    "get_execution_mode",
    "get_policy",
    "record_launch_sites",
    "reset_counts",
    "set_policy",
    "table",
}


def public() -> Iterator[tuple[str, Any]]:
    """Functions, classes and their methods, by qualified name; each once."""
    seen = set()
    for suffix in MODULES:
        module = importlib.import_module(HOME + suffix)
        names = [name for name in module.__all__ if not name.startswith("_")]
        for name in [*names, *DOCUMENTED.get(suffix, ())]:
            value = getattr(module, name)
            ours = getattr(value, "__module__", "").startswith(HOME)
            if not ours or isinstance(value, ModuleType) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"torch.openreg{suffix}.{name}", value
            if isinstance(value, type):
                for method, function in vars(value).items():
                    if not method.startswith("_") and callable(function):
                        yield f"torch.openreg{suffix}.{name}.{method}", function


PUBLIC = dict(public())
every_public_name = pytest.mark.parametrize("name", PUBLIC)


def doc_of(name: str) -> str:
    return inspect.cleandoc(PUBLIC[name].__doc__ or "")


def signature(value: Any) -> inspect.Signature:
    if isinstance(value, type):
        makes = next((vars(value)[each] for each in ("__new__", "__init__") if each in vars(value)), None)
        return inspect.signature(makes) if makes else inspect.Signature()
    return inspect.signature(value)


def arguments(value: Any) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each
        for each in signature(value).parameters.values()
        if each.name not in ("self", "cls", "_cls", "device") and each.kind not in kinds
    ]


def raised(value: Any) -> set[str]:
    """The exceptions of the `raise` statements in the source of a function or of a class."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError):  # made at run time
        return set()
    return {
        ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc
    }


def test_the_names_are_found() -> None:
    assert {"torch.openreg.empty_cache", "torch.openreg.MemPool.snapshot", "torch.openreg.memory._snapshot"} <= set(
        PUBLIC
    )
    assert len(PUBLIC) > 70


def test_what_a_device_may_be_is_said_once() -> None:
    doc = importlib.import_module(HOME).__doc__ or ""
    assert "``device``" in doc and "None for the current device" in doc
    assert "torch.AcceleratorError: The device index is out of range" in doc


@every_public_name
def test_every_argument_is_described(name: str) -> None:
    doc = doc_of(name)
    listed = {word for words in re.findall(r"^    ([\w, ]+): ", doc, re.MULTILINE) for word in words.split(", ")}
    named = set(re.findall(r"``(\w+)``", doc)) | listed
    assert [each.name for each in arguments(PUBLIC[name]) if each.name not in named] == []


@every_public_name
def test_what_is_returned_is_described(name: str) -> None:
    """The docstring is a noun phrase that describes the value, or a sentence of it says "returns"."""
    if isinstance(PUBLIC[name], type) or signature(PUBLIC[name]).return_annotation in ("None", "Iterator[None]"):
        return
    first = doc_of(name).split()[0]
    is_a_verb = re.fullmatch(r"[A-Z][a-z]+s", first) and first not in ("Bytes", "Calls")
    assert not is_a_verb or re.search(r"\breturns\b", doc_of(name), re.IGNORECASE)


SIZE = re.compile(r"(^|_)(size|bytes|memory|mem|limit)(_|$)")
TIME = re.compile(r"(^|_)(time|timeout|elapsed|delay)(_|$)")


def numbers(name: str) -> Iterator[str]:
    """The arguments that may be numbers, and the name of the function itself if it returns a number."""
    value = PUBLIC[name]
    number = re.compile(r"\b(int|float|dict|OrderedDict)\b")
    yield from (each.name for each in arguments(value) if number.search(str(each.annotation)))
    if not isinstance(value, type) and number.search(str(signature(value).return_annotation)):
        yield name.rpartition(".")[2]


@every_public_name
def test_sizes_and_times_have_a_unit(name: str) -> None:
    for number in numbers(name):
        if SIZE.search(number) and "fraction" not in name:
            unit = "percent" if "usage" in number else "bytes"
            assert re.search(rf"\b{unit}\b", doc_of(name), re.IGNORECASE), number
        if TIME.search(number):
            assert re.search(r"\b(micro|milli|nano)?seconds\b", doc_of(name)), number


@every_public_name
def test_tensors_have_a_shape_and_a_dtype(name: str) -> None:
    annotations = [str(each.annotation) for each in arguments(PUBLIC[name])]
    annotations.append(str(signature(PUBLIC[name]).return_annotation))
    if any(re.search(r"\bTensor\b", each) for each in annotations):
        assert re.search(r"\bdimension|\bshape", doc_of(name))
        assert re.search(r"uint8|float|int64|dtype", doc_of(name))


@every_public_name
def test_every_error_is_named(name: str) -> None:
    assert [error for error in sorted(raised(PUBLIC[name])) if error not in doc_of(name)] == []


@every_public_name
def test_the_function_that_is_followed_is_named(name: str) -> None:
    if name.rpartition(".")[2] not in OWN:
        assert re.search(r"``torch\.", doc_of(name))


def raises_silently() -> None:
    """Something."""
    raise KeyError


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("def f(a): 'Something.'", test_every_argument_is_described),
        ("def f() -> 'int': 'Frees something.'", test_what_is_returned_is_described),
        ("def f(size: 'int'): '``size`` is large.'", test_sizes_and_times_have_a_unit),
        ("def f(timeout: 'float'): '``timeout`` is long.'", test_sizes_and_times_have_a_unit),
        ("def f() -> 'Tensor': 'The state.'", test_tensors_have_a_shape_and_a_dtype),
        ("f = raises_silently", test_every_error_is_named),
        ("def f(): 'Something.'", test_the_function_that_is_followed_is_named),
    ],
)
def test_each_rule_finds_what_it_is_for(function: str, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = {"raises_silently": raises_silently}
    exec(function, scope)
    monkeypatch.setitem(PUBLIC, "torch.openreg.f", scope["f"])
    with pytest.raises(AssertionError):
        rule("torch.openreg.f")
