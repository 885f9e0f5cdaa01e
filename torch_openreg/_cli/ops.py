"""``torch-openreg ops``: lists the route of each operator on the device.

A route is the way by which a call reaches its kernel: the kind of kernel that the dispatcher of this process calls.

No operator is listed here by hand. The command reads PyTorch's dispatch tables, with the source file of each
registration. So it also shows kernels that a program has added.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch

from torch_openreg import _C, _page
from torch_openreg._environment import modules_of_parts

# Sub-packages may have routes on which a CPU kernel computes on device memory.
_PARTS = modules_of_parts("_routes")
_OF_PARTS = {route: text for part in _PARTS for route, text in part.ROUTES.items()}
# Route -> what it means. The order is that of the output: from a kernel of the device's own to no kernel.
ROUTES = {
    "native": "a kernel written for the device",
    **_OF_PARTS,
    "fallback": "the boxed fallback for every operator with a CPU kernel",
    "composite explicit": "composed of other operators; PyTorch has a derivative formula for this one",
    "composite implicit": "composed of other operators; autograd differentiates those",
    "autograd": "a kernel for the dispatch key AutogradPrivateUse1 only",
    "other layouts": "no kernel for this layout, but one for tensors of another layout (--layout)",
    "missing": "no kernel for the device, and no CPU kernel that the fallback could run",
}
# On these routes a CPU kernel computes on device memory. A vendor's backend replaces the CPU kernels with its own, one
# operator after the other.
ON_CPU = (*_OF_PARTS, "fallback")
# Layout -> the dispatch keys of its tensors, on the device and on the CPU.
KEYS = {
    "strided": ("PrivateUse1", "CPU"),
    "sparse_coo": ("SparsePrivateUse1", "SparseCPU"),
    "sparse_csr": ("SparseCsrPrivateUse1", "SparseCsrCPU"),
    "quantized": ("QuantizedPrivateUse1", "QuantizedCPU"),
    "nested": ("NestedTensorPrivateUse1", "NestedTensorCPU"),
}


class Operator(NamedTuple):
    """One operator, and how the device runs it."""

    name: str
    """With namespace and overload: ``"aten::add.Tensor"``."""
    route: str
    """A key of ROUTES."""
    queued: bool
    """Whether a call may be queued in the execution modes that queue. If not, a kernel that reads or writes
    elements waits for its stream. A view or a composition does not itself wait."""
    registered_at: str
    """File and line of the registration; empty if there is no kernel."""


def entry(table: str, key: str) -> tuple[str, str]:
    """The source and the kind of the kernel that a dispatch table has for a key. Both are "" if there is no kernel."""
    found = re.search(rf"^{key}: (.*) \[(.*)\]$", table, re.MULTILINE)
    return (found[1].removeprefix("registered at "), found[2]) if found else ("", "")


def stated_route(source: str) -> tuple[str, str]:
    """Splits the source of a registration, "FILE:LINE as ROUTE", into place and route. Without " as ROUTE": native."""
    place, _, route = source.rpartition(" as ")
    return (place, route) if place and route in ROUTES else (source, "native")


def route_of(name: str, layout: str = "strided") -> tuple[str, str]:
    """The route of an operator for tensors of a layout, and the source of its kernel."""
    _C._init()  # kernels for other layouts are registered when the device starts
    table = torch._C._dispatch_dump_table(name)
    device, cpu = KEYS[layout]
    source, kind = entry(table, device)
    if kind == "kernel":
        place, route = stated_route(source)
        return route, place
    if kind == "backend fallback" and entry(table, cpu)[1] not in ("", "backend fallback", "fallthrough"):
        return "fallback", source
    if kind == "default backend kernel":
        return "composite explicit", source
    if kind == "math kernel":
        return "composite implicit", source
    # The kernels that PyTorch generates for autograd (VariableType) call the backend's kernel, so they are no route.
    source, kind = entry(table, "AutogradPrivateUse1")
    if kind and "VariableType" not in source and kind not in ("backend fallback", "fallthrough"):
        return "autograd", source
    if any(entry(table, theirs)[1] == "kernel" and entry(table, ours)[1] for ours, theirs in KEYS.values()):
        return "other layouts", ""
    return "missing", ""


def operators(namespaces: Sequence[str], layout: str = "strided") -> Iterator[Operator]:
    """Every operator of the namespaces that is defined in this process, by name. Without a namespace: all operators."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        if (namespaces and namespace not in namespaces) or not torch._C._dispatch_has_kernel(name):
            continue
        route, source = route_of(name, layout)
        base, _, overload = rest.partition(".")
        queued = (route == "native" or route in ON_CPU) and _C._is_queueable(f"{namespace}::{base}", overload)
        # Makes the path relative to the sources. PyTorch's paths are those of the machine that built PyTorch.
        yield Operator(name, route, queued, re.sub(r"^(\.\./)+|^.*/pytorch/pytorch/|^/.*/(?=csrc/)", "", source))


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern, with or without namespace and overload, matches an operator."""
    short = name.partition("::")[2]
    return any(fnmatchcase(text, pattern) for text in (name, name.partition(".")[0], short, short.partition(".")[0]))


def routes(text: str) -> list[str]:
    """The routes in the option ``--route``."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ROUTES:
            raise argparse.ArgumentTypeError(f"{name!r} is no route; `torch-openreg ops --help` lists the routes")
    return names


