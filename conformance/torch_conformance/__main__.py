"""``python -m torch_conformance --device npu``: runs the checks and reports."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import compare, exclude, loading, page, report
from .registry import BAD, LEVELS, all_checks, level_of
from .runner import Record, Results, WorkerDied, ask_once, run, start_and_ask


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m torch_conformance",
        description="Measures a PyTorch backend, level by level: "
        + ", ".join(f"{number} {name}" for number, name in enumerate(LEVELS))
        + ". The exit status is 1 if a check failed, crashed or hung; with --baseline, if a result became worse. "
        "`compare FILE...` shows the results of several runs side by side. `exclude FILE` writes the tests of PyTorch "
        "that the backend is not ready for.",
    )
    add = made.add_argument
    add("--device", metavar="TYPE", type=device_type, help="the device type, such as npu, cuda or cpu")
    add(
        "--import",
        metavar="MODULE",
        type=module,
        dest="imported",
        help="a module that registers the device, if `import torch` does not load it: MODULE, or MODULE:FUNCTION if a "
        "function of it must be called",
    )
    every = f"0-{len(LEVELS) - 1}"
    add("--levels", metavar=every, type=levels_of, default=every, help="only these levels, such as 0,1,3-5")
    add("--checks", metavar="PATTERN", action="append", help="only the checks whose names match, such as 'streams/*'")
    add("--quick", action="store_true", help="only the fast checks and a sample of the operators (1 to 2 minutes)")
    add("--no-sweeps", action="store_true", help="skips the checks that are made from PyTorch's databases for tests")
    add("--shard", metavar="I/N", type=shard_of, default="1/1", help="the I-th of N parts of the checks, I from 1")
    add("--resume", metavar="FILE", type=Path, help="writes results to FILE, and skips checks that have a result there")
    add("--jobs", type=positive(int), default=min(2, os.cpu_count() or 1), help="worker processes (default: at most 2)")
    add(
        "--timeout",
        type=positive(float),
        default=120,
        metavar="SECONDS",
        help="the limit for one check; a check that takes longer, and longer than eight starts of a process, is hung "
        "(default: 120)",
    )
    add(
        "--strict-messages",
        action="store_true",
        help="fails a check if an error has another type or other words than PyTorch's; by default this is noted",
    )
    add("--stop-at-first", action="store_true", help="starts no check after one that makes the exit status 1")
    add("--baseline", metavar="FILE", type=Path, help="makes the exit status 1 only if a result is worse than in FILE")
    add("--write-baseline", metavar="FILE", type=Path, help="writes the results to FILE, for --baseline")
    add("--json", metavar="FILE", type=Path, help="writes all results, and what each check proves")
    add("--junit", metavar="FILE", type=Path, help="writes the results as a JUnit file")
    add("--html", metavar="FILE", type=Path, help="writes the results as one page that needs no network")
    add("--scripts", metavar="DIR", type=Path, help="writes a script for each failure, ready to run")
    add("--chapter", metavar="NAME", help="prints a chapter of the book, which a report names, and ends")
    add("--list", action="store_true", help="prints what would run: checks with what they prove, and cases of sweeps")
    add("--quiet", action="store_true", help="shows no progress bar")
    return made


def device_type(text: str) -> str:
    """Refuses a device with an index: the kit chooses the devices of the type itself."""
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"must be a device type without an index, such as npu, not {text!r}")
    return text


def module(text: str) -> str:
    """Refuses what `loading.use` does not take."""
    if not loading.TARGET.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be MODULE or MODULE:FUNCTION, not {text!r}")
    return text


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """Returns a function that reads a number above 0 and below a million from a text."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            if 0 < (number := kind(text)) < 1e6:
                return number
        raise argparse.ArgumentTypeError(f"must be a number above 0 and below a million, not {text!r}")

    return read


def levels_of(text: str) -> set[int]:
    """The levels in a text such as ``0,2-4``, as a set."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            found = range(int(first), int(last or first) + 1)
        except ValueError:
            found = range(0)
        if not found or not set(found) <= set(range(len(LEVELS))):
            raise argparse.ArgumentTypeError(f"levels are 0 to {len(LEVELS) - 1}, such as 0,2-4, not {text!r}")
        chosen |= set(found)
    return chosen


def shard_of(text: str) -> slice:
    """The part of the checks that a text such as ``1/3`` names."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"must be I/N with I from 1 to N, not {text!r}")
    return slice(int(part) - 1, None, int(parts))


def select(options: argparse.Namespace, settings: dict[str, Any]) -> list[str]:
    """The names of the checks to run, in the order of their levels."""
    names = [name for name, check in all_checks().items() if check.quick or not options.quick]
    wanted = options.checks or ["*"]
    # To list the cases of PyTorch's databases, a worker imports the databases, which takes seconds.
    if not options.no_sweeps and options.levels & {2, 3} and any(_may_match_sweep(pattern) for pattern in wanted):
        found = ask_once(settings, {"list": "quick" if options.quick else "all"}, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        if isinstance(found, dict):
            raise ValueError(
                f"PyTorch's databases of operators cannot be imported: {found['error']}. They need numpy and "
                "expecttest. --no-sweeps runs the checks that do not need them."
            )
        names += found
    names = [n for n in names if level_of(n) in options.levels and any(fnmatch.fnmatchcase(n, p) for p in wanted)]
    names.sort(key=level_of)
    return names[options.shard]


def _may_match_sweep(pattern: str) -> bool:
    from .sweep import PREFIXES

    fixed = pattern.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0]
    return any(prefix.startswith(fixed) or fixed.startswith(prefix) for prefix in PREFIXES)


