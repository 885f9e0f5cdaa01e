"""The device of the whole suite: TEST_DEVICE, or the CPU."""

import os
from collections.abc import Iterator

import pytest
import torch

DEVICE = torch.device(os.environ.get("TEST_DEVICE", "cpu"))


@pytest.fixture
def device() -> torch.device:
    return DEVICE


# LITERALINCLUDE START: DEVICE WAS USED
@pytest.fixture(scope="session", autouse=True)
def the_device_was_used() -> Iterator[None]:
    """Fails if no test used the accelerator: a suite that ran on the CPU by mistake has tested nothing."""
    yield
    assert DEVICE.type == "cpu" or torch.accelerator.max_memory_allocated(DEVICE) > 0


# LITERALINCLUDE END: DEVICE WAS USED
