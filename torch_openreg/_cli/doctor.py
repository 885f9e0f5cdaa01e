"""``torch-openreg doctor``: says which backends ``import torch`` loads here, which ones fail, why, and what to do.

The doctor examines every distribution with an entry point in the group ``torch.backends``. It imports no backend into
this process. Each backend is loaded in a separate process, because it may hang or kill that process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from torch_openreg import _build
from torch_openreg._cli._diagnosis import Doctor
from torch_openreg._identity import other_identities


def device_line(device: str | None) -> str:
    """The first line of the report: the type of this package's devices, or "none"."""
    for other in other_identities():
        if device == other.type:
            return f"Device: {device}, provided by torch_openreg (TORCH_OPENREG_AS={device}). {other.note}"
    if device:
        return f"Device: {device}, provided by torch_openreg."
    return "Device: none. `import torch` does not load torch_openreg here, or torch_openreg fails."


class Printer:
    """Prints the report for people."""

    CODES = {"red": 31, "green": 32, "yellow": 33, "bold": 1, "dim": 2}  # noqa: RUF012

    def __init__(self, colour: bool, details: bool) -> None:
        self.colour = colour
        self.details = details

    def paint(self, text: str, code: str) -> str:
        return f"\033[{self.CODES[code]}m{text}\033[0m" if self.colour else text

    def show(self, report: dict[str, Any]) -> None:
        torch, whole = report["torch"], report["import_torch"]
        build = f"{torch['version']} ({torch['build']})" if torch["version"] else "not installed"
        print(self.paint(device_line(whole["device"]), "bold"))
        for other in other_identities():
            if other.taken_in and (torch["build"] or "").startswith(other.taken_in):
                command = _build.cpu_build(torch["version"])
                print(f"TORCH_OPENREG_AS={other.type} needs a CPU build of PyTorch: {command}")
        print(f"{self.paint('Python', 'bold')}   {report['python']['version']}  {report['python']['executable']}")
        print(f"{self.paint('PyTorch', 'bold')}  {build}  {torch['folder'] or ''}".rstrip())
        print(f"{self.paint('Package', 'bold')}  torch_openreg  {report['package']['folder']}")
        for name, value in report["environment"].items():
            print(f"         {name}={value}")
        for title, fact in whole["facts"].items():
            properties = (f"{name} {text}" for name, text in fact["texts"].items())
            print(f"{self.paint(title.capitalize(), 'bold')}{' ' * (9 - len(title))}{fact['name']}, {fact['about']}")
            print(textwrap.fill(", ".join(properties), 110, initial_indent=" " * 9, subsequent_indent=" " * 9))
        print()
        for other in report["package"]["others"]:
            print(self.paint(other, "red") + "\n")
        if torch["failure"]:
            self.failure("`import torch` without any backend", torch["failure"])
        self.table(report["backends"])
        for backend in report["backends"]:
            if backend["failure"]:
                self.failure(f"{backend['distribution']} {backend['version']}", backend["failure"])
        for conflict in report["conflicts"]:
            self.failure(" and ".join(conflict["backends"]), {**conflict, "details": ""})
        self.verdict(whole)

    def table(self, backends: list[dict[str, Any]]) -> None:
        if not backends:
            print("No backend is installed (entry points of the group torch.backends).\n")
            return
        rows = [("backend", "distribution", "result", "time", "modules", "libraries", "PrivateUse1")]
        for backend in backends:
            seconds = backend["seconds"]
            loaded = [str(len(backend["modules"])), str(len(backend["libraries"]))] if seconds is not None else ["", ""]
            rows.append(
                (
                    backend["name"],
                    f"{backend['distribution']} {backend['version']}",
                    backend["result"],
                    "" if seconds is None else f"{seconds * 1000:.0f} ms",
                    *loaded,
                    backend["privateuse1"] or "",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        colours = {"ok": "green", "failed": "red", "unavailable": "yellow", "not tried": "yellow", "result": "bold"}
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            cells[2] = self.paint(cells[2], colours[row[2]])
            print("  ".join(cells).rstrip())
        print()

    def failure(self, who: str, failure: dict[str, Any]) -> None:
        print(f"{self.paint(who, 'bold')}: {self.paint(failure['cause'], 'red')}")
        print(f"  To do: {failure['remedy']}")
        if self.details and failure["details"]:
            print(self.paint("\n".join(f"  | {line}" for line in failure["details"].splitlines()), "dim"))
        print()

    def verdict(self, whole: dict[str, Any]) -> None:
        if whole["failure"]:
            print(self.paint(f"`import torch` fails here: {whole['failure']['cause']}", "red"))
        else:
            # If torch_openreg fails, PrivateUse1 has its name, but there is no device (_failure.stand_in).
            others = whole["privateuse1"] if whole["privateuse1"] != "openreg" else None
            device = others or whole["device"]
            loaded = f"device {device!r}" if device else "no PrivateUse1 device"
            print(self.paint(f"`import torch` works here, in {whole['seconds']:.2f} s, with {loaded}.", "green"))


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < 1e6:
            return seconds
    raise argparse.ArgumentTypeError(f"must be a number above 0 and below a million, not {text!r}")


def main(argv: Sequence[str]) -> int:
    """Prints the report. Returns 0 if all backends work, alone and together, and no two take PrivateUse1; else 1."""
    parser = argparse.ArgumentParser(
        prog="torch-openreg doctor",
        description="Which backends `import torch` loads in this environment, which fail, why, and what to do.",
        exit_on_error=False,
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with modules and libraries")
    parser.add_argument("--details", action="store_true", help="print tracebacks and what the backends printed")
    parser.add_argument("--timeout", type=_seconds, default=60, metavar="S", help="seconds for each load (default: 60)")
    try:
        options, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        print(f"torch-openreg doctor: {error}: all options ignored", file=sys.stderr)
        options, unknown = parser.parse_args([]), []
    if unknown:
        print(f"torch-openreg doctor: unknown, ignored: {' '.join(unknown)}", file=sys.stderr)
    report = Doctor(options.timeout).report()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        Printer(sys.stdout.isatty() and "NO_COLOR" not in os.environ, options.details).show(report)
    return 0 if report["healthy"] else 1
