"""Fixtures for the tests of other people's libraries. The tests are written as users write programs, for any device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are slow: the libraries are large. Only `make test-all` installs them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="package")
def factories_of_the_default_device() -> None:
    """PyTorch lists its factories at the first use of a default device: here, before a library replaces any of them."""
    from torch.utils._device import _device_constructors

    _device_constructors()


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """The models are so small that several threads are slower than one, ten times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
