"""A curve drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The bit of each dot in the code of a braille character, by (column, row) in the cell of 2 x 4 dots.
_BRAILLE_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def draw_log_curve(values: Sequence[float], width: int = 64, height: int = 10, ascii_only: bool = False) -> list[str]:
    """Draws `values` from left to right as lines of text. The left edge shows both ends of the logarithmic scale.

    `width` and `height` count characters of the drawing without its scale. Values that are not positive and finite are
    left out. If no value is left, the result is one line that says so. `ascii_only` draws with `*`, one dot for each
    character, for terminals without braille characters.
    """
    across, down = (1, 1) if ascii_only else (2, 4)
    columns = width * across
    points: list[tuple[int, float]] = []
    for column in range(columns):
        start = column * len(values) // columns
        stop = max((column + 1) * len(values) // columns, start + 1)
        logs = [math.log10(value) for value in values[start:stop] if 0 < value < math.inf]
        if logs:
            points.append((column, sum(logs) / len(logs)))
    if not points:
        return ["(no positive, finite value to draw)"]

    low, high = min(y for _, y in points), max(y for _, y in points)
    rows = height * down
    cells = [[0] * width for _ in range(height)]
    for column, y in points:
        row = round((high - y) / (high - low or 1) * (rows - 1))
        cells[row // down][column // across] |= _BRAILLE_DOTS[column % across][row % down]

    def character(cell: int) -> str:
        if ascii_only:
            return "*" if cell else " "
        return chr(0x2800 + cell)

    labels = {0: f"{10**high:.3g}", height - 1: f"{10**low:.3g}"}
    bar = "|" if ascii_only else "│"
    lines = [f"{labels.get(i, ''):>8} {bar}{''.join(map(character, row))}" for i, row in enumerate(cells)]
    return [line.rstrip() for line in lines]
