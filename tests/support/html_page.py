"""A reader of the HTML pages that the commands write."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what the page refers to and the cells of its rows."""

    VOID = ("meta", "input")
    REFERS = ("href", "src", "data", "action")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attributes if name in self.REFERS]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data
