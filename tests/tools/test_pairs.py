"""``make check-pairs``: which programs it makes, and how it judges a report. The checks themselves take hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pairs import __main__ as command
from pairs import sources


def test_each_bug_has_a_repair_that_is_another_program(tmp_path: Path) -> None:
    pairs: dict[tuple[str, str], list[sources.Program]] = {}
    for program in sources.programs(tmp_path):
        pairs.setdefault((program.group, program.name), []).append(program)
    assert {group for group, _ in pairs} == {"gallery", "planted", "sanitizer", "tests"}
    for (group, name), programs in pairs.items():
        texts = [(program.folder / f"{name}.py").read_text() for program in programs]
        for text in texts:
            compile(text, name, "exec")
        if group != "tests":
            bug, repair = sorted(programs, key=lambda program: not program.lines)
            assert bug.lines and not repair.lines and texts[0] != texts[1]


def test_a_repair_has_other_lines_in_the_place_of_the_bug() -> None:
    text = "a()  # BUG, not in the repair\nif b:\n    # REPAIR: c()\n    d()  # BUG\n"
    assert sources.marked(text) == [1, 4]
    assert sources.repaired(text) == "if b:\n    c()\n    d()  # BUG\n"


@pytest.mark.parametrize(
    ("found", "of_bug", "of_repair"),
    [
        ([], "missed", ""),
        ([("race", 3)], "", "race a.py 3 once"),
        ([("leak", 9), ("race", 3)], "", "leak a.py 9 once; race a.py 3 once"),
        ([("leak", 9)], "missed, but leak a.py 9 once", "leak a.py 9 once"),
    ],
)
def test_a_bug_is_caught_by_its_line_and_a_repair_has_no_finding(
    found: list[tuple[str, int]], of_bug: str, of_repair: str
) -> None:
    report: dict[str, Any] = {
        "findings": [{"kind": kind, "file": "x/a.py", "line": line, "sure": "once"} for kind, line in found]
    }
    for lines, expected in ((frozenset([("a.py", 3)]), of_bug), (frozenset[tuple[str, int]](), of_repair)):
        assert command.judge(sources.Program("planted", "a", Path(), (), lines), report) == expected
