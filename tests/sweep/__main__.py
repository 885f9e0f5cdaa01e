"""The command line: ``python -m tests.sweep`` (or ``make sweep``)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

from . import report, runner

VARIANTS = ("forward", "backward", "double_backward", "noncontiguous", "inplace", "out", "error")


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sweep",
        description="Runs PyTorch's operator database on the device and on the CPU and compares the results. "
        "A sweep that was interrupted goes on where it stopped.",
    )
    parser.add_argument("--device", default=os.environ.get("TEST_DEVICE", "openreg"), help="default: %(default)s")
    parser.add_argument(
        "--ops", type=_words, default=["*"], help="names or patterns, comma separated: add,nn.functional.*"
    )
    parser.add_argument(
        "--dtypes",
        type=_words,
        default=["default"],
        help="comma separated; default: float32, else int64, else an operator's first; all: all that the CPU supports",
    )
    parser.add_argument(
        "--variants",
        type=_words,
        default=["forward", "backward"],
        help=f"of {', '.join(VARIANTS)}, or all: %(default)s",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes: %(default)s")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a case: %(default)s")
    parser.add_argument("--batch", type=int, default=400, help="cases after which a worker is replaced: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("build/sweep.jsonl"), help="default: %(default)s")
    parser.add_argument("--fresh", action="store_true", help="forget the results file")
    parser.add_argument("--retry", action="store_true", help="run again what did not agree, and keep the rest")
    parser.add_argument("--verbose", "-v", action="store_true", help="workers print tracebacks to standard error")
    options = parser.parse_args(arguments)
    if options.variants == ["all"]:
        options.variants = list(VARIANTS)
    unknown = sorted(set(options.variants) - set(VARIANTS))
    if unknown:
        parser.error(f"--variants: no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    return options


class Progress:
    """A line on a terminal, rewritten; elsewhere a line every tenth part."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._bad, self._started = total, 0, 0, time.monotonic()

    def __call__(self, record: runner.Record) -> None:
        self._done += 1
        if record["status"] not in (*report.AGREES, "skipped"):
            self._bad += 1
        seconds = time.monotonic() - self._started
        left = seconds / self._done * (self._total - self._done)
        text = f"{self._done}/{self._total} cases, {self._bad} not agreeing, {seconds:.0f} s, about {left:.0f} s left"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}  {record['name']}" + ("\n" if self._done == self._total else ""))
        elif self._done * 10 // self._total != (self._done - 1) * 10 // self._total:
            print(text, file=sys.stderr, flush=True)


def sweep(
    *,
    device: str,
    ops: list[str],
    dtypes: list[str],
    variants: list[str],
    results: Path,
    jobs: int = 2,
    timeout: float = 60,
    batch: int = 400,
    fresh: bool = False,
    retry: bool = False,
    verbose: bool = False,
) -> list[runner.Record]:
    """Runs what is selected and not yet in `results`, and returns the records of everything selected."""
    settings = {"device": device, "verbose": verbose}
    version, cases = runner.list_cases(settings, dtypes, variants)
    cases = [case for case in cases if any(fnmatchcase(case["name"], pattern) for pattern in ops)]
    report.apply_exceptions(cases, report.load_exceptions())
    store = runner.Results(results, {"torch": version, "device": device}, fresh=fresh)

    def is_done(case: runner.Record) -> bool:
        record = store.records.get(runner.key(case))
        return record is not None and not (retry and record["status"] not in (*report.AGREES, "skipped"))

    todo = [case for case in cases if not is_done(case)]
    progress = Progress(len(todo))

    def on_result(record: runner.Record) -> None:
        store.add(record)
        progress(record)

    runner.run_cases(todo, settings, on_result, jobs=jobs, timeout=timeout, batch=batch)
    return [store.records[runner.key(case)] for case in cases]


def main(arguments: list[str] | None = None) -> int:
    """Runs a sweep, prints what does not agree and the table; 0 if all that does not agree is a listed exception."""
    options = vars(_parse(arguments))
    try:
        records = sweep(**options)
    except runner.WorkerError as error:
        print(f"sweep: a worker could not start: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sweep: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    exceptions = report.load_exceptions()
    bad = report.unlisted(records, exceptions)
    for record in records:
        if record["status"] not in (*report.AGREES, "skipped"):
            print(report.line(record) + ("" if record in bad else "  [listed]"))
    for pattern in report.stale(records, exceptions):
        print(f"stale      {pattern}")
    print(report.table(records))
    print(report.skipped_reasons(records))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
