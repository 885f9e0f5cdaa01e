"""The page of the book about what CUDA refuses and the CPU does not, as PyTorch's own tables say."""

from __future__ import annotations

import pytest

from tests.book.device_model_page import MACROS, cells, missing, page

pytestmark = pytest.mark.slow


def test_the_page_lists_every_operator_and_every_file() -> None:
    only = cells("8.0")
    names = [*only["cpu"], *only["cuda"], *missing("CUDA"), *(macro.kernel for macro in MACROS)]
    text = page(only)
    assert len(names) > 100 and [name for name in names if f"`{name}`" not in text] == []
