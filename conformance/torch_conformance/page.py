"""Makes the report as one HTML page, which needs no network, no server and no other file."""

from __future__ import annotations

from html import escape
from typing import Any

from .registry import BAD
from .report import chapter_text, counted

_STYLE = """
:root { color-scheme: light dark; --soft: color-mix(in srgb, currentColor 14%, transparent);
  --good: light-dark(#1a7f37, #3fb950); --bad: light-dark(#c62828, #ff7b72); --grey: light-dark(#6b7280, #9aa4b2); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } .facts { color: var(--grey); margin-top: .2rem; }
.levels { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .8rem; margin: 1.5rem 0; }
.level { border: 1px solid var(--soft); border-radius: 8px; padding: .7rem .9rem; color: inherit;
  text-decoration: none; }
.level b { display: block; } .level .score { font-size: 1.7rem; font-variant-numeric: tabular-nums; }
.bar { height: 6px; border-radius: 3px; background: var(--soft); overflow: hidden; display: flex; margin: .3rem 0; }
.bar .good { background: var(--good); } .bar .bad { background: var(--bad); }
.count { color: var(--grey); font-size: .85rem; }
details { border-bottom: 1px solid var(--soft); padding: .25rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.passed, .noted { color: var(--good); } .failed, .crashed, .hung { color: var(--bad); } .not, .needs { color: var(--grey); }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0;
  overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0 .5rem 1rem; }
dt { color: var(--grey); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--soft); border-radius: 6px; padding: .7rem; overflow-x: auto;
  font: 13px/1.45 ui-monospace, monospace; }
/* A side with hidden text fades out. */
[data-more~="right"] { mask-image: linear-gradient(to left, transparent, #000 3rem); }
[data-more~="left"] { mask-image: linear-gradient(to right, transparent, #000 3rem); }
[data-more="left right"] {
  mask-image: linear-gradient(to right, transparent, #000 3rem, #000 calc(100% - 3rem), transparent);
}
label { margin-right: 1rem; white-space: nowrap; }
body:not(.show-passed) details.row.passed-row, body:not(.show-not) details.row.not-row { display: none; }
body:not(.show-needs) details.row.needs-row { display: none; }
"""
_SCRIPT = """
for (const box of document.querySelectorAll("input[data-show]")) {
  const apply = () => document.body.classList.toggle("show-" + box.dataset.show, box.checked);
  box.addEventListener("change", apply); apply();
}
for (const element of document.querySelectorAll("pre")) {
  const mark = () => {
    const sides = [];
    if (element.scrollLeft > 1) sides.push("left");
    if (element.scrollLeft + element.clientWidth < element.scrollWidth - 1) sides.push("right");
    element.dataset.more = sides.join(" ");
  };
  element.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(element);
}
"""


def _level(level: dict[str, Any]) -> str:
    offered, good = level["offered"], level["passed"] + level["noted"]
    bad = sum(level[result] for result in BAD)
    score = "&ndash;" if level["score"] is None else f"{level['score']:g} %"
    widths = [100 * part / offered if offered else 0 for part in (good, bad)]
    counts = f"{good} of {offered} passed"
    counts += "".join(
        f", {level[n]} {n.replace('needs', 'need')}" for n in ("needs operator", "not offered") if level[n]
    )
    return (
        f'<a class="level" href="#level{level["level"]}"><b>{level["level"]} {escape(level["title"])}</b>'
        f'<span class="score">{score}</span><div class="bar"><div class="good" style="width:{widths[0]:.1f}%"></div>'
        f'<div class="bad" style="width:{widths[1]:.1f}%"></div></div><span class="count">{counts}</span></a>'
    )


def _row(check: dict[str, Any]) -> str:
    result = check["result"]
    kind = result.split()[0]
    rows = [(name, check[name]) for name in ("proves", "why", "issue", "defined", "chapter") if check[name]]
    rows.append(("time", f"{check.get('seconds', 0):g} s"))
    if check["detail"] and result not in BAD:
        rows.insert(0, ("found", check["detail"]))
    if check.get("at"):
        rows.insert(0, ("at", check["at"]))
    facts = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    more = ""
    if result in BAD:
        found = check.get("traceback") or check["detail"]
        more = f"<pre>{escape(found.strip())}</pre>Ready to run:<pre>{escape(check['script'])}</pre>"
    return (
        f'<details class="row {kind}-row"{" open" if result in BAD else ""}><summary>'
        f'<span class="{kind}">{result}</span> {escape(check["name"].split("/", 1)[1])}</summary>'
        f"<dl>{facts}</dl>{more}</details>"
    )


def _work_list(operators: list[dict[str, Any]]) -> str:
    """The table of missing operators."""
    rows = "".join(
        f"<tr><td>{escape(each['operator'])}</td><td>{len(each['checks'])}</td>"
        f"<td>{escape(', '.join(each['write']))}</td><td>{escape(', '.join(each['derived']))}</td></tr>"
        for each in operators
    )
    head = (
        "<tr><th>operator</th><th>checks that wait</th><th>forms to write</th><th>forms that PyTorch derives</th></tr>"
    )
    return f"<h2>Missing operators</h2><table>{head}{rows}</table>" if operators else ""


def _chapters(summary: dict[str, Any]) -> str:
    """The chapters that the bad checks name, as far as the kit has them."""
    names = dict.fromkeys(check["chapter"] for check in summary["checks"] if check["result"] in BAD)
    texts = [(name, text) for name in names if (text := chapter_text(name))]
    return "".join(
        f'<details id="chapter-{name}"><summary>Chapter {name}</summary><pre>{escape(text)}</pre></details>'
        for name, text in texts
    )


def page(summary: dict[str, Any]) -> str:
    """The whole page. If a level has more than 2,000 checks, only its bad checks are listed."""
    parts = []
    for level in summary["levels"]:
        here = [check for check in summary["checks"] if check["level"] == level["level"]]
        if not here:
            continue
        listed = [c for c in here if c["result"] in BAD or len(here) <= 2000]
        hidden = len(here) - len(listed)
        note = f"<p>{hidden} checks that are not bad are not listed.</p>" if hidden else ""
        parts.append(f'<h2 id="level{level["level"]}">{level["level"]} {escape(level["title"])}</h2>{note}')
        parts.append("".join(map(_row, listed)))
    bad = sum(level[result] for level in summary["levels"] for result in BAD)
    title = f"Conformance of {summary['device']}"
    facts = f"torch {summary['torch']}, Python {summary['python']}, kit {summary['kit']}, {summary['date']}"
    facts += f", {summary['seconds']:g} s"
    verdict = f'<p class="{"failed" if bad else "passed"}"><b>{counted(bad)} bad.</b></p>'
    body = (
        f'<p class="facts">{escape(facts)}</p>{verdict}'
        f'<div class="levels">{"".join(_level(level) for level in summary["levels"] if level["checks"])}</div>'
        '<p>Bad checks are always shown. <label><input type="checkbox" data-show="passed"> passed</label>'
        '<label><input type="checkbox" data-show="needs"> needs operator</label>'
        '<label><input type="checkbox" data-show="not"> not offered</label></p>'
        f"{_work_list(summary['operators'])}{''.join(parts)}{_chapters(summary)}"
    )
    return document(title, body)


def document(title: str, body: str) -> str:
    """A page with this title and body, which needs no network."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"{body}<script>{_SCRIPT}</script></body></html>\n"
    )
