"""Writes what was found: as a table, JSON, JUnit, SARIF, and one page of HTML that needs no network."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any
from xml.sax.saxutils import quoteattr

from torch_openreg import _page

from ._judge import KINDS, Finding


def where(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.line else finding.file


def looked_at_text(looked_at: Mapping[str, Any]) -> str:
    """How much was looked at, in one sentence."""
    parts = [f"{looked_at['runs']} of {looked_at['planned']} runs", f"{looked_at['schedules']} schedules"]
    for name, tried in looked_at.get("faults", {}).items():
        parts.append(f"faults in {tried} of {looked_at['calls'][name]} {name}")
    if looked_at.get("models"):
        parts.append(f"models {', '.join(looked_at['models'])}")
    return "; ".join(parts)


def text(findings: Sequence[Finding], looked_at: Mapping[str, Any]) -> str:
    """The table at the end. On a correct program it says how much was looked at, and nothing else."""
    lines = []
    for finding in findings:
        kind = f"note ({finding.kind})" if finding.note else finding.kind
        lines.append(f"{kind:<12}{where(finding)}  [{finding.sure}]")
        lines += textwrap.wrap(finding.message, 108, initial_indent=" " * 12, subsequent_indent=" " * 12)
        lines.append(f"{'':<12}repeat: {finding.repeat}")
    count = sum(not finding.note for finding in findings)
    found = f"{count} finding{'' if count == 1 else 's'}" if count else "nothing found"
    lines.append(f"check: {found}; looked at {looked_at_text(looked_at)}")
    return "\n".join(lines)


def as_json(findings: Sequence[Finding], looked_at: Mapping[str, Any]) -> str:
    def row(finding: Finding) -> dict[str, Any]:
        return {name: getattr(finding, name) for name in ("kind", "file", "line", "message", "repeat", "sure")}

    parts = {
        "findings": [row(finding) for finding in findings if not finding.note],
        "notes": [row(finding) for finding in findings if finding.note],
        "looked_at": looked_at,
    }
    return json.dumps(parts, indent=2) + "\n"


def as_junit(findings: Sequence[Finding], looked_at: Mapping[str, Any]) -> str:
    """One test case for each finding, and one that passes if there is none."""
    real = [finding for finding in findings if not finding.note]
    cases = [
        f"  <testcase classname={quoteattr(finding.kind)} name={quoteattr(where(finding))} "
        f"file={quoteattr(finding.file)} line={quoteattr(str(finding.line))}>\n"
        f"    <failure message={quoteattr(finding.message)}>{escape(f'repeat: {finding.repeat}')}</failure>\n  </testcase>"
        for finding in real
    ] or [f'  <testcase classname="check" name={quoteattr(looked_at_text(looked_at))}/>']
    head = f'<testsuite name="torch-openreg check" tests="{len(cases)}" failures="{len(real)}" errors="0" skipped="0">'
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join([head, *cases, "</testsuite>"]) + "\n"


def as_sarif(findings: Sequence[Finding], looked_at: Mapping[str, Any]) -> str:
    """SARIF 2.1.0, with which code hosts show findings at lines."""

    def result(finding: Finding) -> dict[str, Any]:
        location: dict[str, Any] = {"artifactLocation": {"uri": finding.file}}
        if finding.line:
            location["region"] = {"startLine": finding.line}
        return {
            "ruleId": finding.kind,
            "level": "note" if finding.note else "error",
            "message": {"text": f"{finding.message}\nRepeat: {finding.repeat}"},
            "locations": [{"physicalLocation": location}],
        }

    rules = [{"id": kind, "shortDescription": {"text": meaning}} for kind, meaning in KINDS.items()]
    run = {
        "tool": {"driver": {"name": "torch-openreg check", "rules": rules}},
        "results": [result(finding) for finding in findings],
        "properties": {"looked_at": looked_at},
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def as_html(findings: Sequence[Finding], looked_at: Mapping[str, Any]) -> str:
    rows = [(f"note ({f.kind})" if f.note else f.kind, where(f), f.message, f.sure, f.repeat) for f in findings]
    body = [f"<p>Looked at {escape(looked_at_text(looked_at))}.</p>"]
    body += [f"<p>Not compared: {escape(each)}.</p>" for each in looked_at.get("not_compared", ())]
    if rows:
        body.insert(0, _page.table(("what", "where", "what it shows", "how sure", "the command that repeats it"), rows))
    else:
        body.insert(0, "<p>Nothing found.</p>")
    return _page.page("What check found", "\n".join(body))


# The options that write a file, and what they write.
WRITERS: dict[str, Callable[[Sequence[Finding], Mapping[str, Any]], str]] = {
    "json": as_json,
    "junit": as_junit,
    "sarif": as_sarif,
    "html": as_html,
}
