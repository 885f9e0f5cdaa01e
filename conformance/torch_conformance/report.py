"""The reports of a run: text, JSON, JUnit, the baseline, and a script for each failure.

Importing this module does not import torch. `script`, `metadata` and `collect` import torch, because they load the
checks.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import sys
import types
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from .forms import forms
from .registry import BAD, LEVELS, RESULTS, all_checks, level_of
from .runner import Record

VERSION = "0.1.0"
_IN_FULL = 12  # the text explains this number of failures, and gives only the names of the others

# What a case of a sweep proves, why it matters, where PyTorch defines it, and the chapter: a case has no docstring.
_SWEPT = {
    "operators/op": (
        "The operator gives the CPU's results for the samples of PyTorch's op_db.",
        "A wrong operator often raises no error: the model trains, but it learns worse.",
        "torch/testing/_internal/common_methods_invocations.py",
        "operators",
    ),
    "operators/module": (
        "The module gives the CPU's results for the samples of PyTorch's module_db.",
        "Modules call fused kernels that no plain operator calls.",
        "torch/testing/_internal/common_modules.py",
        "operators",
    ),
    "operators/devices": (
        "The operator accepts and refuses operands on two devices as PyTorch's own meta function does.",
        "CUDA accepts indices of the CPU, and in some operators its 0-dim tensors, and refuses most other mixes.",
        "aten/src/ATen/TensorIterator.cpp, compute_types; device_check in native_functions.yaml",
        "operators",
    ),
    "operators/deterministic": (
        "In a deterministic program, the operator raises PyTorch's alert (with warn_only it warns and computes), or it "
        "gives the same bits in every run.",
        "A user who asks for deterministic algorithms cannot see that an operator ignores this: two trainings "
        "differ, and no message says why.",
        "torch/__init__.py, use_deterministic_algorithms; aten/src/ATen/Context.cpp, alertNotDeterministic",
        "operators",
    ),
    "trains/optimizer": (
        "The optimizer changes parameters as on the CPU, for the settings of PyTorch's optim_db.",
        "By default, an optimizer uses its foreach form on an accelerator, and not on the CPU.",
        "torch/testing/_internal/common_optimizers.py",
        "operators",
    ),
}


def torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def script(name: str, facts: dict[str, Any], proves: str) -> str:
    """A program that shows the failure of a run with these facts. It runs where the kit is installed."""
    check, device = all_checks().get(name), facts["device"]
    lines = [f"# {name}", f"# {proves}"]
    if facts.get("import"):
        lines += ["from torch_conformance import loading", "", f'loading.use("{facts["import"]}")', ""]
    if check is None:
        return "\n".join(
            [*lines, "from torch_conformance import sweep", "", f'print(sweep.run("{name}", "{device}"))\n']
        )
    from . import kit

    source, module = check.source(), check.body.__module__
    names = vars(sys.modules[module])
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} & set(names)
    modules = [word for word in sorted(used) if isinstance(names[word], types.ModuleType)]
    lines.insert(2, f"# Why: {_with_issue(vars(check))}")
    lines += [f"import {word}" for word in modules]
    for home, words in ((kit.__name__, used & {*kit.__all__}), (module, used - {*kit.__all__, *modules})):
        if words:
            lines.append(f"from {home} import {', '.join(sorted(words))}")
    if facts.get("strict_messages"):
        lines += ["from torch_conformance import kit", "", "kit.strict_messages = True"]
    return "\n".join([*lines, "", "", source.rstrip(), "", "", f'{check.body.__name__}("{device}")']) + "\n"


def _with_issue(about: dict[str, str]) -> str:
    return about["why"] + (f" An example: {about['issue']}." if about["issue"] else "")


def metadata(name: str) -> dict[str, str]:
    """What the check proves, why it matters, where PyTorch defines the behaviour, and the chapter about it.

    The issue is ``owner/repository#number`` on GitHub, or the empty string. `chapter_text` reads the chapter.
    """
    check = all_checks().get(name)
    if check is not None:
        proves, why, defined, chapter, issue = check.proves, check.why, check.defined, check.chapter, check.issue
    else:
        (proves, why, defined, chapter), issue = _SWEPT["/".join(name.split("/")[:2])], ""
    return {"proves": proves, "why": why, "issue": issue, "defined": defined, "chapter": chapter}


def chapter_text(name: str) -> str | None:
    """The text of a chapter of the book, or None if the kit was installed without the book's sources."""
    path = Path(__file__).parents[2] / "docs/bring-up" / f"{name}.md"
    return path.read_text() if path.exists() else None


