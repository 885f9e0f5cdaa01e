"""Reads the file of ``torch-openreg dry --assume FILE``: values in place of those that nobody computed.

Importing this module needs no torch, so the command can check the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Value = bool | int | float
LINE = re.compile(r".+:[1-9][0-9]*")


def checked_line(line: str) -> str:
    """The line itself. Raises ValueError if it is not written as ``"train.py:12"``."""
    if not LINE.fullmatch(line):
        raise ValueError(f"{line!r} is not a line of Python. It is written as 'train.py:12'.")
    return line


def checked_values(value: Any) -> list[Value]:
    """The values as a list. Raises ValueError for an empty one, and for a value that is no number."""
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not values or not all(isinstance(each, (bool, int, float)) for each in values):
        raise ValueError(f"{value!r} is neither a number nor a list of numbers.")
    return values


def read(path: str) -> dict[str, list[Value]]:
    """The values for each line. Raises ValueError if the file is not such a JSON object."""
    example = 'Its JSON is an object such as {"train.py:12": 2.5, "generate.py:40": [false, false, true]}.'
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it is no object.")
        return {checked_line(line): checked_values(value) for line, value in data.items()}
    except (OSError, ValueError) as error:
        raise ValueError(f"The assumed values in {path} cannot be read: {error} {example}") from None
