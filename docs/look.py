"""Looks at the pages of the built book in a headless Chromium: `make look`. Screenshots are in build/look.

Each page is shown at the width of a phone and of a desktop, in light and in dark colours. The program checks that
nothing is wider than the window or its box, that a box with wider contents shows that it scrolls, that no word in a
table and no line of a source is broken, that every image and every picture has contents, that no page is too long, that
every file is loaded, and that the console gets no error and no warning. It also looks at the pages of `python -m
torch_openreg ops` and `memory`, and at a report of the conformance kit. The browser is offline. First the pages of
PLANTED, each with one fault, prove that the program finds the faults of LOOKED_FOR and pages that are too long.
Chromium is that of playwright (`playwright install chromium`), or that of the system.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pictures
from playwright.sync_api import Browser, Page, sync_playwright

BOOK = Path(__file__).parents[1] / "build" / "docs"
KIT = Path(__file__).parents[1] / "conformance"
WIDTHS = {"phone": 390, "desktop": 1280}
HEIGHTS = {"phone": 22_000, "desktop": 14_000}
SCHEMES = ("light", "dark")

# Elements that reach beyond the window, except those inside an element that scrolls.
TOO_WIDE = """() => {
  const scrolls = e => e && e !== document.body && (
    ["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...document.querySelectorAll("article *, body > :not(.page) *")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement) && !scrolls(e))
    .map(e => e.tagName.toLowerCase() + "." + e.className + ": " + e.textContent.trim().slice(0, 60)).slice(0, 3);
}"""
# Texts of a picture whose centre is in a box, and that reach beyond the box on the left or on the right.
OUTSIDE_THEIR_BOX = """() => [...document.querySelectorAll("figure.picture svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("rect")].map(e => e.getBoundingClientRect());
  return [...svg.querySelectorAll("text")].filter(word => {
    const w = word.getBoundingClientRect(), x = (w.left + w.right) / 2, y = (w.top + w.bottom) / 2;
    const around = boxes.filter(b => b.left < x && x < b.right && b.top < y && y < b.bottom);
    return around.length && !around.some(b => b.left <= w.left && w.right <= b.right);
  }).map(word => word.textContent);
})"""
# Words of a table that begin on one line and end on the next. A path may break after a slash, a word after a hyphen,
# an argument after its =.
BROKEN_WORDS = """() => {
  const found = [], range = document.createRange();
  for (const cell of document.querySelectorAll("th, td")) {
    if (cell.offsetParent === null) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let text; (text = texts.nextNode());) {
      for (const word of text.data.matchAll(/[^\\s\\/=-]+/g)) {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) found.push(word[0]);
      }
    }
  }
  return found.slice(0, 3);
}"""
# Lines of a source that take more than one line of the page.
WRAPPED_CODE = """() => [...document.querySelectorAll("pre")].filter(e => e.offsetParent !== null).filter(e => {
  const style = getComputedStyle(e), range = document.createRange();
  range.selectNodeContents(e);
  const lines = e.textContent.replace(/\\n$/, "").split("\\n").length;
  return range.getBoundingClientRect().height > (lines + 0.5) * parseFloat(style.lineHeight);
}).map(e => e.textContent.trim().slice(0, 60)).slice(0, 3)"""
# Elements whose contents are wider than the element, if the element cannot be scrolled or does not show that it can.
CUT = """() => [...document.querySelectorAll("article *, .scrolls, pre")].filter(e => {
  const style = getComputedStyle(e);
  return e.clientWidth && e.scrollWidth > e.clientWidth + 1 && style.overflowX !== "visible" && e.clientWidth > 20
    && (style.overflowX === "hidden" || style.maskImage === "none");
}).map(e => e.tagName.toLowerCase() + "." + e.className + ": " + e.textContent.trim().slice(0, 60)).slice(0, 3)"""
# Pictures without contents.
EMPTY_PICTURES = """() => [...document.querySelectorAll("svg[role=img]")].filter(svg =>
  ![...svg.querySelectorAll("rect, polygon, path")].some(e => e.getBoundingClientRect().height > 1)
).map(svg => svg.getAttribute("aria-label"))"""
BROKEN_IMAGES = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"


LOOKED_FOR = {
    "too wide": TOO_WIDE,
    "outside its box": OUTSIDE_THEIR_BOX,
    "breaks within a word": BROKEN_WORDS,
    "wraps": WRAPPED_CODE,
    "cut off without a sign": CUT,
    "empty picture": EMPTY_PICTURES,
    "broken image": BROKEN_IMAGES,
}
# Fault -> the body of a page with this fault.
PLANTED = {
    "too wide": '<article><p style="width: 3000px">words</p></article>',
    "outside its box": '<figure class="picture"><svg width="300" height="60"><rect x="10" y="10" width="70" '
    'height="40"/><text x="12" y="30">a longer name</text></svg></figure>',
    "breaks within a word": '<table><td style="width: 3em; overflow-wrap: anywhere">_segment_reduce_stub</td></table>',
    "wraps": '<pre style="width: 9em; white-space: pre-wrap; line-height: 20px">// a comment that is long</pre>',
    "cut off without a sign": '<article><div style="width: 9em; overflow: auto"><p style="width: 60em">words</p></div>',
    "empty picture": '<svg role="img" aria-label="nothing" width="300" height="60"><text x="9" y="9">a</text></svg>',
    "broken image": '<img src="data:image/png;base64,AAAA">',
    "pixels high": '<p style="height: 30000px">words</p>',
}


def faults(page: Page, address: str, height: int, screenshot: Path | None = None) -> list[str]:
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("requestfailed", lambda request: found.append(f"not loaded: {request.url}"))
    page.goto(address)
    page.wait_for_load_state("load")
    # Two frames: in this time book.js marks the boxes that scroll.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > window:
        found.append(f"{width} pixels wide in a window of {window}")
    if (total := page.evaluate("document.documentElement.scrollHeight")) > height:
        found.append(f"{total} pixels high, more than {height}")
    for fault, script in LOOKED_FOR.items():
        found += [f"{fault}: {what}" for what in page.evaluate(script)]
    if screenshot is not None:
        page.screenshot(path=screenshot, full_page=True)
    return found


def check_that_faults_are_seen(browser: Browser, folder: Path) -> None:
    for fault, body in PLANTED.items():
        file = folder / "planted.html"
        file.write_text(f"<!DOCTYPE html><title>planted</title><body>{body}")
        page = browser.new_page()
        found = faults(page, file.as_uri(), HEIGHTS["desktop"])
        page.close()
        if not any(fault in what for what in found):
            sys.exit(f"a page with the fault {fault!r} passes: {found}")


def main() -> int:
    pages = [file for file in sorted(BOOK.rglob("*.html")) if file.stem not in ("genindex", "search")]
    if not pages:
        sys.exit(f"{BOOK} has no pages: run `make docs` first")
    looks = BOOK.parent / "look"
    looks.mkdir(exist_ok=True)
    operators = looks / "ops.html"
    operators.write_bytes(subprocess.check_output([sys.executable, "-m", "torch_openreg", "ops", "--html"]))
    memory, snapshot = looks / "memory.html", looks / "snapshot.pickle"
    pictures.snapshot_of_a_training(snapshot)
    memory.write_bytes(subprocess.check_output([sys.executable, "-m", "torch_openreg", "memory", snapshot, "--html"]))
    report, kit = looks / "conformance.html", ["--device", "nosuch", "--checks", "tensors/copies/that_*", "--quiet"]
    # No device has the name nosuch. Therefore all checks fail, and the report has long texts of errors.
    subprocess.run([sys.executable, "-m", "torch_conformance", *kit, "--html", report], cwd=KIT)
    titles = {file: file.relative_to(BOOK).with_suffix("").as_posix().replace("/", "-") for file in pages}
    titles |= {operators: "ops", memory: "memory", report: "conformance"}
    failed = 0
    with sync_playwright() as playwright:
        installed = Path(playwright.chromium.executable_path).exists()
        system = None if installed else shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=system)
        check_that_faults_are_seen(browser, looks)
        for name, width in WIDTHS.items():
            for scheme in SCHEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
                )
                folder = looks / f"{name}-{scheme}"
                folder.mkdir(exist_ok=True)
                for file, title in titles.items():
                    page = context.new_page()
                    for fault in faults(page, file.as_uri(), HEIGHTS[name], folder / f"{title}.png"):
                        print(f"{name} {scheme} {title}: {fault}")
                        failed += 1
                    page.close()
                context.close()
        browser.close()
    print(f"{len(titles)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} colour schemes: {failed} faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