def totals(rows: Sequence[Operator]) -> dict[str, int]:
    """The number of operators of each route, in the order of ROUTES, without routes that have none."""
    counts = Counter(row.route for row in rows)
    return {route: counts[route] for route in ROUTES if counts[route]}


def summary_of_cpu_kernels(rows: Sequence[Operator]) -> str:
    """A sentence that says how many kernels are the backend's own."""
    counts = totals(rows)
    still = sum(counts.get(route, 0) for route in ON_CPU)
    own = counts.get("native", 0)
    return (
        f"{still} of {still + own} operators with a kernel on the device run the CPU's kernel, {own} have a kernel of "
        "their own."
    )


# ---- What is printed -----------------------------------------------------------------------------------------------


def show_plain(rows: Sequence[Operator], only_totals: bool) -> None:
    width = max((len(row.name) for row in rows), default=0)
    if not only_totals:
        for row in rows:
            queued = "queued" if row.queued else ""
            print(f"{row.name:<{width}}  {row.route:<20}  {queued:<6}  {row.registered_at}".rstrip())
        print()
    for route, count in totals(rows).items():
        print(f"{count:>5}  {route:<20}  {ROUTES[route]}")
    print(f"{len(rows):>5}  operators, {sum(row.queued for row in rows)} of them queued in asynchronous execution")


