"""The pairs of a bug and its repair in this repository, as programs that the command `check` can run.

A planted bug is one file of the folder planted. Its line ends with "# BUG" (several lines, if the report may name any of
them). In the repair each line that begins with "# REPAIR: " is a line of the program, and each line that ends with
"# BUG, not in the repair" is left out.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLANTED = Path(__file__).with_name("planted")
LIBRARY = ROOT / "tests" / "support" / "openreg_c.py"  # through which programs call the device library
PAIRS = ROOT / "tests" / "simulator" / "sanitizer_pairs.py"
ROUNDS = 8  # of a program whose memory piles up

Lines = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Program:
    """``words`` follow `check`. ``lines``: those of which the report must have one; empty for a repair."""

    group: str
    name: str
    folder: Path
    words: tuple[str, ...]
    lines: Lines


def programs(folder: Path) -> Iterator[Program]:
    """Writes the programs into new folders within ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    yield from _planted(folder)
    yield from _check_programs(folder)
    yield from _gallery(folder)
    yield from _sanitizer(folder)


def marked(text: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if "# BUG" in line]


def repaired(text: str) -> str:
    text = re.sub(r"^.*# BUG, not in the repair.*\n", "", text, flags=re.M)
    return re.sub(r"^( *)# REPAIR: ", r"\1", text, flags=re.M)


def _program(folder: Path, group: str, name: str, text: str, lines: Lines | None = None) -> Program:
    """``lines``: default: each line of a file. The first line of the file may have further words for `check`."""
    place = folder / group / name / ("repair" if lines == frozenset() else "bug")
    place.mkdir(parents=True)
    (place / f"{name}.py").write_text(text)
    if lines is None:
        lines = frozenset((f"{name}.py", number) for number in range(len(text.splitlines()) + 1))
    launcher = re.search(r"^Run with: (.+)$", text, re.M)
    words = tuple(launcher[1].split()) if launcher else ("PROGRAM",)
    if lines and (LIBRARY.stem in text or PAIRS.stem in text):
        lines |= {(LIBRARY.name, number) for number in range(len(LIBRARY.read_text().splitlines()))}
    return Program(group, name, place, tuple(f"{name}.py" if word == "PROGRAM" else word for word in words), lines)


def _gallery(folder: Path) -> Iterator[Program]:
    """Its programs tell how to run them; `check` finds that out."""
    for path in sorted((ROOT / "examples" / "gallery").glob("*.py")):
        name = path.stem.removesuffix("_repaired")
        text = path.read_text().replace("Run with:", "One instrument:")
        yield _program(folder, "gallery", name, text, None if name == path.stem else frozenset())


def _sanitizer(folder: Path) -> Iterator[Program]:
    """The line of a bug is in its function, or in a function that several bugs call."""
    tree = ast.parse(PAIRS.read_text())
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    pairs = {}
    for function in functions:
        for each in function.decorator_list:
            if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "pair":
                assert isinstance(each.args[0], ast.Constant)
                pairs[function.name] = each.args[0].value
    helpers = [each for each in functions if each.name not in pairs]
    for function in functions:
        if (kind := pairs.get(function.name)) is None:
            continue
        lines = frozenset(
            (PAIRS.name, number)
            for each in (function, *helpers)
            for number in range(each.lineno, (each.end_lineno or each.lineno) + 1)
        )
        for is_bug in (True, False):
            text = (
                f"import contextlib, sys\n\nsys.path.insert(0, {str(PAIRS.parent)!r})\nimport sanitizer_pairs\n\n"
                f"for _ in range({ROUNDS if kind == 'leak' else 1}):\n"
                f"    with contextlib.suppress(RuntimeError):\n"
                f"        sanitizer_pairs.{function.name}({not is_bug})\nsanitizer_pairs.openreg.synchronize()\n"
            )
            yield _program(folder, "sanitizer", function.name, text, lines if is_bug else frozenset())


def _check_programs(folder: Path) -> Iterator[Program]:
    for path in sorted((ROOT / "tests" / "simulator" / "check_programs").glob("*.py")):
        text = path.read_text()
        yield _program(folder, "tests", path.stem, text, frozenset((path.name, line) for line in marked(text)))


def _planted(folder: Path) -> Iterator[Program]:
    for path in sorted(PLANTED.glob("*.py")):
        text = path.read_text()
        yield _program(folder, "planted", path.stem, text, frozenset((path.name, line) for line in marked(text)))
        yield _program(folder, "planted", path.stem, repaired(text), frozenset())
