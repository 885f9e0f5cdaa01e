"""Runs the conformance kit on every mutant of the backend: `make mutants`.

    make mutants ARGS="--only 'guard.*'"    some of them
    make mutants ARGS="--repeat 10"         the installed device instead, ten times in each mode: no check may fail

A mutant is caught if a check that passes on the unmutated device does not pass on the mutant. A mutant that no check
catches is tried with the backend's own test for it (`table.OWN_TESTS`). Results are kept in the folder build/mutants,
in results.jsonl and repeats.jsonl, and a later run goes on from them; --fresh deletes them. --table FILE writes the
page of the book.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import os
import queue
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import programs
from programs import Done, Peer

from . import build, table

KIT = table.ROOT / "conformance"
# A missing wait shows only in a mode that queues work. In the mode inline, some errors are raised in other places.
MODES = {
    "async": {"OPENREG_EXECUTION": "async"},
    "inline": {"OPENREG_EXECUTION": "inline"},
    "chaos": {"OPENREG_EXECUTION": "chaos"},
}


def kit(python: Path, mode: str, mutant: str, *options: str) -> Done:
    """One run of the kit with the mutant on ("" for none)."""
    command = (
        python,
        "-m",
        "torch_conformance",
        "--device",
        "openreg",
        "--quick",
        "--quiet",
        "--strict-messages",
        *options,
    )
    variables = {**MODES[mode], "BACKEND_MUTANT": mutant, "PYTHONPATH": str(KIT)}
    return programs.run(*command, cwd=build.FOLDER, timeout=None, **variables)


def baseline(python: Path, mode: str, *options: str) -> Path:
    """The results of the unmutated device, taken once."""
    path = build.FOLDER / f"baseline-{mode}.json"
    if not path.exists():
        result = kit(python, mode, "", "--write-baseline", str(path), *options)
        if result.returncode:
            path.unlink(missing_ok=True)
            raise SystemExit(f"the unmutated device fails in {mode}:\n{result.stdout}{result.stderr}")
    return path


def sweeps(python: Path) -> list[str]:
    """The names of all cases of the databases of operators and optimizers, taken once."""
    path = build.FOLDER / "sweeps.txt"
    if not path.exists():
        options = ("--device", "openreg", "--list", "--checks", "operators/op/*", "--checks", "trains/optimizer/*")
        lines = programs.run(python, "-m", "torch_conformance", *options, PYTHONPATH=str(KIT), status=0).stdout.split(
            "\n"
        )
        path.write_text("\n".join(line.split()[1] for line in lines if line.count("/") == 4))
    return path.read_text().split()


# Operators that PyTorch's database has under another name.
NAMED = {"index_Tensor": "__getitem__", "_index_put_impl": "index_put", "embedding_dense": "embedding",
         "_fused_sdp_choice": "scaled_dot_product_attention", "random": "randint", "fill": "full_like",
         "nll_loss2d": "nll_loss", "pow_Scalar": "rpow", "_fused": ""}  # fmt: skip


def cases_of(row: str, names: list[str]) -> list[str]:
    """The cases of the database for the operator of a row: those of the longest name with which the row begins."""
    row = row.replace(".", "_").removesuffix("_stub")
    row = next((new + row[len(old) :] for old, new in NAMED.items() if row.startswith(old)), row)
    row = row.lstrip("_").removeprefix("native_").rstrip("_") + "_"
    found: dict[str, list[str]] = {}
    for name in names:
        _, _, entry, dtype, form = name.split("/")
        for short in {entry.split(".")[0], entry.rsplit(".", 1)[-1].strip("_"), entry.replace(".", "_"), entry.lower()}:
            if row.startswith(short + "_") and form != "error":
                found.setdefault(short, []).append(name)
    if not found:
        return []
    best = found[max(found, key=len)]
    dtypes = [name.split("/")[3] for name in best]
    dtype = "float32" if "float32" in dtypes else dtypes[0]
    return [name for name in best if name.split("/")[3] == dtype][:24]


# Slow checks, which start Python processes, and the sample of the sweeps. Of the mutants, only those that ignore an
# environment variable run all of these. A mutant whose `first` is the whole name of a slow check runs that one.
SLOW = ("loads/autoload/*", "loads/exit/*", "processes/*", "operators/op/*", "operators/module/*",
        "trains/optimizer/*", "memory/limits/the_shared_settings_are_read")  # fmt: skip


class Zygote:
    """A process that tries one mutant after the other: see `zygote`."""

    def __init__(self, python: Path) -> None:
        path = os.pathsep.join(
            [str(KIT), *map(str, (table.ROOT / "tests" / "tools", table.ROOT / "tests" / "support"))]
        )
        self._peer = Peer(python, "-m", "mutants.zygote", PYTHONPATH=path, cwd=build.FOLDER)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._peer.ask(json.dumps(request)))
        return answer

    def stop(self) -> None:
        self._peer.close()


def names_of(mutant: table.Mutant, mode: str, python: Path) -> list[str]:
    """The quick checks that pass on the unmutated device. Those of the mutant's area come first, then those that ask
    PyTorch's C++ interfaces. For a row, the cases of its operator come before all."""
    known = json.loads((build.FOLDER / f"baseline-{mode}.json").read_text())
    passed = [name for name, result in known.items() if result == "passed" and fnmatch.fnmatch(name, mutant.within)]
    first = (mutant.first, "tools/interfaces/*", "*")
    passed.sort(key=lambda name: next(n for n, pattern in enumerate(first) if fnmatch.fnmatch(name, pattern)))
    if mutant.kind != "environment":
        passed = [n for n in passed if n == mutant.first or not any(fnmatch.fnmatch(n, slow) for slow in SLOW)]
    row = mutant.name.partition(".")[2]
    if mutant.kind in ("row", "stub"):
        passed = cases_of(row, sweeps(python)) + passed
    if mutant.kind == "rule":
        passed.insert(0, f"operators/devices/{row}")
    return passed


