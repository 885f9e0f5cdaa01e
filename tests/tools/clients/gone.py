"""A pytest plugin for a checkout of another version of PyTorch: stubs for the names that the installed one lacks.

A test that uses such a name is skipped, with the name as the reason. Without the stub the whole file could not be
imported. Two stubs skip no test: that of a decorator that only skips tests (``skipIf...``), and that of a decorator
with arguments (``@name(3)``).
"""

from __future__ import annotations

import ast
import importlib
import os
import unittest
from pathlib import Path
from typing import Any


class Gone:
    """The stub for a function or a decorator that the installed PyTorch lacks."""

    def __init__(self, name: str) -> None:
        self.name, self.why = name, f"the installed PyTorch has no {name}"
        self.importing = True

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1 and getattr(arguments[0], "__name__", "").startswith("test"):
            return arguments[0] if self.name.startswith("skip") else unittest.skip(self.why)(arguments[0])
        if self.importing:  # the call makes a decorator, such as @name(3)
            return lambda decorated: decorated
        raise unittest.SkipTest(self.why)


def stub(tree: ast.Module) -> list[Gone]:
    """Gives PyTorch's modules the names that the file imports from them and that they lack."""
    stubs = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("torch."):
            try:
                module = importlib.import_module(str(node.module))
            except ImportError:
                continue
            for name in (alias.name for alias in node.names if alias.name != "*"):
                if not hasattr(module, name):
                    try:
                        importlib.import_module(f"{node.module}.{name}")
                    except ImportError:
                        stubs.append(Gone(name))
                        setattr(module, name, stubs[-1])
    return stubs


STUBS: list[Gone] = []


def pytest_configure() -> None:
    STUBS.extend(stub(ast.parse(Path(os.environ["OPENREG_CLIENTS_FILE"]).read_text())))


def pytest_collection_finish() -> None:
    for each in STUBS:
        each.importing = False
