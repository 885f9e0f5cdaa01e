"""The pytest plugin: ``pytest --openreg-as=cuda`` and its like set environment variables before torch is imported.

Without one of its options it does nothing, and imports neither torch nor torch_openreg.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from types import FunctionType, ModuleType

import pytest

from torch_openreg_options import OPTIONS, metavar, reader


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torch_openreg", "simulated devices (torch_openreg)")
    for name, variable, allowed, text in OPTIONS:
        group.addoption(
            f"--openreg-{name}", metavar=metavar(allowed), type=reader(allowed), help=f"{text}; sets {variable}"
        )


@pytest.hookimpl(tryfirst=True)  # before conftest.py, which may import torch
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    settings = _settings(early_config.known_args_namespace)
    # A worker of pytest-xdist inherits the variables. They hold, whatever has imported torch there.
    if settings.items() <= os.environ.items():
        return
    if "torch" in sys.modules:
        options = " ".join(f"--openreg-{name}" for name, variable, *_ in OPTIONS if variable in settings)
        variables = " ".join(f"{variable}={value}" for variable, value in settings.items())
        raise pytest.UsageError(
            f"{options}: torch was imported {_by_whom()}before pytest read its options, which is too late to choose "
            f"the devices. Set them before Python starts: {variables} python -m pytest ..."
        )
    os.environ.update(settings)


def pytest_report_header(config: pytest.Config) -> str | None:
    settings = _settings(config.known_args_namespace)
    if not settings:
        return None
    face = os.environ.get("TORCH_OPENREG_AS") or "openreg"
    variables = " ".join(f"{variable}={value}" for variable, value in settings.items())
    return f'torch_openreg: the device "{face}" is simulated ({variables})'


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """With --openreg-sanitize a test has a session of its own, and fails if it has left a report that nobody raised."""
    checks = _settings(item.config.known_args_namespace).get("OPENREG_SANITIZER")
    if not checks:
        return (yield)
    from torch_openreg.openreg import sanitizer

    with sanitizer.enable(checks):
        return (yield)


@pytest.fixture
def openreg_faults() -> Iterator[Callable[[str], object]]:
    """A function that injects faults until the end of the test: ``torch_openreg.openreg.faults.inject(program)``."""
    from torch_openreg.openreg.faults import inject

    with ExitStack() as stack:
        yield lambda program: stack.enter_context(inject(program))


def _settings(options: object) -> dict[str, str]:
    """Environment variable -> value, of the options that are given."""
    values = {variable: getattr(options, f"openreg_{name.replace('-', '_')}", None) for name, variable, *_ in OPTIONS}
    return {variable: value for variable, value in values.items() if value is not None}


def _by_whom() -> str:
    """ "by NAME (FILE) ", or "" if that cannot be told.

    Python lists modules in the order in which their import ended. So the importer is the first one after torch that has
    something of torch, or else the program itself, which has not ended.
    """
    names = list(sys.modules)
    for name in [*names[names.index("torch") + 1 :], "__main__"]:
        module = sys.modules[name]
        ours = name.partition(".")[0] in ("torch", "torch_openreg")
        if not ours and isinstance(module, ModuleType) and any(map(_is_of_torch, list(vars(module).values()))):
            return f"by {name} ({getattr(module, '__file__', None) or 'without a file'}) "
    return ""


def _is_of_torch(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else None
    if isinstance(value, (type, FunctionType)):
        home = value.__module__
    return isinstance(home, str) and home.partition(".")[0] == "torch"
