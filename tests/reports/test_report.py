"""The report: one page that stands alone, says what it knows and what it does not."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.reports.page import write_report

VOID = {"meta", "img", "br", "input", "link", "hr"}


class Checked(HTMLParser):
    """A page that is well formed: every element closed in order; its ids, links and sources."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(page)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "an event handler"
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "action", "poster"):
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def cohort(prediction, slide_path) -> Cohort:
    """The slide with its label, and two like it."""
    rows = (
        SlideRow(name, slide_path if name == prediction.slide_id else None, name, label)
        for name, label in ((prediction.slide_id, "high_grade"), ("b", "normal"), ("c", "normal"))
    )
    return Cohort(tuple(rows), ("normal", "high_grade"), "cohort.csv")


@pytest.fixture
def answers(prediction):
    """Three predictions; one is right, and only the first has a slide."""
    sure = replace(prediction, slide_id="b", label="normal")
    sure = replace(sure, probabilities={"normal": 0.8, "high_grade": 0.2})
    return [prediction, sure, replace(prediction, slide_id="c")]


def test_the_page_stands_alone(answers, cohort, tmp_path):
    path = write_report(tmp_path / "report.html", answers, cohort=cohort)
    text = path.read_text(encoding="utf-8")
    page = Checked(text)
    assert not page.names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for link in page.links:
        assert link.startswith(("data:image/jpeg;base64,", "#")), link[:60]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|http-equiv", "", text)
    assert not re.search(r"url\(|@import|&lt;svg|&lt;path", text)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
