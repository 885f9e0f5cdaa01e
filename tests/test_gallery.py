"""Each program of the gallery fails with the message that docs/test/gallery.md quotes. The repaired program passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import device_under_test, environment_without_switches

from faces import face_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "test" / "gallery.md").read_text()
BUGS = sorted(path for path in (ROOT / "examples" / "gallery").glob("*.py") if not path.stem.endswith("_repaired"))


def word(path: Path, name: str) -> str:
    """The rest of the line that begins with `name` in the docstring of a bug; empty if there is no such line."""
    found = re.search(rf"^{name} (.+)$", path.read_text(), re.M)
    return found[1] if found else ""


def run(path: Path, settings: str) -> subprocess.CompletedProcess[str]:
    environment = environment_without_switches() | {"TORCH_OPENREG_AS": face_of(device_under_test())}
    environment |= dict(setting.split("=", 1) for setting in settings.split())
    return subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=300)


def test_the_gallery_and_its_page_have_twenty_bugs() -> None:
    assert len(BUGS) == 20 == PAGE.count("literalinclude")


@pytest.mark.parametrize("bug", BUGS, ids=lambda path: path.stem)
def test_the_device_finds_the_bug_and_accepts_the_repair(bug: Path) -> None:
    settings, says, link = word(bug, "Run with:"), word(bug, "Says:"), word(bug, "Seen in")
    assert link in PAGE and says in PAGE and link.startswith("https://github.com/")
    result = run(bug, settings)
    assert result.returncode != 0 and says in result.stderr
    repaired = run(bug.with_name(f"{bug.stem}_repaired.py"), settings)
    assert repaired.returncode == 0, repaired.stderr
