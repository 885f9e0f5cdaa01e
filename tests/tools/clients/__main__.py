"""The command line: ``python -m tests.tools.clients --sources FOLDER [LIBRARY ...]`` (or ``make clients``)."""

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
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column, Table

from .recorder import normal
from .runner import CPU, HERE, IDENTITIES, STOP, Outcome, Suite, run_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Outcomes = Mapping[str, Outcome]


def suites(libraries: Path = HERE / "libraries.toml") -> dict[str, Suite]:
    table = tomllib.loads(libraries.read_text())
    return {name: Suite(name=name, **row) for name, row in table.items()}


def cause(suite: Suite, name: str, outcome: Outcome, on_cpu: str) -> tuple[str, str]:
    """The class of a failure, and the sentence that explains it. Both are "" if no sentence explains it."""
    for kind, patterns in suite.known.items():
        for pattern, reason in patterns.items():
            if fnmatchcase(name, pattern) or fnmatchcase(f"{name}: {outcome.cause}", pattern):
                return kind, reason
    return ("fails on the CPU too", "fails without an accelerator too") if on_cpu == outcome.outcome else ("", "")


def summary(suite: Suite, cpu: Outcomes, device: Outcomes, title: str = "") -> dict[str, Any]:
    """The row of a library or a file: counts, and each failure with its cause."""

    def ran(outcomes: Outcomes, name: str) -> bool:
        return name in outcomes and outcomes[name].outcome != "skipped"

    cpu, ids = {normal(name): outcome for name, outcome in cpu.items()}, {normal(name): name for name in device}
    device = {name: device[ids[name]] for name in ids}
    counts = Counter(outcome.outcome for outcome in device.values())
    failures, kinds = {}, Counter[str]()
    for name, outcome in device.items():
        if outcome.outcome in ("failed", "crashed"):
            on_cpu = cpu[name].outcome if name in cpu else "not there"
            kind, reason = cause(suite, name, outcome, on_cpu)
            kinds[kind] += 1
            failures[ids[name]] = {**vars(outcome), "on the cpu": on_cpu, "reason": reason}
    unexplained = kinds.pop("", 0)
    passed = [name for name in cpu if cpu[name].outcome == "passed"]
    return {
        "library": title or suite.name,
        "collected": len(device),
        "run here": sum(ran(device, name) for name in device),
        "skipped on a CPU machine, run here": sum(ran(device, name) and not ran(cpu, name) for name in device),
        "passed on a CPU machine": len(passed),
        "passed on both": sum(name in device and device[name].outcome == "passed" for name in passed),
        "passed": counts["passed"],
        "failed, explained": sum(kinds.values()),
        "causes": dict(kinds),
        "failed": unexplained,
        "failures": failures,
    }


def show(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    columns = [column for column in rows[0] if column != "failures"] if rows else []
    table = Table(Column("library", no_wrap=True), *columns[1:])
    for row in rows:
        causes = ", ".join(f"{kind}: {count}" for kind, count in row["causes"].items())
        table.add_row(*(causes if column == "causes" else str(row[column]) for column in columns))
    console.print(table)
    for row in rows:
        for name, failure in row["failures"].items():
            why, cause = failure["reason"] or "unexplained", [*failure["cause"].splitlines(), ""][0]
            console.print(f"{row['library']}: {name}\n    {why}: {cause}", markup=False, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.clients",
        description="Runs the tests of other people's libraries as a machine without an accelerator does, and on the "
        "device, and compares the two. Fetches nothing: the libraries are installed, and their tests are checkouts "
        "in a folder of yours, or parts of the installed packages.",
    )
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="default: all of the list")
    parser.add_argument("--sources", type=Path, required=True, help="where OWNER/REPOSITORY lie, checked out")
    parser.add_argument(
        "--libraries", type=Path, dest="list", default=HERE / "libraries.toml", help="the list, in TOML"
    )
    parser.add_argument("--identity", choices=IDENTITIES, default="cuda", help="default: %(default)s")
    parser.add_argument("--select", default="", help="as pytest's -k")
    parser.add_argument("--files", default="*", help="only test files of this name: a pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once: %(default)s")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for the longest test: %(default)s")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="run the K-th of N parts of the tests")
    parser.add_argument(
        "--records", type=Path, help="keep what became of each test in this folder, and go on from there the next time"
    )
    parser.add_argument("--json", type=Path, help="write the rows, with every failure, to this file")
    options = parser.parse_args(arguments)
    console = Console()
    known = suites(options.list)
    rows = []
    for name in options.libraries or known:
        if name not in known:
            parser.error(f"no library {name!r}; there are {', '.join(known)}")
        suite = known[name]
        root = suite.root(options.sources)
        files = [file for file in suite.test_files(options.sources.resolve()) if fnmatchcase(file.name, options.files)]
        if importlib.util.find_spec(suite.package) is None:
            console.print(f"{name}: not installed. Install it with: pip install {suite.requirement} torch==<yours>")
            continue
        if not files:
            what = f" Check out github.com/{suite.checkout} there." if suite.checkout else ""
            console.print(f"{name}: no test files in {root}.{what}")
            continue
        if options.select:
            suite.arguments = [*suite.arguments, "-k", options.select]
        of_suite = run(suite, files, root, options, console)
        rows += of_suite
        show(of_suite, console)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    if len(rows) > 1:
        show([{**row, "failures": {}} for row in rows], console)
    return 1 if not rows or any(row["failed"] for row in rows) else 0


def run(
    suite: Suite, files: Sequence[Path], root: Path, options: argparse.Namespace, console: Console
) -> list[dict[str, Any]]:
    machines = {
        # With PYTORCH_TESTING_DEVICE_ONLY_FOR, PyTorch makes its device-generic tests for this machine's device only.
        name: {**variables, "PYTORCH_TESTING_DEVICE_ONLY_FOR": name, "OPENREG_CLIENTS_SHARD": options.shard}
        for name, variables in (("cpu", CPU), (options.identity, IDENTITIES[options.identity]))
    }
    results: dict[tuple[Path, str], dict[str, Outcome]] = {}
    done = {(file, machine): 0.0 for file in files for machine in machines}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[file]}"))
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(suite.name, total=len(done), file="")

        def one(file: Path, machine: str) -> None:
            name = ".".join(file.relative_to(root).with_suffix(".jsonl").parts)
            records = (options.records or Path(folder)).resolve() / suite.name / machine / name
            records.parent.mkdir(parents=True, exist_ok=True)

            def heard(count: int, of: int) -> None:
                done[file, machine] = count / of if of else 0.0
                progress.update(task, completed=sum(done.values()), file=f"{file.name} on {machine}: {count} of {of}")

            results[file, machine] = run_file(
                file, suite, root, machines[machine], records, options.timeout, options.records is not None, heard
            )
            heard(1, 1)

        with ThreadPoolExecutor(options.jobs) as pool:
            futures = [pool.submit(one, file, machine) for file in files for machine in machines]
            try:
                for future in futures:
                    future.result()
            finally:  # also after Ctrl-C, which the terminal does not send to the processes of the runs
                STOP.set()
                pool.shutdown(cancel_futures=True)
                STOP.clear()
    if suite.per_file:
        names = {file: str(file.relative_to(root)) for file in files}
        return [summary(suite, results[file, "cpu"], results[file, options.identity], names[file]) for file in files]
    of = {machine: {k: v for file in files for k, v in results[file, machine].items()} for machine in machines}
    return [summary(suite, of["cpu"], of[options.identity])]


if __name__ == "__main__":
    sys.exit(main())
