"""docs/device-model-refusals.md: what CUDA refuses and the CPU does not, as PyTorch's own tables say."""

from __future__ import annotations

import pytest
import torch

from tests.book.device_model_page import DOCUMENT, cells, page

pytestmark = pytest.mark.slow


def test_the_page_is_what_the_command_writes() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the page is made from the operators of PyTorch 2.13")
    assert DOCUMENT.read_text() == page(cells("8.0")), "run python -m tests.book.device_model_page"
