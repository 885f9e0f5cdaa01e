"""Makes parts of a page from the programs of examples/tutorials: a cell's title is a sentence, its code is a block."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import generated

FOLDER = Path(__file__).parents[1] / "examples" / "tutorials"


def section(source: str) -> str:
    """Markdown for a program: its subject and its command, from the docstring, and then its cells (`# %%`)."""
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring is not None
    about, command = docstring.split(" Run: ")
    parts = [about, f"```sh\n{command.replace('python ', 'python examples/tutorials/')}\n```"]
    code = re.sub(r"^ *# LITERALINCLUDE .*\n", "", source, flags=re.MULTILINE)
    code = re.sub(r"^( +# )%% ", r"\1", code, flags=re.MULTILINE)  # within a function a title stays a comment
    code = code[code.index('"""', 3) + 3 :]
    first, *cells = re.split(r"^# %% ", code, flags=re.MULTILINE)
    for title, body in [("", first), *(cell.split("\n", 1) for cell in cells)]:
        body = re.sub(r"\n{4,}", "\n\n\n", body).strip("\n")
        parts += [title] * bool(title) + [f"```{{code-block}} python\n{body}\n```"] * bool(body)
    return "\n\n".join([*parts, ""])


def write_all(folder: Path) -> None:
    """Writes a section for each program, to be included by the page of the tutorials."""
    for file in sorted(FOLDER.glob("*.py")):
        generated.write(folder / f"{file.stem}.txt", section(file.read_text()))
