"""Runs the conformance kit on every mutant of the backend: `make mutants`.

    make mutants ARGS="--only 'guard.*'"    some of them
    make mutants ARGS="--repeat 10"         the unmutated device instead, ten times in each mode: no check may fail

A mutant is caught if a check that passes on the unmutated device does not pass on the mutant. Results are kept in
build/mutants/results.jsonl, and a later run goes on from them; --fresh forgets them. --table FILE writes the page of
the book.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import build, table

KIT = table.ROOT / "conformance"
# Where work is queued, a missing wait shows; where it is not, some errors are raised elsewhere.
# A row that is left out shows where the boxed fallback may not take its place.
MODES = {
    "async": {"OPENREG_EXECUTION": "async"},
    "inline": {"OPENREG_EXECUTION": "inline"},
    "chaos": {"OPENREG_EXECUTION": "chaos"},
    "no fallback": {"OPENREG_EXECUTION": "inline", "TORCH_OPENREG_FALLBACK": "error"},
}


def kit(python: Path, mode: str, mutant: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One run of the kit with the mutant on ("" for none)."""
    environment = {**os.environ, **MODES[mode], "OPENREG_MUTANT": mutant, "PYTHONPATH": str(KIT)}
    command = [python, "-m", "torch_conformance", "--device", "openreg", "--quick", "--quiet", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=build.FOLDER)


def baseline(python: Path, mode: str, *options: str) -> Path:
    """The results of the unmutated device, taken once."""
    path = build.FOLDER / f"baseline-{mode.replace(chr(32), chr(45))}.json"
    if not path.exists():
        result = kit(python, mode, "", "--write-baseline", str(path), *options)
        if result.returncode and mode != "no fallback":
            path.unlink(missing_ok=True)
            raise SystemExit(f"the unmutated device fails in {mode}:\n{result.stdout}{result.stderr}")
    return path


# Checks that start a Python process, or several: slow, so they come last, as does the sample of the sweeps.
SLOW = ("loads/autoload/*", "loads/exit/*", "processes/*", "operators/op/*", "operators/module/*",
        "trains/optimizer/*")  # fmt: skip


