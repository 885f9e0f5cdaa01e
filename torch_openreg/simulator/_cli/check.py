"""``torch-openreg check``: runs a program with every instrument, and says what is wrong with it."""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torch_openreg._identity import asked_type
from torch_openreg.simulator._options import program_parser
from torch_openreg.simulator.check import _reports
from torch_openreg.simulator.check._judge import KINDS, Finding, without_numbers
from torch_openreg.simulator.check._processes import FolderTooLarge, Result, Runner
from torch_openreg.simulator.check._session import Options, Session, program_file

COMPARED = ("all", "output", "files", "none")
# Accelerators that refuse different things. A program for a chosen type of devices is tried on models of that type.
MODELS = ["cuda-t4", "mps-like"]


def _default_models() -> list[str]:
    return [name for name in MODELS if name.startswith(f"{asked_type}-")] or MODELS


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 5m or 1h, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 10000, not {text!r}")
    return int(text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _hook(text: str) -> Callable[[Result, Result], object] | None:
    """The function of ``--compare FILE.py:FUNCTION``; None for one of COMPARED."""
    if text in COMPARED:
        return None
    file, _, name = text.rpartition(":")
    function = runpy.run_path(file).get(name) if os.path.isfile(file) else None
    if not callable(function):
        raise ValueError(f"--compare {text}: it is none of {', '.join(COMPARED)}, and no FILE.py:FUNCTION")
    return function


def _suppressions(path: str | None) -> list[tuple[str, str]]:
    """The lines ``KIND FILE[:LINE]  # reason`` of a file. Raises ValueError for a line without a reason."""
    rows = []
    for number, line in enumerate(Path(path).read_text().splitlines() if path else (), 1):
        rule, _, reason = line.partition("#")
        if not rule.strip():
            continue
        words = rule.split()
        if len(words) != 2 or words[0] not in (*KINDS, "*") or not reason.strip():
            raise ValueError(
                f"{path}:{number}: a line is `KIND FILE[:LINE]  # the reason`, where KIND is {', '.join(KINDS)} or *"
            )
        rows.append((words[0], words[1]))
    return rows


def _baseline(path: str | None) -> set[tuple[str, str, str]]:
    """The findings of an earlier ``--json FILE``, without their lines, which change."""
    try:
        rows = json.loads(Path(path).read_text())["findings"] if path else ()
        return {(row["kind"], row["file"], without_numbers(row["message"])) for row in rows}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"--baseline: {path} is not a file that --json wrote") from None


def _is_wanted(finding: Finding, suppressed: list[tuple[str, str]], known: set[tuple[str, str, str]]) -> bool:
    if (finding.kind, finding.file, without_numbers(finding.message)) in known:
        return False
    places = (finding.file, f"{finding.file}:{finding.line}")
    return not any(kind in (finding.kind, "*") and place in places for kind, place in suppressed)


def _parser() -> argparse.ArgumentParser:
    parser = program_parser(
        "check",
        "Runs a program many times, each time with another instrument, and says what is wrong with it.",
        script="a file",
        epilog="Exit status: 0 nothing found, 1 findings, 2 wrong usage.",
    )
    add = parser.add_argument
    add("--in-place", action="store_true", help="run in the working folder, one run at a time, and not in copies")
    add("--compare", default="all", metavar="WHAT", help="all, output, files, none, or FILE.py:FUNCTION (default: all)")
    add("--seeds", type=_count, default=3, metavar="N", help="random schedules besides `late` (default: 3)")
    add("--places", type=_count, default=12, metavar="N", help="places for each kind of fault (default: 12)")
    add(
        "--models",
        type=_words,
        default=_default_models(),
        metavar="A,B",
        help=f"device models (default: {','.join(MODELS)})",
    )
    add("--budget", type=_seconds, metavar="TIME", help="the longest time, such as 5m (default: 15 times a run)")
    add("--timeout", type=_seconds, metavar="TIME", help="the longest run (default: from the first run)")
    add("--jobs", type=_count, metavar="N", help="runs at a time (default: processors, if the memory suffices)")
    add("--fail-on", type=_words, default=list(KINDS), metavar="KINDS", help=f"of {','.join(KINDS)} (default: all)")
    add("--baseline", metavar="FILE", help="leave out the findings of this earlier --json FILE")
    add("--suppress", metavar="FILE", help="leave out what its lines name: KIND FILE[:LINE]  # reason")
    for name in _reports.WRITERS:
        add(f"--{name}", metavar="FILE", help=f"write the report as {name} too")
    return parser


def main(argv: Sequence[str]) -> int:
    """Returns 0 if nothing was found, 1 if something was, 2 for wrong usage, 130 if Ctrl-C ended it and nothing was."""
    parser = _parser()
    options = parser.parse_args(argv)
    folder = Path.cwd()
    words = ["-m", options.program] if options.is_module else [options.program]
    try:
        if not options.is_module and not os.path.isfile(options.program):
            raise ValueError(f"there is no file {options.program}")
        if unknown := {*options.fail_on} - {*KINDS}:
            raise ValueError(f"--fail-on: there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
        hook = _hook(options.compare)
        suppressed, known = _suppressions(options.suppress), _baseline(options.baseline)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    words += options.arguments
    scratch = Path(tempfile.mkdtemp(prefix="openreg-check-"))
    runner = Runner(words, folder, options.in_place, scratch)
    session = Session(
        Options(
            words=words,
            shown=shlex.join(["python", *words]),
            program=program_file(words, folder),
            places=options.places,
            seeds=options.seeds,
            models=options.models,
            compare=options.compare if hook is None else "none",
            hook=hook,
            budget=options.budget,
            timeout=options.timeout,
            jobs=options.jobs,
        ),
        runner,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    interrupted = False
    try:
        if not options.in_place:
            runner.check_folder()
        session.run()
    except FolderTooLarge as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        interrupted = True
        print("check: stopped; this was found so far", file=sys.stderr)
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    findings = [each for each in session.findings.values() if _is_wanted(each, suppressed, known)]
    findings.sort(key=lambda each: (each.note, list(KINDS).index(each.kind), each.file, each.line))
    print(_reports.text(findings, session.looked_at))
    for name, write in _reports.WRITERS.items():
        if path := getattr(options, name):
            Path(path).write_text(write(findings, session.looked_at))
    if any(not each.note and each.kind in options.fail_on for each in findings):
        return 1
    return 130 if interrupted else 0
