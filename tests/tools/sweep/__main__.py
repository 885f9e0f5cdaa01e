"""The command line: ``python -m tests.tools.sweep`` (or ``make sweep``)."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch_conformance.report import torch_version
from torch_conformance.runner import Record, Results, WorkerDied, run, start_and_ask

from . import report, worker

WORKER = (sys.executable, worker.__file__)
SUITES = ("op", "module", "optimizer", "layout", "jagged")


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.sweep",
        description="Runs PyTorch's test databases on the device and on the CPU and compares the results. "
        "A sweep that was interrupted goes on where it stopped.",
    )
    parser.add_argument("--device", default=os.environ.get("TEST_DEVICE", "openreg"), help="default: %(default)s")
    parser.add_argument(
        "--suites", type=_words, default=list(SUITES), help=f"comma separated, of {', '.join(SUITES)}: all of them"
    )
    parser.add_argument(
        "--ops", type=_words, default=["*"], help="names or patterns, comma separated: add,nn.functional.*"
    )
    parser.add_argument(
        "--dtypes",
        type=_words,
        default=["all"],
        help="comma separated; all: all that the CPU supports; default: float32, else int64, else an entry's first",
    )
    parser.add_argument("--variants", type=_words, default=["all"], help="comma separated, forward,out: all")
    parser.add_argument("--samples", type=int, default=0, help="at most so many of a case, evenly spread: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes: %(default)s")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a case: %(default)s")
    parser.add_argument("--batch", type=int, default=400, help="cases after which a worker is replaced: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("build/sweep.jsonl"), help="default: %(default)s")
    parser.add_argument("--fresh", action="store_true", help="forget the results file")
    parser.add_argument("--retry", action="store_true", help="run again what did not agree, and keep the rest")
    parser.add_argument("--verbose", "-v", action="store_true", help="show a traceback for each error")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.suites) - set(SUITES))
    if unknown:
        parser.error(f"--suites: no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    return options


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Record], None]]:
    """Shows a bar on a terminal; elsewhere prints a line after each tenth of the cases."""
    bad, done = 0, 0
    columns = (TextColumn("{task.fields[bad]} not agreeing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[name]}"), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("sweep", total=total, bad=0, name="")

        def advance(record: Record) -> None:
            nonlocal bad, done
            done += 1
            bad += not report.agrees(record)
            bar.update(task, advance=1, bad=bad, name=record["name"])
            if not console.is_terminal and done * 10 // total != (done - 1) * 10 // total:
                print(f"{done}/{total} cases, {bad} not agreeing", file=sys.stderr, flush=True)

        yield advance


def sweep(
    *,
    device: str,
    suites: list[str],
    ops: list[str],
    dtypes: list[str],
    variants: list[str],
    results: Path,
    samples: int = 0,
    jobs: int = 2,
    timeout: float = 60,
    batch: int = 400,
    fresh: bool = False,
    retry: bool = False,
    verbose: bool = False,
) -> list[Record]:
    """Runs what is selected and not yet in `results`, and returns the records of everything selected.

    Raises ValueError if `results` has those of another PyTorch or device, and WorkerDied if no worker can start.
    """
    settings = {"device": device, "verbose": verbose}
    wanted = {"suites": suites, "dtypes": dtypes, "variants": variants}
    exceptions = report.load_exceptions(device)
    if fresh:
        results.unlink(missing_ok=True)
    store = Results(results, {"kit": "sweep", "torch": torch_version(), "device": device})
    first, cases = start_and_ask(settings, {"list": wanted}, WORKER)
    cases = [case for case in cases if any(fnmatchcase(case["entry"], pattern) for pattern in ops)]
    if samples:
        cases = [{**case, "most": samples} for case in cases]
    report.apply_exceptions(cases, exceptions)

    def is_done(case: Record) -> bool:
        record = store.records.get(case["name"])
        return record is not None and not (retry and not report.agrees(record))

    todo = [case for case in cases if not is_done(case)]
    with _progress(len(todo)) as advance:

        def on_result(record: Record) -> None:
            store.add(record)
            advance(record)

        run(todo, settings, on_result, jobs=jobs, timeout=timeout, batch=batch, command=WORKER, first=first)
    return [store.records[case["name"]] for case in cases]


def main(arguments: list[str] | None = None) -> int:
    """Runs a sweep, prints what does not agree and the table. Returns 0 if all that does not agree is listed."""
    options = vars(_parse(arguments))
    try:
        records = sweep(**options)
    except (ValueError, WorkerDied) as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sweep: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    exceptions = report.load_exceptions(options["device"])
    bad = report.unlisted(records, exceptions)
    for record in records:
        if not report.agrees(record):
            print(report.line(record) + ("" if record in bad else "  [listed]"))
    for pattern in report.stale(records, exceptions):
        print(f"stale      {pattern}")
    report.show(records, exceptions)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
