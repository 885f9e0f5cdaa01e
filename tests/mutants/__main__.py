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
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import build, table

KIT = table.ROOT / "conformance"
# Where work is queued, a missing wait shows; where it is not, some errors are raised elsewhere.
MODES = ("async", "inline")


def kit(python: Path, mode: str, mutant: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One run of the kit with the mutant on ("" for none)."""
    environment = {**os.environ, "OPENREG_EXECUTION": mode, "OPENREG_MUTANT": mutant, "PYTHONPATH": str(KIT)}
    command = [python, "-m", "torch_conformance", "--device", "openreg", "--quick", "--quiet", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=build.FOLDER)


def baseline(python: Path, mode: str, *options: str) -> Path:
    """The results of the unmutated device, taken once."""
    path = build.FOLDER / f"baseline-{mode}.json"
    if not path.exists():
        result = kit(python, mode, "", "--write-baseline", str(path), *options)
        if result.returncode:
            path.unlink(missing_ok=True)
            raise SystemExit(f"the unmutated device fails in {mode}:\n{result.stdout}{result.stderr}")
    return path


def try_mutant(python: Path, mutant: table.Mutant) -> dict[str, Any]:
    """Runs the checks until one catches the mutant: those of its area, then all, then the sample of the sweeps."""
    stages = [(mode, ("--no-sweeps", "--checks", mutant.first)) for mode in MODES]
    if mutant.first != "*":
        stages += [(mode, ("--no-sweeps",)) for mode in MODES]
    stages.append(("inline", ("--levels", "2,3")))
    out = build.FOLDER / "runs" / f"{mutant.name}.json"
    out.parent.mkdir(exist_ok=True)
    for mode, options in stages:
        known = build.FOLDER / f"baseline-{mode}.json"
        common = ("--stop-at-first", "--jobs", "1", "--timeout", "60", "--baseline", str(known), "--json", str(out))
        result = kit(python, mode, mutant.name, *options, *common)
        if result.returncode == 2 or not out.exists():  # the sweeps could not even be listed
            return {"mutant": mutant.name, "caught": "import torch", "result": "failed", "mode": mode}
        baseline_of = json.loads(known.read_text())
        for check in json.loads(out.read_text())["checks"]:
            if baseline_of.get(check["name"]) == "passed" and check["result"] != "passed":
                found = {"caught": check["name"], "result": check["result"], "mode": mode}
                return {"mutant": mutant.name, **found, "detail": check["detail"][:200]}
    return {"mutant": mutant.name, "caught": None}


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
    lines += ["", "## Caught", "", "| mutant | kind | caught by | result, mode |", "|---|---|---|---|"]
    for mutant in caught:
        found = results[mutant.name]
        lines.append(f"| `{mutant.name}` | {mutant.kind} | `{found['caught']}` | {found['result']}, {found['mode']} |")
    return "\n".join(lines) + "\n"


def repeat(python: Path, times: int) -> int:
    """Runs the kit on the unmutated device, ``times`` times in each mode, and returns how many runs had a bad check."""
    bad = 0
    for mode in (*MODES, "chaos"):
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
    for mode in MODES:
        baseline(python, mode)
    results = {}
    if path.exists():
        results = {r["mutant"]: r for r in map(json.loads, path.read_text().splitlines())}
    names = {m.name for m in table.mutants()}
    results = {name: result for name, result in results.items() if name in names}
    waiting = [m for m in table.mutants() if fnmatch.fnmatch(m.name, options.only) and m.name not in results]
    with ThreadPoolExecutor(options.jobs) as pool, path.open("a") as file:
        for number, result in enumerate(pool.map(lambda m: try_mutant(python, m), waiting), 1):
            results[result["mutant"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{number}/{len(waiting)} {result['mutant']}: {result['caught'] or 'SURVIVED'}", flush=True)
    if options.table:
        options.table.write_text(page(results))
    survivors = sorted(name for name, result in results.items() if not result["caught"])
    caught = len(results) - len(survivors)
    print(f"{len(results)} mutants, {caught} caught, survivors: {', '.join(survivors) or 'none'}")
    unexplained = [name for name in survivors if name not in table.EXPECTED_SURVIVORS]
    return 1 if unexplained or caught < 0.9 * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
