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


def tabs(page: str) -> set[str]:
    return set(re.findall(r"^:::\{tab-item\} (.+)$", (ROOT / "docs" / "bring-up" / page).read_text(), re.MULTILINE))


def test_pages_have_the_tabs_of_the_documents() -> None:
    assert tabs("autoload.md") == {"Without autoload", "With autoload"}
    assert tabs("operators.md") == {"C++", "Python"}


def test_code_of_the_sources_has_line_numbers() -> None:
    """The build of the book refuses an emphasised line that the code does not have."""
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "bring-up").glob("*.md")}
    blocks = {
        name: re.findall(r"^```\{literalinclude\}.+\n((?::.+\n)+)", text, re.MULTILINE) for name, text in pages.items()
    }
    assert sum(map(len, blocks.values())) > 100
    assert [name for name, found in blocks.items() if any(":linenos:" not in options for options in found)] == []
    assert {name for name, found in blocks.items() if ":emphasize-lines:" in "".join(found)} == {
        "autoload.md",
        "operators.md",
    }