def show_rich(rows: Sequence[Operator], only_totals: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not only_totals:
        table = Table("operator", "route", "queued", "registered at", box=None, header_style="bold", pad_edge=False)
        for row in rows:
            style = "red" if row.route == "missing" else "yellow" if "fallback" in row.route else ""
            table.add_row(row.name, row.route, "yes" if row.queued else "", row.registered_at, style=style)
        console.print(table)
        console.print()
    table = Table("route", "", "what runs", box=None, header_style="bold", pad_edge=False)
    table.columns[1].justify = "right"
    for route, count in totals(rows).items():
        table.add_row(route, str(count), ROUTES[route])
    table.add_row("all", str(len(rows)), f"{sum(row.queued for row in rows)} queued in asynchronous execution")
    console.print(table)


STYLE = """td:first-child { font-family: ui-monospace, monospace; white-space: nowrap; }
td.source { font-family: ui-monospace, monospace; font-size: .8em; opacity: .7; white-space: nowrap; }
#operators td { white-space: nowrap; }
#routes td:last-child { min-width: 14rem; }
input, button { font: inherit; padding: .3rem .6rem; max-width: 100%; margin: 1.5rem .5rem .5rem 0; }
input { width: 22rem; box-sizing: border-box; }
tr.total { cursor: pointer; }
tr.total:hover, tr.chosen { background: var(--soft); }
"""
BODY = """<p>{count} operators of PyTorch {version}, by the kernel that the dispatcher has for the device; {queued} are
queued in asynchronous execution. Choose a route, or type a part of a name.</p>
<div class="scrolls">
<table id="routes">
<thead><tr><th>route</th><th>operators</th><th>what runs</th></tr></thead>
<tbody>
{routes}
</tbody>
</table>
</div>
<input id="filter" type="search" placeholder="filter by name" aria-label="filter by name">
<span id="shown" role="status"></span> <button id="all" type="button" hidden>show all</button>
<div class="scrolls">
<table id="operators">
<thead><tr><th>operator</th><th>route</th><th>queued</th><th>registered at</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""
SCRIPT = """const filter = document.getElementById("filter"), routes = document.querySelectorAll("tr.total");
const shown = document.getElementById("shown"), all = document.getElementById("all");
const rows = [...document.querySelectorAll("#operators tbody tr")];
let route = null, limit = 100;
function update() {
  const text = filter.value.toLowerCase();
  let matching = 0;
  for (const row of rows) {
    const named = row.cells[0].textContent.toLowerCase().includes(text);
    row.hidden = !named || (route && row.cells[1].textContent !== route) || ++matching > limit;
  }
  shown.textContent = `${Math.min(matching, limit)} of ${matching} operators`;
  all.hidden = matching <= limit;
  for (const row of routes) row.classList.toggle("chosen", row.cells[0].textContent === route);
}
filter.addEventListener("input", update);
all.addEventListener("click", () => { limit = Infinity; update(); });
for (const row of routes) row.addEventListener("click", () => {
  route = route === row.cells[0].textContent ? null : row.cells[0].textContent;
  update();
});
update();
"""


def page(rows: Sequence[Operator]) -> str:
    """A page with the table, which needs no other file."""
    total = '<tr class="total"><td>{}</td><td class="number">{}</td><td>{}</td></tr>'
    row = '<tr><td>{}</td><td>{}</td><td>{}</td><td class="source">{}</td></tr>'
    body = BODY.format(
        count=len(rows),
        version=html.escape(torch.__version__),
        queued=sum(r.queued for r in rows),
        routes="\n".join(total.format(route, n, html.escape(ROUTES[route])) for route, n in totals(rows).items()),
        rows="\n".join(
            row.format(html.escape(r.name), r.route, "yes" if r.queued else "", html.escape(r.registered_at))
            for r in rows
        ),
    )
    return _page.page("Operators of the openreg device", body, style=STYLE, script=SCRIPT)


def main(argv: Sequence[str]) -> int:
    """Prints the table. Returns 0, or 1 if no operator matches."""
    parser = argparse.ArgumentParser(
        prog="torch-openreg ops",
        description="The route that each operator takes on the openreg device, with totals.",
        epilog="routes:\n" + "\n".join(f"  {route:<22}{text}" for route, text in ROUTES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names: add, aten::add.out, '_foreach_*'")
    parser.add_argument("--route", action="extend", type=routes, help="list only these routes, separated by commas")
    parser.add_argument(
        "--namespace", action="append", help="list this namespace instead of aten, or 'all'; may be repeated"
    )
    parser.add_argument(
        "--layout", default="strided", choices=KEYS, help="the layout of the tensors (default: strided)"
    )
    parser.add_argument("--totals", action="store_true", help="print only the totals")
    text = "list the operators that run the CPU's kernel, and print how many"
    for part in _PARTS:
        parser.add_argument(part.OPTION, dest="on_cpu", action="store_true", help=text)
    parser.set_defaults(on_cpu=False)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: totals and operators")
    form.add_argument("--html", action="store_true", help="print an HTML page in one file")
    options = parser.parse_args(argv)
    namespaces = options.namespace or ["aten"]
    rows = [
        row
        for row in operators([] if "all" in namespaces else namespaces, options.layout)
        if (not options.route or row.route in options.route)
        and (not options.patterns or any(matches(row.name, pattern) for pattern in options.patterns))
    ]
    sentence = summary_of_cpu_kernels(rows) if options.on_cpu and rows else ""
    if options.on_cpu:
        rows = [row for row in rows if row.route in ON_CPU]
    if not rows and (options.patterns or not sentence):
        problem = "none of these operators runs the CPU's kernel" if sentence else "no such operator"
        print(f"torch-openreg ops: {problem}", file=sys.stderr)
        return 1
    if options.json:
        listed = [] if options.totals else [row._asdict() for row in rows]
        print(json.dumps({"totals": totals(rows), "operators": listed}, indent=2))
    elif options.html:
        print(page(rows))
    elif sys.stdout.isatty():
        show_rich(rows, options.totals)
    else:
        show_plain(rows, options.totals)
    if sentence and not (options.json or options.html):
        print(sentence)
    return 0
