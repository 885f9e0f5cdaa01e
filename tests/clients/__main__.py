"""The command line: ``python -m tests.clients --sources FOLDER [LIBRARY ...]`` (or ``make clients``)."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from .runner import CPU, FACES, HERE, Outcome, Suite, run_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Outcomes = Mapping[str, Outcome]


def suites(libraries: Path = HERE / "libraries.toml") -> dict[str, Suite]:
    table = tomllib.loads(libraries.read_text())
    return {name: Suite(name=name, **row) for name, row in table.items()}


def summary(suite: Suite, cpu: Outcomes, device: Outcomes) -> dict[str, Any]:
    """The row of a library: counts, and each failure with its cause."""

    def ran(outcomes: Outcomes, name: str) -> bool:
        return name in outcomes and outcomes[name].outcome != "skipped"

    counts = Counter(outcome.outcome for outcome in device.values())
    failures = {}
    for name, outcome in device.items():
        if outcome.outcome in ("failed", "crashed"):
            on_cpu = cpu[name].outcome if name in cpu else "not there"
            reason = next((why for pattern, why in suite.known.items() if fnmatchcase(name, pattern)), "")
            if on_cpu == outcome.outcome and not reason:
                reason = "fails without an accelerator too"
            failures[name] = {**vars(outcome), "on the cpu": on_cpu, "reason": reason}
    explained = sum(bool(failure["reason"]) for failure in failures.values())
    return {
        "library": suite.name,
        "collected": len(device),
        "run here": sum(ran(device, name) for name in device),
        "skipped on a CPU machine, run here": sum(ran(device, name) and not ran(cpu, name) for name in device),
        "passed": counts["passed"],
        "failed, explained": explained,
        "failed": len(failures) - explained,
        "failures": failures,
    }


def show(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    columns = [column for column in rows[0] if column != "failures"] if rows else []
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    console.print(table)
    for row in rows:
        for name, failure in row["failures"].items():
            why, cause = failure["reason"] or "unexplained", [*failure["cause"].splitlines(), ""][0]
            console.print(f"{row['library']}: {name}\n    {why}: {cause}", markup=False, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients",
        description="Runs the tests of other people's libraries as a machine without an accelerator does, and on the "
        "device, and compares the two. Fetches nothing: the libraries are installed, and their tests are checkouts "
        "in a folder of yours.",
    )
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="default: all of the list")
    parser.add_argument("--sources", type=Path, required=True, help="where OWNER/REPOSITORY lie, checked out")
    parser.add_argument(
        "--libraries", type=Path, dest="list", default=HERE / "libraries.toml", help="the list, in TOML"
    )
    parser.add_argument("--face", choices=FACES, default="cuda", help="default: %(default)s")
    parser.add_argument("--select", default="", help="as pytest's -k")
    parser.add_argument("--files", default="*", help="only test files of this name: a pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once: %(default)s")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a test file: %(default)s")
    parser.add_argument("--json", type=Path, help="write the rows, with every failure, to this file")
    options = parser.parse_args(arguments)
    console = Console()
    known = suites(options.list)
    rows = []
    for name in options.libraries or known:
        if name not in known:
            parser.error(f"no library {name!r}; there are {', '.join(known)}")
        suite = known[name]
        root = (options.sources / suite.checkout).resolve()
        files = [file for file in suite.test_files(options.sources.resolve()) if fnmatchcase(file.name, options.files)]
        if importlib.util.find_spec(suite.package) is None:
            console.print(f"{name}: not installed. Install it with: pip install {suite.requirement} torch==<yours>")
            continue
        if not files:
            console.print(f"{name}: no test files in {root}. Check out github.com/{suite.checkout} there.")
            continue
        if options.select:
            suite.arguments = [*suite.arguments, "-k", options.select]
        rows.append(run(suite, files, root, options, console))
        show(rows[-1:], console)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    if len(rows) > 1:
        show([{**row, "failures": {}} for row in rows], console)
    return 1 if not rows or any(row["failed"] for row in rows) else 0


def run(
    suite: Suite, files: Sequence[Path], root: Path, options: argparse.Namespace, console: Console
) -> dict[str, Any]:
    results: dict[str, dict[str, Outcome]] = {"cpu": {}, "device": {}}
    machines = {"cpu": CPU, "device": FACES[options.face]}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[file]}"))
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(suite.name, total=2 * len(files), file="")

        def one(number: int, machine: str, file: Path) -> None:
            records = Path(folder) / f"{number}.{machine}.jsonl"
            outcomes = run_file(file, suite, root, machines[machine], records, options.timeout)
            results[machine].update(outcomes)
            progress.update(task, advance=1, file=file.name)

        with ThreadPoolExecutor(options.jobs) as pool:
            futures = [
                pool.submit(one, number, machine, file) for number, file in enumerate(files) for machine in machines
            ]
            for future in futures:
                future.result()
    return summary(suite, results["cpu"], results["device"])


if __name__ == "__main__":
    sys.exit(main())
