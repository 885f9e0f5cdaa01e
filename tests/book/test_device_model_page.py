"""The page of the book about what CUDA refuses and the CPU does not, as PyTorch's own tables say."""

from __future__ import annotations

import pytest

from tests.book.device_model_page import MACROS, cells, computed, missing, page

pytestmark = pytest.mark.slow


def test_the_page_lists_every_operator_and_every_file() -> None:
    only = cells("8.0")
    names = [*only["cpu"], *only["cuda"], *missing("CUDA"), *(macro.kernel for macro in MACROS)]
    text = page(only)
    assert len(names) > 100 and [name for name in names if f"`{name}`" not in text] == []
    extra = {
        (name, dtype) for name, dtypes in computed().items() for dtype in dtypes if dtype not in only["cuda"][name]
    }
    assert extra == set()  # the device computes nothing that CUDA refuses
