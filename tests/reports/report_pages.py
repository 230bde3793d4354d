"""A page as tests read it: well formed, its text, ids and links."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "input", "link", "hr"}
SOURCES = ("href", "src", "srcset", "xlink:href", "action", "poster", "data")


class Page(HTMLParser):
    """A page that is well formed: every element closed in order, no event handlers.

    Attributes:
        names: of the elements.
        ids, links: in the order of the page.
        tables: the rows of each table, as texts of their cells.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self._words: list[str] = []
        self.names: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(page)
        assert not self._open, f"not closed: {self._open}"

    @property
    def text(self) -> str:
        """Everything a reader sees, blanks joined."""
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"an event handler: {name}={value}"
            if name == "id":
                self.ids.append(value or "")
            if name in SOURCES:
                self.links.append(value or "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} is closed before what it holds"

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self._words.append(data)
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data

    def table(self, *headers: str) -> list[list[str]]:
        """The rows below the headers of the one table that has these."""
        tables = [[[cell.strip() for cell in row] for row in table] for table in self.tables]
        (found,) = [table for table in tables if table and set(headers) <= set(table[0])]
        return found[1:]


def part(page: str, anchor: str) -> str:
    """The text of one section of a page's source."""
    found = re.search(rf'<section id="{anchor}">(.*?)</section>', page, re.DOTALL)
    assert found, f"no part {anchor}"
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", found[1]).split()))
