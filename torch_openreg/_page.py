"""Makes reports as pages of one HTML file, which need no network, no server and no other file.

A page is ``page(title, body)``; ``table``, ``scrolls`` and ``stacked_areas`` make parts of a body. The page's security
policy forbids the browser to load anything, so a page that works here works offline. Colours follow the reader's light
or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --soft: color-mix(in srgb, currentColor 12%, transparent); }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .2rem .6rem; border-bottom: 1px solid var(--soft); vertical-align: top; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
code, td.code {{ font-family: ui-monospace, monospace; white-space: nowrap; }}
.scrolls {{ overflow-x: auto; }}
/* A side with hidden text fades out. */
[data-more~="right"] {{ mask-image: linear-gradient(to left, transparent, #000 3rem); }}
[data-more~="left"] {{ mask-image: linear-gradient(to right, transparent, #000 3rem); }}
[data-more="left right"] {{
  mask-image: linear-gradient(to right, transparent, #000 3rem, #000 calc(100% - 3rem), transparent);
}}
svg {{ display: block; width: 100%; min-width: 40rem; height: auto; }}
svg text {{ fill: currentColor; font-size: 12px; }}
svg .grid {{ stroke: currentColor; opacity: .15; }}
svg .mark {{ stroke: currentColor; stroke-dasharray: 3 3; }}
.key {{ display: inline-block; width: .8em; height: .8em; margin-right: .5em; border-radius: 2px; }}
{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
<script>
function markSides(element) {{
  const sides = [];
  if (element.scrollLeft > 1) sides.push("left");
  if (element.scrollLeft + element.clientWidth < element.scrollWidth - 1) sides.push("right");
  element.dataset.more = sides.join(" ");
}}
for (const element of document.querySelectorAll(".scrolls")) {{
  element.addEventListener("scroll", () => markSides(element), {{ passive: true }});
  const resized = new ResizeObserver(() => markSides(element));
  resized.observe(element);
  resized.observe(element.firstElementChild);
}}
{script}</script>
</body>
</html>"""


def page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """The whole page: ``title`` is text, ``body``, ``style`` and ``script`` are HTML, CSS and JavaScript."""
    return _PAGE.format(title=escape(title), body=body, style=style, script=script)


def scrolls(content: str) -> str:
    """``content``, one element, which scrolls sideways if the window is narrower than the element."""
    return f'<div class="scrolls">{content}</div>'


def colour(index: int) -> str:
    """The colour of series number ``index``. It differs from the colours of the series before and after it."""
    return f"hsl({index * 137.5 % 360:.0f} 60% 50%)"


def table(head: Sequence[str], rows: Sequence[Sequence[str | int]], *, coloured: bool = False) -> str:
    """A table. Cells are text; integers and text that begins with a digit are aligned to the right.

    ``coloured``: whether each row begins with the colour of the series that the row describes.
    """

    def cell(value: str | int, tag: str, key: str = "") -> str:
        text = str(value)
        return f"<{tag}{' class=number' if text[:1].isdigit() else ''}>{key}{escape(text)}</{tag}>"

    body = []
    for index, row in enumerate(rows):
        key = f'<span class="key" style="background:{colour(index)}"></span>' if coloured else ""
        body.append("<tr>" + "".join(cell(value, "td", "" if i else key) for i, value in enumerate(row)) + "</tr>")
    numeric = [str(value)[:1].isdigit() for value in (rows[0] if rows else head)]
    headings = "".join(
        f"<th{' class=number' if number else ''}>{escape(name)}</th>"
        for name, number in zip(head, numeric, strict=True)
    )
    return scrolls(f"<table><thead><tr>{headings}</tr></thead><tbody>{''.join(body)}</tbody></table>")


def _round_step(highest: float) -> float:
    """The distance of an axis's lines: 1, 2 or 5 times a power of ten, so that there are three to six lines."""
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * factor for factor in (0.2, 0.5, 1.0, 2.0) if highest / (power * factor) < 6)


def stacked_areas(
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    label: str,
    unit: str,
    marks: Sequence[tuple[int, str]] = (),
    limit: tuple[float, str] | None = None,
) -> str:
    """A picture of quantities over the same steps, stacked, each in the colour that ``colour()`` gives.

    Args:
        series: the name and the values of each quantity; all have the same number of values.
        label: a description of the picture, for readers who do not see it.
        unit: the unit of the values, which is written at the axis.
        marks: steps at which there is a vertical line with a word.
        limit: a value at which there is a horizontal line with a word.
    """
    width, height, left, top = 1000.0, 260.0, 70.0, 18.0
    steps = max((len(values) for _, values in series), default=0)
    totals = [sum(values[i] for _, values in series) for i in range(steps)]
    highest = max([*totals, limit[0] if limit else 0.0, 1e-9]) * 1.05

    def x(step: float) -> float:
        return left + (width - left) * step / max(steps, 1)

    def y(value: float) -> float:
        return top + height * (1 - value / highest)

    parts = [f'<svg viewBox="0 0 {width:.0f} {top + height + 8:.0f}" role="img" aria-label="{escape(label)}">']
    step = _round_step(highest)
    for part in range(int(highest / step) + 1):
        value = step * part
        parts.append(
            f'<line x1="{left}" x2="{width}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>'
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g} {escape(unit)}</text>'
        )
    lower = [0.0] * steps
    for index, (name, values) in enumerate(series):
        upper = [base + value for base, value in zip(lower, values, strict=True)]
        # A value holds from its step until the next step.
        there = [f"{x(i + j):.1f},{y(v):.1f}" for i, v in enumerate(upper) for j in (0, 1)]
        back = [f"{x(i + j):.1f},{y(lower[i]):.1f}" for i in reversed(range(steps)) for j in (1, 0)]
        parts.append(
            f'<polygon points="{" ".join(there + back)}" fill="{colour(index)}"><title>{escape(name)}</title></polygon>'
        )
        lower = upper
    for at, word in marks:
        anchor = "end" if at > steps / 2 else "start"
        parts.append(
            f'<line x1="{x(at + 0.5):.1f}" x2="{x(at + 0.5):.1f}" y1="{top}" y2="{top + height}" class="mark"/>'
            f'<text x="{x(at + 0.5):.1f}" y="{top - 5}" text-anchor="{anchor}">{escape(word)}</text>'
        )
    if limit:
        parts.append(
            f'<line x1="{left}" x2="{width}" y1="{y(limit[0]):.1f}" y2="{y(limit[0]):.1f}" class="mark"/>'
            f'<text x="{width}" y="{y(limit[0]) - 4:.1f}" text-anchor="end">{escape(limit[1])}</text>'
        )
    return scrolls("".join(parts) + "</svg>")
