"""docs/bring-up/further-mechanisms.md names files of PyTorch, and names in these files, that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "bring-up" / "further-mechanisms.md"


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is PyTorch 2.13's")
def test_the_files_of_pytorch_have_the_names_of_the_table() -> None:
    rows = re.findall(r"^\| [^|]+ \| `(torch/[^`]+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 13
    for file, names in rows:
        text = (Path(torch.__file__).parents[1] / file).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"\b{name}\b", text), (file, name)