class Judge:
    """Tries mutants, one after the other."""

    def __init__(self, python: Path) -> None:
        self._python, self._zygote = python, Zygote(python)

    def stop(self) -> None:
        self._zygote.stop()

    def _run(self, mutant: str, mode: str, names: list[str], insist: bool) -> dict[str, Any]:
        request = {"mutant": mutant, "mode": mode, "environment": MODES[mode], "names": names, "insist": insist}
        return self._zygote.ask(request)

    def by_the_kit(self, mutant: table.Mutant, mode: str) -> dict[str, Any]:
        """Runs the checks until one catches the mutant."""
        names = names_of(mutant, mode, self._python)
        while True:
            # For an operator without a kernel, the sweeps answer that it is not offered. That catches the mutant.
            answer = self._run(mutant.name, mode, names, insist=mutant.kind not in ("row", "stub"))
            caught = answer["caught"]
            # A case of the sweeps, which the baseline may lack, counts only if it passes on the unmutated device.
            if not (caught and caught.startswith(("operators/op/", "operators/devices/", "trains/optimizer/"))):
                return answer
            if not self._run("", mode, [caught], insist=False)["caught"]:
                return answer
            names = names[names.index(caught) + 1 :]

    def by_a_test(self, mutant: table.Mutant) -> dict[str, Any]:
        """Runs the backend's own test of the mutant."""
        test = next((test for name, test in table.OWN_TESTS.items() if fnmatch.fnmatch(mutant.name, name)), None)
        answer = {"caught": None, "mutant": mutant.name, "mode": "own test"}
        if test and not self._passes(test, mutant.name) and self._passes(test, ""):
            answer |= {"caught": f"tests/{test}", "result": "failed"}
        return answer

    @functools.cache  # noqa: B019 (a judge lives as long as the run)
    def _passes(self, test: str, mutant: str) -> bool:
        command = [self._python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]
        # PYTHONSAFEPATH: Python must not import the package in the working directory, which has no libraries.
        switches = {"BACKEND_MUTANT": mutant, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
        switches["TEST_INTERPRETERS"] = "1"  # the build with mutants ignores variables when Python starts
        result = programs.run(*command, cwd=table.ROOT, timeout=None, **switches)
        if result.returncode not in (0, 1):
            raise SystemExit(f"{test} did not run:\n{result.stdout}{result.stderr}")
        return result.returncode == 0

    def judge(self, mutant: table.Mutant) -> dict[str, Any]:
        """Runs the kit in async, then in inline, then the backend's own test. Rows, stubs and rules need no async."""
        modes = ["async", "inline"] if mutant.kind not in ("row", "stub", "rule") else ["inline"]
        answer: dict[str, Any] = {"caught": None}
        if mutant.within:
            for mode in modes:
                answer = self.by_the_kit(mutant, mode)
                if answer["caught"]:
                    return answer
        return self.by_a_test(mutant)


LENGTH = 100  # rows of a table that can still be read


def page(results: dict[str, dict[str, Any]]) -> str:
    """The table of mutants, as a page of the book."""
    tried = [m for m in table.mutants() if m.name in results]
    caught = [m for m in tried if results[m.name]["caught"]]
    by_tests = [m for m in caught if results[m.name]["mode"] == "own test"]
    by_kit = [m for m in caught if m not in by_tests]
    lost = [m for m in by_kit if results[m.name]["result"] == "not offered"]
    noted = [m for m in by_kit if results[m.name]["result"] in ("noted", "needs operator")]
    survivors = [m for m in tried if m not in caught]
    share = 100 * len(by_kit) / max(len(tried), 1)
    no_defect = [m for m in survivors if (table.why_it_survives(m.name) or "").startswith("equivalent")]
    asked = [m for m in tried if m.kind != "environment" and m not in no_defect]
    found_of_asked = [m for m in asked if m in by_kit]
    lines = [
        "# Mutants",
        "",
        '% Written by `make mutants ARGS="--table docs/mutants.md"`; do not edit.',
        "",
        "Mutants measure how many defects [the conformance kit](bring-up/conformance.md) finds. A mutant is a copy of "
        "this backend with one defect. The defects come from tables (`tests/tools/mutants/table.py`). One test build "
        "has all of them, and a test chooses one at run time.",
        "",
        f"{len(tried)} of {len(table.mutants())} mutants were tried. The kit catches {len(by_kit)} ({share:.0f} %). "
        f"This backend's own tests catch {len(by_tests)} more, and {len(survivors)} survive: nothing catches them.",
        "",
        f"{len(tried) - len(asked) - len(no_defect)} mutants ignore an environment variable of this backend, and the "
        f"kit for all backends sets none of these variables. {len(no_defect)} survivors are no defects: they do what "
        f"the backend does. Of the other {len(asked)} mutants the kit catches {len(found_of_asked)} "
        f"({100 * len(found_of_asked) / max(len(asked), 1):.0f} %).",
        "",
        f"{len(lost)} of the mutants that the kit catches are marked *not offered any more*: a check passes on the "
        "device, and says of the mutant that it does not offer an ability. Only a run with `--baseline` counts such a "
        "result as bad, because the baseline says that the device offered the ability before. In nearly all of these "
        "mutants the row or the nondeterminism check of an operator is left out, and the check has the name of that operator. "
        f"{len(noted)} more are marked *noted* or *needs operator*: the check passes with a remark, for example that the "
        "mutant accepts what CUDA refuses, or waits for the operator. A run with `--baseline` counts this as bad too.",
        "",
        "| kind | mutants | caught by the kit | of these, not offered any more | caught by own tests | survivors |",
        "|---|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys(mutant.kind for mutant in tried)
    for kind in kinds:
        counts = [sum(m.kind == kind for m in group) for group in (tried, by_kit, lost, by_tests, survivors)]
        lines.append(f"| {kind} | " + " | ".join(map(str, counts)) + " |")
    if others := [mutant.name for mutant in table.mutants() if mutant not in tried]:
        lines += ["", "## Not tried yet", "", ", ".join(f"`{name}`" for name in others) + "."]
    lines += ["", "## Survivors", "", "| mutant | kind | why |", "|---|---|---|"]
    for mutant in survivors:
        lines.append(f"| `{mutant.name}` | {mutant.kind} | {table.why_it_survives(mutant.name) or 'not explained'} |")
    lines += ["", "## Caught by this backend's own tests", ""]
    lines += ["No check of the kit fails on these.", "", "| mutant | caught by |", "|---|---|"]
    lines += [f"| `{mutant.name}` | `{results[mutant.name]['caught']}` |" for mutant in by_tests]
    for kind in kinds:
        of_kind = [mutant for mutant in by_kit if mutant.kind == kind]
        for start in range(0, len(of_kind), LENGTH):
            part = f", from {start + 1}" if len(of_kind) > LENGTH else ""
            lines += ["", f"## Caught: {kind}{part}", "", "| mutant | caught by | result, mode |", "|---|---|---|"]
            for mutant in of_kind[start : start + LENGTH]:
                found = results[mutant.name]
                result = found["result"].replace("not offered", "not offered any more")
                lines.append(f"| `{mutant.name}` | `{found['caught']}` | {result}, {found['mode']} |")
    return "\n".join(lines) + "\n"


def repeat(times: int, path: Path) -> int:
    """Runs the kit on the installed device until it has run ``times`` times in each mode, and keeps the results.

    Returns how many runs had a bad check.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for n, mode in itertools.product(range(times), MODES):
        if sum(run["mode"] == mode for run in runs) > n:
            continue
        result = kit(Path(sys.executable), mode, "")
        runs.append({"mode": mode, "status": result.returncode, "report": result.stdout})
        with path.open("a") as file:
            file.write(json.dumps(runs[-1]) + "\n")
        print(f"{mode} {n + 1}: {result.stdout if result.returncode else 'no check is bad'}", flush=True)
    return sum(run["status"] != 0 for run in runs)


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
    path, repeats = build.FOLDER / "results.jsonl", build.FOLDER / "repeats.jsonl"
    if options.fresh:
        for old in (path, repeats, *build.FOLDER.glob("baseline-*.json")):
            old.unlink(missing_ok=True)
    if options.repeat:
        return 1 if repeat(options.repeat, repeats) else 0
    python = build.build(options.build.resolve())
    for mode in ("async", "inline"):
        baseline(python, mode)
    sweeps(python)
    results = {}
    if path.exists():
        results = {r["mutant"]: r for r in map(json.loads, path.read_text().splitlines())}
    names = {m.name for m in table.mutants()}
    results = {name: result for name, result in results.items() if name in names}
    waiting: queue.SimpleQueue[table.Mutant] = queue.SimpleQueue()
    for mutant in table.mutants():
        if fnmatch.fnmatch(mutant.name, options.only) and mutant.name not in results:
            waiting.put(mutant)
    total = waiting.qsize()

    def work() -> None:
        judge = Judge(python)
        try:
            while True:
                result = judge.judge(waiting.get_nowait())
                with path.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                results[result["mutant"]] = result
                found = f"{result['caught']} ({result['result']})" if result["caught"] else "SURVIVED"
                print(f"{total - waiting.qsize()}/{total} {result['mutant']}: {found}", flush=True)
        except queue.Empty:
            return
        finally:
            judge.stop()

    with ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(work) for _ in range(options.jobs)]:
            future.result()
    if options.table:
        options.table.write_text(page(results))
    survivors = sorted(name for name, result in results.items() if not result["caught"])
    by_kit = sum(result["caught"] is not None and result["mode"] != "own test" for result in results.values())
    print(f"{len(results)} mutants, {by_kit} caught by the kit, {len(results) - by_kit - len(survivors)} by own tests, "
          f"survivors: {', '.join(survivors) or 'none'}")  # fmt: skip
    unexplained = [name for name in survivors if not table.why_it_survives(name)]
    return 1 if unexplained or by_kit < 0.92 * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
