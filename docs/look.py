"""Looks at every page of the built book in a headless Chromium: `make look`, screenshots in build/look.

At the width of a phone and of a desktop, in light and in dark colours: no page is wider than the window, every image is
there, and nothing is written to the console. Chromium is playwright's (`playwright install chromium`), or the system's.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

BOOK = Path(__file__).parents[1] / "build" / "docs"
WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")

# Elements that reach beyond the window, but for those inside one that scrolls by itself.
TOO_WIDE = """() => {
  const scrolls = e => e && e !== document.body && (
    ["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...document.querySelectorAll("article *")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement) && !scrolls(e))
    .map(e => e.tagName.toLowerCase() + "." + e.className + ": " + e.textContent.trim().slice(0, 60)).slice(0, 3);
}"""
# Words of a picture that begin in a box and end outside of it.
OUTSIDE_THEIR_BOX = """() => [...document.querySelectorAll("figure.picture svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("rect")].map(e => e.getBoundingClientRect());
  return [...svg.querySelectorAll("text")].filter(word => {
    const w = word.getBoundingClientRect(), x = (w.left + w.right) / 2, y = (w.top + w.bottom) / 2;
    const around = boxes.filter(b => b.left < x && x < b.right && b.top < y && y < b.bottom);
    return around.length && !around.some(b => b.left <= w.left && w.right <= b.right);
  }).map(word => word.textContent);
})"""
BROKEN_IMAGES = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"


def faults(page: Page, file: Path, screenshot: Path) -> list[str]:
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("requestfailed", lambda request: found.append(f"not loaded: {request.url}"))
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > window:
        found.append(f"{width} pixels wide in a window of {window}")
    found += [f"too wide: {element}" for element in page.evaluate(TOO_WIDE)]
    found += [f"outside its box: {words}" for words in page.evaluate(OUTSIDE_THEIR_BOX)]
    found += [f"broken image: {image}" for image in page.evaluate(BROKEN_IMAGES)]
    page.screenshot(path=screenshot, full_page=True)
    return found


def main() -> int:
    pages = [file for file in sorted(BOOK.rglob("*.html")) if file.stem not in ("genindex", "search")]
    if not pages:
        sys.exit(f"{BOOK} has no pages: run `make docs` first")
    failed = 0
    with sync_playwright() as playwright:
        installed = Path(playwright.chromium.executable_path).exists()
        system = None if installed else shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=system)
        for name, width in WIDTHS.items():
            for scheme in SCHEMES:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
                folder = BOOK.parent / "look" / f"{name}-{scheme}"
                folder.mkdir(parents=True, exist_ok=True)
                for file in pages:
                    title = file.relative_to(BOOK).with_suffix("").as_posix().replace("/", "-")
                    page = context.new_page()
                    for fault in faults(page, file, folder / f"{title}.png"):
                        print(f"{name} {scheme} {title}: {fault}")
                        failed += 1
                    page.close()
                context.close()
        browser.close()
    print(f"{len(pages)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} colour schemes: {failed} faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
