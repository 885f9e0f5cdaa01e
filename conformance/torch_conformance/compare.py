"""``python -m torch_conformance compare a.json b.json``: the results of several backends side by side."""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

from .page import document
from .registry import BAD, LEVELS

Summary = dict[str, Any]


def main(arguments: list[str]) -> int:
    made = argparse.ArgumentParser(
        prog="python -m torch_conformance compare",
        description="Shows the results of several runs side by side: a line for each level, and a line for each check "
        "that failed, crashed or hung on one of the backends.",
    )
    made.add_argument("files", nargs="+", type=_summary, metavar="FILE", help="a file that --json wrote")
    made.add_argument("--html", type=Path, metavar="FILE", help="writes all checks as one page that needs no network")
    options = made.parse_args(arguments)
    if options.html:
        options.html.write_text(page(options.files), encoding="utf-8")
    print(text(options.files))
    return 0


def _summary(path: str) -> Summary:
    try:
        found = json.loads(Path(path).read_text())
        return found | {"title": f"{found['device']} ({Path(path).stem})", "results": _results(found)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{path} is not a file that --json wrote: {error}") from None


def _results(summary: Summary) -> dict[str, Summary]:
    return {check["name"]: check for check in summary["checks"]}


def _levels(summary: Summary) -> dict[str, str]:
    """For each level: how many of the offered checks passed."""
    return {
        f"{level['level']} {level['title']}": f"{level['passed'] + level['noted']} of {level['offered']}"
        for level in summary["levels"]
        if level["checks"]
    }


def _names(summaries: list[Summary]) -> list[str]:
    """The checks of all runs, in the order of their levels."""
    names = dict.fromkeys(name for summary in summaries for name in summary["results"])
    return sorted(names, key=lambda name: LEVELS.index(name.split("/")[0]))


def text(summaries: list[Summary]) -> str:
    """The tables for a terminal."""
    titles = [summary["title"] for summary in summaries]
    names = [name for name in _names(summaries) if any(_result(summary, name) in BAD for summary in summaries)]
    levels = [_levels(summary) for summary in summaries]
    rows = [
        [level, *(each.get(level, "") for each in levels)]
        for level in dict.fromkeys(k for each in levels for k in each)
    ]
    bad = [[name, *(_result(summary, name) for summary in summaries)] for name in names]
    tables = [[["passed of offered", *titles], *rows], [["check", *titles], *bad]]
    return "\n\n".join(map(_aligned, tables if bad else tables[:1]))


def _result(summary: Summary, name: str) -> str:
    found = summary["results"].get(name)
    return str(found["result"]) if found else "not run"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def page(summaries: list[Summary]) -> str:
    """The page: the levels, and all checks with a cell for each backend. A cell's tooltip has the reason."""
    head = "".join(f"<th>{escape(each['title'])}<br>torch {escape(each['torch'])}</th>" for each in summaries)
    levels = [_levels(summary) for summary in summaries]
    rows = [
        f"<tr><td>{escape(level)}</td>{''.join(f'<td>{escape(each.get(level, str()))}</td>' for each in levels)}</tr>"
        for level in dict.fromkeys(k for each in levels for k in each)
    ]
    checks = [
        f"<tr><td>{escape(name)}</td>{''.join(_cell(summary['results'].get(name)) for summary in summaries)}</tr>"
        for name in _names(summaries)
    ]
    table = f"<table><tr><th></th>{head}</tr>{{}}</table>"
    body = table.format("".join(rows)) + "<h2>Checks</h2>" + table.format("".join(checks))
    return document("Conformance of several backends", body)


def _cell(check: Summary | None) -> str:
    if check is None:
        return "<td>not run</td>"
    return f'<td class="{check["result"].split()[0]}" title="{escape(check["detail"])}">{escape(check["result"])}</td>'
