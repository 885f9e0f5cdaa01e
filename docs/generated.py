"""Writes the files that pages include: pictures, the API reference, the tutorials."""

from pathlib import Path


def write(file: Path, text: str) -> None:
    """Writes a file, unless it has this text already: Sphinx reads a page again if an included file has a new date."""
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