class Zygote:
    """A process that tries one mutant after the other: see `zygote`."""

    def __init__(self, python: Path) -> None:
        path = os.pathsep.join([str(KIT), str(table.ROOT / "tests")])
        self._process = subprocess.Popen(
            [python, "-m", "mutants.zygote"], env={**os.environ, "PYTHONPATH": path}, cwd=build.FOLDER,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stop(self) -> None:
        self._process.kill()


def names_of(mutant: table.Mutant, mode: str) -> tuple[list[str], list[str]]:
    """The checks that pass on the unmutated device: the quick ones, the slow ones. Those of the mutant's area come
    first, then those that ask PyTorch's C++ interfaces."""
    known = json.loads((build.FOLDER / f"baseline-{mode.replace(chr(32), chr(45))}.json").read_text())
    passed = [name for name, result in known.items() if result == "passed"]
    first = (mutant.first, "tools/interfaces/*", "*")
    passed.sort(key=lambda name: next(n for n, pattern in enumerate(first) if fnmatch.fnmatch(name, pattern)))
    slow = [name for name in passed if any(fnmatch.fnmatch(name, pattern) for pattern in SLOW)]
    return [name for name in passed if name not in slow], slow


def try_mutant(zygote: Zygote, mutant: table.Mutant, thorough: bool) -> dict[str, Any]:
    """Runs the checks until one catches the mutant: the quick ones where work is queued; for what survived them
    (``thorough``), the quick and the slow ones where it is not."""
    stages = [("no fallback" if mutant.name.startswith("row.") else "async", 0)]
    if thorough:
        stages = [("inline", 0)]  # not the slow ones: forked from a zygote, some fail without a mutant
    for mode, slow in stages:
        names = names_of(mutant, mode)[slow]
        answer = zygote.ask({"mutant": mutant.name, "mode": mode, "environment": MODES[mode], "names": names})
        if answer["caught"]:
            break
    return {**answer, "thorough": thorough}


def page(results: dict[str, dict[str, Any]]) -> str:
    """The table of mutants, as a page of the book."""
    all_mutants = table.mutants()
    caught = [m for m in all_mutants if results.get(m.name, {}).get("caught")]
    survivors = [m for m in all_mutants if m.name in results and m not in caught]
    done = len(caught) + len(survivors)
    lines = [
        "# Mutants",
        "",
        '% Written by `make mutants ARGS="--table docs/mutants.md"`; do not edit.',
        "",
        "What [the conformance kit](bring-up/conformance.md) finds is measured on mutants of this backend: copies with "
        "one defect each, made from a table (`tests/mutants/table.py`), compiled into one test build and chosen at run "
        "time.",
        "",
        f"{done} mutants: {len(caught)} caught ({100 * len(caught) / max(done, 1):.0f} %), {len(survivors)} survived.",
        "",
        "## Survivors",
        "",
        "| mutant | kind | why |",
        "|---|---|---|",
    ]
    for mutant in survivors:
        why = table.EXPECTED_SURVIVORS.get(mutant.name, "not explained")
        lines.append(f"| `{mutant.name}` | {mutant.kind} | {why} |")
    for kind in dict.fromkeys(mutant.kind for mutant in caught):
        lines += ["", f"## Caught: {kind}", "", "| mutant | caught by | result, mode |", "|---|---|---|"]
        for mutant in caught:
            if mutant.kind == kind:
                found = results[mutant.name]
                lines.append(f"| `{mutant.name}` | `{found['caught']}` | {found['result']}, {found['mode']} |")
    return "\n".join(lines) + "\n"


def repeat(python: Path, times: int) -> int:
    """Runs the kit on the unmutated device, ``times`` times in each mode, and returns how many runs had a bad check."""
    bad = 0
    for mode in ("async", "inline", "chaos"):
        for n in range(times):
            result = kit(python, mode, "", "--no-sweeps")
            bad += result.returncode != 0
            print(f"{mode} {n + 1}: {result.stdout.strip().splitlines()[-1]}", flush=True)
            if result.returncode:
                print(result.stdout)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path(os.environ.get("SKBUILD_BUILD_DIR", "build/.venv-2.13.0")),
                        help="the build folder of the installed package")  # fmt: skip
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--repeat", type=int, metavar="N")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--only-quick", action="store_true", help="without the slow checks for the survivors")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{mutant.kind:<12} {mutant.name}" for mutant in table.mutants()))
        return 0
    python = build.build(options.build.resolve())
    if options.repeat:
        return 1 if repeat(python, options.repeat) else 0
    path = build.FOLDER / "results.jsonl"
    if options.fresh:
        for old in (path, *build.FOLDER.glob("baseline-*.json")):
            old.unlink(missing_ok=True)
    for mode in ("async", "inline"):
        baseline(python, mode)
    baseline(python, "no fallback", "--no-sweeps")
    results = {}
    if path.exists():
        results = {r["mutant"]: r for r in map(json.loads, path.read_text().splitlines())}
    names = {m.name for m in table.mutants()}
    results = {name: result for name, result in results.items() if name in names}

    def put_aside(result: dict[str, Any]) -> bool:
        """Whether a survivor of the quick checks waits for the slow ones."""
        return not result["caught"] and not result["thorough"]

    chosen = [m for m in table.mutants() if fnmatch.fnmatch(m.name, options.only)]
    for thorough in (False, True):
        waiting: queue.SimpleQueue[table.Mutant] = queue.SimpleQueue()
        for mutant in chosen:
            if mutant.name not in results or (thorough and put_aside(results[mutant.name])):
                waiting.put(mutant)
        total = waiting.qsize()

        def work(
            thorough: bool = thorough, waiting: queue.SimpleQueue[table.Mutant] = waiting, total: int = total
        ) -> None:
            zygote = Zygote(python)
            try:
                while True:
                    result = try_mutant(zygote, waiting.get_nowait(), thorough)
                    with path.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                    results[result["mutant"]] = result
                    print(
                        f"{total - waiting.qsize()}/{total} {result['mutant']}: {result['caught'] or 'SURVIVED'}",
                        flush=True,
                    )
            except queue.Empty:
                return
            finally:
                zygote.stop()

        with ThreadPoolExecutor(options.jobs) as pool:
            for future in [pool.submit(work) for _ in range(options.jobs)]:
                future.result()
        if options.only_quick:
            break
    if options.table:
        options.table.write_text(page(results))
    survivors = sorted(name for name, result in results.items() if not result["caught"])
    caught = len(results) - len(survivors)
    print(f"{len(results)} mutants, {caught} caught, survivors: {', '.join(survivors) or 'none'}")
    unexplained = [name for name in survivors if name not in table.EXPECTED_SURVIVORS]
    return 1 if unexplained or caught < 0.9 * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
