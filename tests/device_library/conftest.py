"""Leaves out what only the folder csrc/simulator of the device library has, if the library was built without it."""

from __future__ import annotations

import inspect
import re

import pytest
from openreg_c import HAS_SIMULATOR

NEEDS_SIMULATOR = re.compile(r"chaos|CHAOS|orFault|orSetDeviceModel|orRequest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_SIMULATOR:
        return
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        body = inspect.getsource(item.function).partition("def ")[2]
        if NEEDS_SIMULATOR.search(item.name) or NEEDS_SIMULATOR.search(body):
            item.add_marker(pytest.mark.skip(reason="the library was built without csrc/simulator"))
