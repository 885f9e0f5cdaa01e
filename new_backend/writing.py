"""Puts a new backend together: the sources under the new names, and the pages that only a new backend has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from new_backend import naming, parts

ROOT = Path(__file__).parents[1]
TEXTS = Path(__file__).parent / "texts"

# The pages that may name the project from which a new one was made.
ACKNOWLEDGE = ("LICENSE", "README.md", "UPSTREAM.md")


class DefectiveSource(Exception):
    """A file of the sources from which no new backend can be made. The message says where and why."""


def write_full(name: str, output: Path) -> None:
    """Writes a complete new backend with the name ``name`` into the folder ``output``.

    Raises BadName if ``name`` cannot be used, DefectiveSource if a source file cannot be renamed, and FileExistsError
    if ``output`` is a file, or a folder that is not empty.
    """
    naming.check(name)
    originals = {file: ROOT / file for file in parts.files(ROOT)}
    texts = {file: _without_marks(path.read_text()) for file, path in originals.items() if not path.is_symlink()}
    names = naming.full_table(name, [*originals, *texts.values()])
    written = {
        names.rename(file): text if file in parts.VERBATIM else names.rename(text, file) for file, text in texts.items()
    }
    written |= _pages(name, TEXTS, f"python -m torch_openreg new {name}")
    _check_done(written)
    _write(output, written)
    for file, path in originals.items():
        target = output / names.rename(file)
        if path.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(names.rename(str(path.readlink())))
        else:
            target.chmod(path.stat().st_mode)


def write_example(kind: str, name: str, output: Path) -> None:
    """Writes examples/minimal_backend (``kind`` is "minimal") or examples/python_backend ("python"), renamed."""
    naming.check(name, kind)
    folder, old = {"minimal": ("minimal_backend", "abacus"), "python": ("python_backend", "ledger")}[kind]
    root = ROOT / "examples" / folder
    texts = {file: (root / file).read_text() for file in parts.files(root, ("",), ())}
    names = naming.word_table(old, name, [*texts, *texts.values()])
    written = {names.rename(file): names.rename(_without_marks(text), file) for file, text in texts.items()}
    written["LICENSE"] = (ROOT / "LICENSE").read_text()
    written["UPSTREAM.md"] = _pages(name, TEXTS, f"python -m torch_openreg new {name} --{kind}")["UPSTREAM.md"]
    _write(output, written)


def _without_marks(text: str) -> str:
    """The text of a file without the lines that mark parts of it for the book."""
    return "".join(line for line in text.splitlines(keepends=True) if "LITERALINCLUDE" not in line)


def _pages(name: str, folder: Path, command: str) -> dict[str, str]:
    """The files of ``folder``, which only a new backend has: a dict from path to text.

    ``{{word}}`` in a file is replaced by ``values[word]``.
    """
    lower, camel, upper, c_prefix = naming.words(name)
    article = "an" if lower[0] in "aeiou" else "a"
    values = {
        "name": lower,
        "Name": camel,
        "NAME": upper,
        "prefix": c_prefix,
        "ccl": lower.replace("_", "") + "ccl",
        "CCL": upper.replace("_", "") + "CCL",
        "dashed": lower.replace("_", "-"),
        "a": article,
        "version": upstream_version(),
        "command": command,
    }
    return {
        path.relative_to(folder).as_posix(): re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], path.read_text())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def upstream_version() -> str:
    """The version of these sources, with the commit if they are a checkout."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert found is not None
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, capture_output=True, text=True) if (ROOT / ".git").exists() else None
    return found[1] + (f", commit {commit.stdout.strip()}" if commit and commit.returncode == 0 else "")


def _check_done(written: dict[str, str]) -> None:
    """Raises DefectiveSource if a file still has a name or a mark of this project, which the table of names missed."""
    hidden = "openreg", r"\boccl", "literalinclude"
    left = re.compile(rf"(?i:{'|'.join(hidden)})|\{{\{{(?=(?:name|version|command)\}}\}})|\bor(?:[A-Z]\w|\[A-Z\])")
    for file, text in written.items():
        found = left.search(file) or (file not in ACKNOWLEDGE and left.search(text))
        if found:
            line = text.count("\n", 0, found.start()) + 1
            raise DefectiveSource(f"{file}:{line}: {found[0]!r} has no new name")


def _write(output: Path, written: dict[str, str]) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(f"{output} is there already, and not an empty folder: nothing was written.")
    for file, text in written.items():
        (output / file).parent.mkdir(parents=True, exist_ok=True)
        (output / file).write_text(text)