def collect(records: list[Record], facts: dict[str, Any]) -> dict[str, Any]:
    """The contents of all forms of the report: the facts, a score for each level, the checks, and the work list."""
    checks = []
    for record in records:
        name = record["name"]
        entry = {"name": name, "level": level_of(name), **{k: v for k, v in record.items() if k != "name"}}
        entry |= {key: _printable(record[key]) for key in ("detail", "traceback") if key in record} | metadata(name)
        if record["result"] in BAD:
            entry["script"] = script(name, facts, entry["proves"])
        checks.append(entry)
    levels = []
    for number, title in enumerate(LEVELS):
        here = [each["result"] for each in checks if each["level"] == number]
        counts = {result: here.count(result) for result in RESULTS}
        offered = len(here) - counts["not offered"]
        # A percentage of a few checks says little about a level.
        told = offered and 2 * offered >= len(here)
        score = round(100 * (counts["passed"] + counts["noted"]) / offered, 1) if told else None
        levels.append(
            {"level": number, "title": title, "checks": len(here), "offered": offered, "score": score, **counts}
        )
    return {"kit": VERSION, **facts, "levels": levels, "operators": work_list(records), "checks": checks}


def work_list(records: list[Record]) -> list[dict[str, Any]]:
    """The missing operators, with the checks that wait for each. The operator that most checks wait for is the first.

    A check waits for the first operator that it misses. It may miss another one when this one is there.
    """
    waiting: dict[str, list[str]] = {}
    for record in records:
        if record["result"] == "needs operator":
            waiting.setdefault(record["operator"], []).append(record["name"])
    found = []
    for operator, names in sorted(waiting.items(), key=lambda item: -len(item[1])):
        write, derived = forms(operator)
        found.append({"operator": operator, "checks": names, "write": write, "derived": derived})
    return found


def regressed(record: Record, baseline: dict[str, str]) -> bool:
    """Whether a result is worse than the baseline's. Without a baseline: whether the check failed, crashed or hung.

    If a check passed in the baseline, every other result is worse. If the baseline does not name the check, or names
    it as not offered, a bad result is worse.
    """
    known = baseline.get(record["name"])
    if known == "passed":
        return record["result"] != "passed"
    return record["result"] in BAD and known not in BAD


def baseline(records: list[Record]) -> str:
    """The results as a baseline: a JSON object from names to results."""
    return json.dumps({record["name"]: record["result"] for record in records}, indent=0) + "\n"


def read_baseline(path: Path) -> dict[str, str]:
    """The results in a file that ``baseline`` made. Raises OSError or ValueError if the file cannot be read."""
    try:
        known = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the baseline {path} cannot be read: {error}") from None
    if not isinstance(known, dict) or not set(map(str, known.values())) <= set(RESULTS):
        raise ValueError(f"the baseline {path} is not a file that --write-baseline wrote")
    return known


def counted(checks: int) -> str:
    """The beginning of a sentence about a number of checks, such as "3 checks are"."""
    return f"{checks or 'No'} check{'s are' if checks > 1 else ' is'}"


