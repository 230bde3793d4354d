"""Row 15, pages: a viewer comes in; NiceGUI is told which pages there are."""

from __future__ import annotations

from pathlib import Path

from fastapi import Request
from nicegui import ui

from zoommil.viewer.cohort import Order
from zoommil.viewer.cohort_page import CohortPage
from zoommil.viewer.slide_page import SlidePage
from zoommil.viewer.viewer import Viewer

_STYLE = Path(__file__).with_name("style.css")


def make_pages(viewer: Viewer) -> None:
    """The cohort at ``/``, each slide at ``/slide/KEY``."""
    style = _STYLE.read_text(encoding="utf-8")

    def order_of(request: Request) -> Order:
        return Order.of(dict(request.query_params), viewer.library.classes)

    @ui.page("/")
    def cohort(request: Request) -> None:
        ui.add_css(style)
        CohortPage(viewer, order_of(request))

    @ui.page("/slide/{key}")
    def slide(key: str, request: Request) -> None:
        ui.add_css(style)
        entry = viewer.library.entry(key)
        assert entry is not None  # requests for other keys do not come this far
        SlidePage(viewer, entry, order_of(request))
