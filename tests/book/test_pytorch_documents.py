"""docs/pytorch-documents.md: what its rows name exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pytorch-documents.md"


def test_each_row_leads_to_a_page_or_a_file_and_to_a_test() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \| `(tests/[\w/]+\.py)::(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert len(rows) == len(tables) - 2 * tables.count("|---|---|---|") > 40
    for _, places, file, test in rows:
        for page, name in re.findall(r"\[\]\(([\w/.-]+)\)|`([\w/.]+)`", places):
            path = PAGE.parent / page if page else ROOT / name
            # docs/conf.py writes the page of the stubs
            assert path.exists() or page == "stub-operators.md", path
        assert f"def {test}(" in (ROOT / file).read_text(), test
