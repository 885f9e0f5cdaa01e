"""How conf.py writes what the pages include: pictures, the API reference, the tutorials."""

from pathlib import Path


def write(file: Path, text: str) -> None:
    """Leaves a file that has the text already: with a new date, Sphinx would read the pages that include it again."""
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
