"""README.md is true: its tree has every folder, and its numbers stand in one place."""

from __future__ import annotations

import re
from pathlib import Path

import programs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_tree_has_a_line_for_each_folder_and_no_other() -> None:
    tree = README.partition("## What is where\n\n```text\n")[2].partition("```")[0]
    folders, parent = set[str](), ""
    for indent, names in re.findall(r"^( *)(.+?)  ", tree, re.MULTILINE):
        parent = parent if indent else names
        folders |= {f"{parent}/{names}"} if indent else set(names.split(", "))
    assert [name for name in sorted(folders) if not (ROOT / name).is_dir()] == []
    files = programs.run("git", "ls-files", cwd=ROOT).stdout.splitlines()
    there = {file.partition("/")[0] for file in files if "/" in file and not file.startswith(".")}
    there |= {f"csrc/{path.name}" for path in (ROOT / "csrc").iterdir() if path.is_dir()}
    assert [name for name in sorted(there) if not any(f"{each}/".startswith(f"{name}/") for each in folders)] == []


def test_the_counts_of_a_gpus_answers_stand_only_where_they_are_generated() -> None:
    counts = r"\b\d,?\d{3} (?:\w+ )?(?:questions|answers|programs that a GPU|small programs)\b"
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if re.search(counts, page.read_text())] == []