class Progress:
    """The progress on standard error: a bar on a terminal, and elsewhere a new line after each tenth of the run."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._total, self._quiet, self._done, self._bad = total, quiet, 0, 0
        self._terminal = sys.stderr.isatty()
        self._started = time.monotonic()

    def add(self, record: dict[str, Any]) -> None:
        self._done += 1
        self._bad += record["result"] in BAD
        if self._quiet:
            return
        left = (time.monotonic() - self._started) / self._done * (self._total - self._done)
        counts = f"{self._done}/{self._total}, {self._bad} failed, {left:.0f} s left"
        if self._terminal:
            filled = 30 * self._done // self._total
            name = record["name"][:50]
            sys.stderr.write(f"\r\033[K[{'#' * filled}{'.' * (30 - filled)}] {counts}  {name}")
            if self._done == self._total:
                sys.stderr.write("\n")
        elif self._done * 10 // self._total != (self._done - 1) * 10 // self._total:
            sys.stderr.write(counts + "\n")
        sys.stderr.flush()


def _import_checks() -> None:
    """Imports the checks and torch, without the backend. A backend that cannot be imported fails in the workers."""
    name = "TORCH_DEVICE_BACKEND_AUTOLOAD"
    before = os.environ.get(name)
    os.environ[name] = "0"
    all_checks()
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before


# Each option that names a report, and the function that makes the report's text from the summary and the records.
OUTPUTS: dict[str, Callable[[dict[str, Any], list[Record]], str]] = {
    "json": lambda summary, records: json.dumps(summary, indent=1),
    "junit": lambda summary, records: report.junit(summary),
    "html": lambda summary, records: page.page(summary),
    "write_baseline": lambda summary, records: report.baseline(records),
}


# The commands beside a run. Each reads what --json wrote.
COMMANDS: dict[str, Callable[[list[str]], int]] = {"compare": compare.main, "exclude": exclude.main}


def _prepare_outputs(options: argparse.Namespace) -> None:
    """Makes the folders of the files that the run writes at its end. Raises OSError if a path cannot be written."""
    for name in OUTPUTS:
        if path := getattr(options, name):
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            path.open("a").close()
            if is_new:  # an interrupted run must not leave an empty file
                path.unlink()
    if options.scripts:
        options.scripts.mkdir(parents=True, exist_ok=True)


def print_chapter(name: str) -> int:
    """Prints a chapter of the book. Returns the exit status."""
    if (text := report.chapter_text(name)) is None:
        print(f"torch_conformance: there is no docs/bring-up/{name}.md beside the kit", file=sys.stderr)
        return 2
    print(text)
    return 0


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    options = parser().parse_args(arguments)
    if options.chapter:
        return print_chapter(options.chapter)
    if options.imported:
        loading.use(options.imported)
    _import_checks()
    if not options.device and not options.list:
        parser().error("--device TYPE is needed, such as --device npu")
    settings = {"device": options.device, "strict_messages": options.strict_messages, "timeout": options.timeout}
    header = {"device": options.device, "kit": report.VERSION, "torch": report.torch_version()}
    try:
        names = select(options, settings)
        if not options.list:
            if not names:
                raise ValueError("no check is selected")
            baseline = report.read_baseline(options.baseline) if options.baseline else {}
            results = Results(options.resume, header) if options.resume else None
            _prepare_outputs(options)
    except (OSError, ValueError, WorkerDied) as error:
        print(f"torch_conformance: {error}", file=sys.stderr)
        return 2
    if options.list:
        checks = all_checks()
        for name in names:
            print(f"{level_of(name)}  {name}" + (f"\n     {checks[name].proves}" if name in checks else ""))
        return 0
    records = {n: r for n, r in (results.records.items() if results else ()) if n in set(names)}
    waiting = [name for name in names if name not in records]
    progress = Progress(max(len(waiting), 1), options.quiet)

    def on_result(record: dict[str, Any]) -> bool:
        records[record["name"]] = record
        if results:
            results.add(record)
        progress.add(record)
        return options.stop_at_first and report.regressed(record, baseline)

    started, last = time.monotonic(), ""
    # SIGTERM raises KeyboardInterrupt as Ctrl-C does, because the workers must be killed: one that hangs never ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if waiting:
            worker, last = start_and_ask(settings, {"find": options.device})
            checks = [{"name": name} for name in waiting]
            run(checks, settings, on_result, jobs=options.jobs, timeout=options.timeout, first=worker)
    except WorkerDied as died:
        # The worker would die for each check in the same way, after the same time. So all checks that wait get this
        # result. It is not written to the file of --resume: a later run starts these checks again.
        last = f"No check was run, because the first use of the device {died}"
        records |= {name: {"name": name, "result": died.args[0], "detail": died.args[1]} for name in waiting}
    except KeyboardInterrupt:
        print("torch_conformance: interrupted", file=sys.stderr)
        return 130
    ordered = [records[name] for name in names if name in records]
    facts = {
        "device": options.device,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": round(time.monotonic() - started, 1),
        "python": sys.version.split()[0],
        "torch": report.torch_version(),
        "import": options.imported or "",
        "strict_messages": options.strict_messages,
    }
    summary = report.collect(ordered, facts)
    for name, text in OUTPUTS.items():
        if path := getattr(options, name):
            path.write_text(text(summary, ordered), encoding="utf-8")
    if options.scripts:
        for each in summary["checks"]:
            if each["result"] in BAD:
                (options.scripts / (each["name"].replace("/", "__") + ".py")).write_text(each["script"])
    worse = [record for record in ordered if report.regressed(record, baseline)]
    print(report.text(summary, worse, bool(options.baseline)))
    if last:
        print(last)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
