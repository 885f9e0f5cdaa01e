"""The command line: ``python -m tests.tools.fuzz`` (or ``make fuzz``)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS), str(TOOLS.parents[1] / "conformance")]

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402
from torch_conformance.runner import Record, Worker, WorkerDied, run  # noqa: E402

WORKER = (sys.executable, str(TOOLS / "fuzz" / "worker.py"))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.fuzz",
        description="Runs random programs on the device and on the CPU and compares everything they name, bit for bit, "
        "after every line. What differs is shrunk to a script.",
    )
    parser.add_argument("--programs", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="number of the first program: %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="lines of a program, at most: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes: %(default)s")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a program: %(default)s")
    parser.add_argument("--batch", type=int, default=500, help="programs after which a worker is replaced: %(default)s")
    parser.add_argument("--most", type=int, default=20, help="failures after which to stop: %(default)s")
    parser.add_argument("--device", default=os.environ.get("TEST_DEVICE", "openreg"), help="default: %(default)s")
    parser.add_argument(
        "--execution",
        choices=("inline", "async", "chaos"),
        help="how the device executes; async and chaos compare values at the end of a program only, so that the "
        "device's queue runs behind; default: OPENREG_EXECUTION, else inline",
    )
    parser.add_argument("--setup", default="", help="Python to run in every worker first")
    return parser.parse_args(arguments)


class Replayer:
    """Runs programs in a worker process. Starts a new worker after a program has crashed the old one or hung in it."""

    def __init__(self, settings: Record, timeout: float) -> None:
        self._settings, self._timeout = settings, timeout
        self._worker: Worker | None = None

    def ask(self, request: Record) -> Record:
        if self._worker is None:
            self._worker = Worker(self._settings, WORKER)
        try:
            answer: Record = self._worker.ask(request, self._timeout)
            return answer
        except WorkerDied as died:
            self.stop()
            self._worker = None
            return {"result": died.args[0], "detail": died.args[1]}

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()


def shrink(lines: Sequence[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """The lines that `fails` needs to return True. Delta debugging: tries to leave out halves, ..., single lines."""
    lines = list(lines)
    size = len(lines) // 2
    while size:
        start = 0
        while start < len(lines):
            shorter = lines[:start] + lines[start + size :]
            if fails(shorter):
                lines = shorter
            else:
                start += size
        size //= 2
    return lines


def reproduce(failure: Record, settings: Record, timeout: float) -> tuple[list[str], str]:
    """The program of `failure`, shrunk as far as it still fails in the same way, and the text of its difference."""
    replayer = Replayer(settings, timeout)
    try:
        lines = failure.get("lines")
        if lines is None:  # lost in the worker's crash; the CPU alone can write the program again
            lines = replayer.ask({**failure, "device": "cpu"}).get("lines", [])
        found = {"detail": failure["detail"]}

        def fails(candidate: list[str]) -> bool:
            answer = replayer.ask({"lines": candidate, "seed": failure["seed_of_program"]})
            if answer["result"] != failure["result"]:
                return False
            found.update(answer)
            return True

        return shrink(lines, fails), found["detail"]
    finally:
        replayer.stop()


def fuzz(
    *,
    programs: int,
    seed: int,
    device: str,
    first: int = 0,
    steps: int = 20,
    jobs: int = 2,
    timeout: float = 60,
    batch: int = 500,
    most: int = 20,
    execution: str | None = None,
    setup: str = "",
) -> list[Record]:
    """Runs `programs` programs from number `first` on and prints the failing ones, shrunk. Returns all records."""
    execution = execution or os.environ.get("OPENREG_EXECUTION", "inline")
    settings = {"device": device, "steps": steps, "execution": execution, "setup": setup}
    print(f"seed {seed}: programs {first} to {first + programs - 1} on {device}, {execution}", flush=True)
    cases = [
        {"name": str(number), "seed": seed, "number": number, "seed_of_program": seed * 1_000_003 + number}
        for number in range(first, first + programs)
    ]
    records: list[Record] = []
    failed = 0
    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[failed]} failed"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("fuzz", total=programs, failed=0)

        def on_result(record: Record) -> None:
            nonlocal failed
            records.append(record)
            failed += record["result"] != "same"
            bar.update(task, advance=1, failed=failed)
            if not console.is_terminal and len(records) % max(programs // 10, 1) == 0:
                print(f"{len(records)}/{programs} programs, {failed} failed", file=sys.stderr, flush=True)

        for start in range(0, programs, 1000):
            if failed < most:
                chosen = cases[start : start + 1000]
                run(chosen, settings, on_result, jobs=jobs, timeout=timeout, batch=batch, command=WORKER)
    bad = [record for record in records if record["result"] != "same"]
    for record in bad[:most]:
        _print(record, settings, timeout)
    lines = sum(len(record.get("lines", [])) for record in records)
    raised = sum(record.get("raised", 0) for record in records)
    print(f"{len(records)} programs of {lines} lines, of which {raised} raise on both: {len(bad)} failed")
    return records


def _print(record: Record, settings: Record, timeout: float) -> None:
    lines, detail = reproduce(record, settings, timeout)
    print(f"\nprogram {record['number']} of seed {record['seed']}, {record['result']}: {detail}\n")
    from fuzz import programs

    print(programs.script(lines, settings["device"], record["seed_of_program"], settings["execution"]), flush=True)
    record["shrunk"], record["difference"] = lines, detail


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if no program failed, 1 if one did, 2 if a worker could not start, 130 if the user interrupted."""
    try:
        records = fuzz(**vars(_parse(arguments)))
    except WorkerDied as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return int(any(record["result"] != "same" for record in records))


if __name__ == "__main__":
    sys.exit(main())
