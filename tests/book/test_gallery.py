"""Each program of the gallery gets the message that docs/test/gallery.md quotes. The repaired program passes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import programs
import pytest
from programs import Done

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "test" / "gallery.md").read_text()
BUGS = sorted(path for path in (ROOT / "examples" / "gallery").glob("*.py") if not path.stem.endswith("_repaired"))


def word(path: Path, name: str) -> str:
    """What follows `name` at the begin of a line in the docstring of a bug; empty if there is no such line."""
    found = re.search(rf'^{name} (.+?)\n(?:Seen in |Says: |Run with: |""")', path.read_text(), re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def without_the_device(text: str) -> str:
    """The text with one word for the type of the device, which is cuda or openreg, and for its dispatch key."""
    return re.sub("openreg|cuda|PrivateUse1", "DEVICE", text, flags=re.I)


def run(path: Path, settings: str) -> Done:
    variables = {"TORCH_OPENREG_AS": os.environ.get("TORCH_OPENREG_AS", "")}
    variables |= dict(setting.split("=", 1) for setting in settings.split())
    return programs.run(sys.executable, path, clean=True, **variables)


def test_the_gallery_and_its_page_have_twenty_bugs() -> None:
    assert len(BUGS) == 20 == PAGE.count("literalinclude")


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug", [*BUGS[:4], *(pytest.param(bug, marks=pytest.mark.slow) for bug in BUGS[4:])], ids=lambda path: path.stem
)
def test_the_device_finds_the_bug_and_accepts_the_repair(bug: Path) -> None:
    settings, says, link = word(bug, "Run with:"), word(bug, "Says:"), word(bug, "Seen in")
    assert link in PAGE and says in PAGE and link.startswith("https://github.com/")
    result = run(bug, settings)
    assert without_the_device(says) in without_the_device(result.stderr)
    assert result.returncode != 0
    repaired = run(bug.with_name(f"{bug.stem}_repaired.py"), settings)
    assert repaired.returncode == 0 and without_the_device(says) not in without_the_device(repaired.stderr)