def same_reason(checks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The checks in groups of the same result for the same reason. A hang does not tell its reason."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for each in checks:
        key = each["name"] if each["result"] == "hung" else (each["result"], each["detail"], each.get("at"))
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _failure(group: list[dict[str, Any]]) -> list[str]:
    """The lines about one reason of failures."""
    each = group[0]
    found = [line[:300] for line in each["detail"].splitlines()[: 1 if each["result"] == "failed" else 5]]
    lines = ["", f"{each['result'].upper()} {each['name']}"]
    if len(group) > 1:
        lines[-1] += f", and {counted(len(group) - 1).split()[0]} more for the same reason"
    lines += [f"  proves:  {each['proves']}", "  found:   " + "\n           ".join(found)]
    lines += [f"  at:      {each['at']}"] if each.get("at") else []
    return [*lines, f"  why:     {_with_issue(each)}", f"  defined: {each['defined']}", f"  chapter: {each['chapter']}"]


def _work(operators: list[dict[str, Any]]) -> list[str]:
    """The lines of the work list."""
    lines = ["", f"Work list: {len(operators)} missing operators, and the checks that wait for each", ""]
    for each in operators:
        lines.append(f"{len(each['checks']):>6}  {each['operator']}")
        if each["write"]:
            lines.append(f"        write:   {', '.join(each['write'])}")
        if each["derived"]:
            lines.append(f"        derived: {', '.join(each['derived'])}")
    lines += [
        "",
        "PyTorch derives the other forms from a structured overload. But nothing calls its meta function for a",
    ]
    return [*lines, "direct call with out=: a kernel for this form itself checks out, and resizes it."]


def text(summary: dict[str, Any], worse: list[Record], with_baseline: bool) -> str:
    """The report for a terminal: a line for each level, each reason of failures, and the work list."""
    lines = ["", f"device {summary['device']}, torch {summary['torch']}, {summary['seconds']} s", ""]
    lines.append(
        f"{'level':<13}{'score':>7}{'offered':>15}" + "".join(f"{result:>{len(result) + 2}}" for result in RESULTS[:-1])
    )
    for level in summary["levels"]:
        if level["checks"]:
            score = "-" if level["score"] is None else f"{int(level['score'])} %"
            offered = f"{level['offered']} of {level['checks']}"
            counts = "".join(f"{level[result]:>{len(result) + 2}}" for result in RESULTS[:-1])
            lines.append(f"{level['level']} {level['title']:<11}{score:>7}{offered:>15}{counts}")
    bad = same_reason([each for each in summary["checks"] if each["result"] in BAD])
    for group in bad[:_IN_FULL]:
        lines += _failure(group)
    lines += ["", *(f"{each['result'].upper()} {each['name']}" for group in bad[_IN_FULL:] for each in group)]
    if bad:
        lines.append("--chapter NAME prints a chapter.")
    noted = [each for each in summary["checks"] if each["result"] == "noted"]
    lines += [f"NOTED {each['name']}: {line[:200]}" for each in noted for line in each["detail"].splitlines()]
    if summary["operators"]:
        lines += _work(summary["operators"])
    lines.append("")
    if with_baseline:
        lines.append(f"{counted(len(worse))} worse than the baseline says.")
        lines += [f"  {record['result']}: {record['name']}" for record in worse]
    elif worse:
        lines.append(f"{counted(len(worse))} failed, crashed or hung. --html and --scripts give a script for each.")
    else:
        lines.append(f"{counted(0)} failed, crashed or hung.")
    return "\n".join(lines)


def junit(summary: dict[str, Any]) -> str:
    """The report as JUnit, with a test case for each check. Checks that are not offered, or need an operator, are skipped."""
    cases = []
    counts = {result: sum(level[result] for level in summary["levels"]) for result in RESULTS}
    for each in summary["checks"]:
        level, _, rest = each["name"].partition("/")
        detail = each["detail"]
        inside = ""
        if each["result"] in ("not offered", "needs operator"):
            inside = f"<skipped message={quoteattr(detail)}/>"
        elif each["result"] in BAD:
            kind = "failure" if each["result"] == "failed" else "error"
            body = escape((each.get("traceback") or each["detail"]) + "\n\n" + each["script"])
            inside = f"<{kind} type={quoteattr(each['result'])} message={quoteattr(detail)}>{body}</{kind}>"
        cases.append(
            f'<testcase classname="conformance.{level}" name={quoteattr(rest)} time="{each.get("seconds", 0)}">'
            f"{inside}</testcase>"
        )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuites><testsuite name="torch_conformance" tests="{len(cases)}" failures="{counts["failed"]}" '
        f'errors="{counts["crashed"] + counts["hung"]}" skipped="{counts["not offered"] + counts["needs operator"]}">'
        + "\n".join(cases)
        + "</testsuite></testsuites>\n"
    )


def _printable(text: str) -> str:
    """The text without characters that XML forbids, that UTF-8 cannot encode, or that control a terminal."""
    return "".join(c for c in text if c in "\t\n" or c.isprintable())
