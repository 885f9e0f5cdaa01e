"""The bar of the command `check`: ``python -m tests.tools.pairs`` (or ``make check-pairs``).

Runs the command on each bug of this repository and on its repair, without a hint which instrument shows the bug. Of a
bug the report must have its line, and of a repair it must have nothing. What was run is kept in a file, so that another
call goes on there:

    make check-pairs                                  # each pair once
    make check-pairs ARGS="--times 5"                 # four times more
    make check-pairs ARGS="--busy 3 planted:"         # beside three busy processes, only the pairs of one group
    make check-pairs ARGS="--forget race_of_a_kept"   # again what was run of these pairs

The result is a table in Markdown, and below it each miss and each false alarm. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "tools")]

from pairs import sources  # noqa: E402

BUSY = "while True: sum(range(10000))"
# Enough to find what does not depend on one place of many. A longer check finds more.
SMALL = ("--places", "3", "--seeds", "1", "--budget", "10m")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only pairs whose GROUP:NAME has one of these texts (default: all)")
    parser.add_argument("--times", type=int, default=1, help="runs of each program: %(default)s")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside: %(default)s")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "pairs.jsonl", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further program after this time")
    parser.add_argument("--forget", action="store_true", help="run again what was run of the chosen pairs")
    parser.add_argument("--table", action="store_true", help="run nothing, and print the table of what was run")
    parser.add_argument("--options", default=" ".join(SMALL), help="of check: %(default)s")
    return parser.parse_args(arguments)


def _share_server() -> None:
    """All checks share one server of programs: each would import torch, which takes longer than most of its runs."""
    import programs

    from torch_openreg.simulator.check import _processes

    server = programs.server(sys.executable, programs.read_early(os.environ), ())
    shared = SimpleNamespace(start=server.start, end=lambda: None)
    make = _processes.Server
    _processes.Server = lambda *args, **kwargs: make(*args, **kwargs) if kwargs else shared  # type: ignore[misc]
    _processes.Runner._start_fresh = _processes.Runner._start  # type: ignore[method-assign]


def check(program: sources.Program, options: list[str]) -> dict[str, Any]:
    """The report of the command, and what it printed."""
    from torch_openreg.simulator._cli import check as command

    report = program.folder.parent / f"{program.folder.name}.json"
    report.unlink(missing_ok=True)
    os.chdir(program.folder)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = command.main(["--json", str(report), *options, *program.words])
    return {"status": status, **json.loads(report.read_text())}


def judge(program: sources.Program, report: dict[str, Any]) -> str:
    """What is wrong with the report; empty if nothing is."""
    rows = [(row["kind"], Path(row["file"]).name, row["line"], row["sure"]) for row in report["findings"]]
    if not program.lines:
        return "; ".join(" ".join(map(str, row)) for row in rows)
    if any((file, line) in program.lines for _, file, line, _ in rows):
        return ""
    return "missed" + (f", but {'; '.join(' '.join(map(str, row)) for row in rows)}" if rows else "")


def read(kept: Path) -> Iterator[dict[str, Any]]:
    if kept.exists():
        for line in kept.read_text().splitlines():
            yield json.loads(line)


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| Pairs | Bugs | Runs | Caught with the line | Repairs | Runs | Without a finding |", "|" + "---|" * 7]
    for group in dict.fromkeys(row["group"] for row in rows):
        cells = [group]
        for is_bug in (True, False):
            mine = [row for row in rows if row["group"] == group and row["is_bug"] == is_bug]
            good = sum(not row["wrong"] for row in mine)
            cells += [str(len({row["name"] for row in mine})), str(len(mine)), str(good)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _run(todo: list[tuple[sources.Program, int]], options: argparse.Namespace) -> None:
    begin = time.monotonic()
    os.environ["PYTHONPATH"] = str(sources.LIBRARY.parent)
    _share_server()
    for program, number in todo:
        if time.monotonic() - begin > options.seconds:
            break
        start = time.monotonic()
        report = check(program, options.options.split())
        row = {
            "group": program.group,
            "name": program.name,
            "is_bug": bool(program.lines),
            "wrong": judge(program, report),
            "seconds": round(time.monotonic() - start, 1),
            "load": round(os.getloadavg()[0], 1),
            "found": [
                [each["kind"], Path(each["file"]).name, each["line"], each["sure"]] for each in report["findings"]
            ],
        }
        with open(options.kept, "a") as file:
            file.write(json.dumps(row) + "\n")
        what = "bug" if row["is_bug"] else "repair"
        print(
            f"{program.group}:{program.name} {what} {number}: {row['wrong'] or 'ok'} ({row['seconds']} s)", flush=True
        )


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    options.kept = options.kept.resolve()
    options.kept.parent.mkdir(exist_ok=True)

    def is_chosen(group: str, name: str) -> bool:
        return not options.names or any(text in f"{group}:{name}" for text in options.names)

    rows = list(read(options.kept))
    if options.forget:
        rows = [row for row in rows if not is_chosen(row["group"], row["name"])]
        options.kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not options.table:
        todo = []
        programs = [each for each in sources.programs(ROOT / "build" / "pairs") if is_chosen(each.group, each.name)]
        for number in range(1, options.times + 1):
            for program in programs:
                done = [row for row in rows if (row["name"], row["is_bug"]) == (program.name, bool(program.lines))]
                if len(done) < number:
                    todo.append((program, number))
        busy = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(options.busy)]
        try:
            _run(todo, options)
        finally:
            for process in busy:
                process.kill()
        rows = list(read(options.kept))
    rows = [row for row in rows if is_chosen(row["group"], row["name"])]
    print("\n" + table(rows) + "\n")
    wrong = [row for row in rows if row["wrong"]]
    for row in wrong:
        print(f"{row['group']}:{row['name']}: {'' if row['is_bug'] else 'false alarm: '}{row['wrong']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
