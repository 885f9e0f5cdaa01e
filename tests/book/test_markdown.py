"""Pages are read as text too: in a review, in an editor, in a terminal. So lines and cells of tables are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import programs

ROOT = Path(__file__).parents[2]
LINE, CELL = 160, 120
# Programs write these pages from what they measure.
MEASURED = {f"docs/{name}.md" for name in ("minimal-operators", "mutants", "bring-up/device-module")}


def too_long(text: str) -> Iterator[tuple[int, int]]:
    """The number and the length of each line, or cell, that is too long.

    Code is not counted: its lines are as long as what they quote. Nor is a word that nobody can break, or the address
    of a link.
    """
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r" *(`{3,})", line)
        if fence or (mark and "{glossary}" not in line):
            fence = "" if line.strip() == fence else fence or (mark[1] if mark else "")
        elif line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", re.sub(r"\]\([^)]*\)", "]", line))
            yield from ((number, len(c.strip())) for c in cells if len(c.strip()) > CELL and " " in c.strip())
        elif len(line) > LINE and " " in line.strip():
            yield number, len(line)


def test_no_line_and_no_cell_of_a_page_is_too_long() -> None:
    files = programs.run("git", "ls-files", "*.md", cwd=ROOT, status=0).stdout
    found = {file: list(too_long((ROOT / file).read_text())) for file in files.splitlines() if file not in MEASURED}
    assert len(found) > 50 and {file: places for file, places in found.items() if places} == {}


def test_what_is_too_long_is_found() -> None:
    long, cell = "word " * 33, "x" * 60 + " " + "x" * 60
    text = f"{long}\n```\n{long}\n```\n| {cell} | a |\n| [a](https://{cell}) | {'z' * 200} |\n{'y' * 200}\n"
    assert list(too_long(text)) == [(1, 165), (5, 121)]
