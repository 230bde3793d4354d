"""A headless Chromium that looks at the viewer, and what it saw."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from viewing import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WAIT_MS = 180_000
WIDE, NARROW = (1500, 1000), (390, 844)
_MAP = "getElement(Number(document.querySelector('.zm-map').id.slice(1))).map"
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's chromium; the test is skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed; 'make browser' installs it where it can")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """One window that looks at the viewer.

    Attributes:
        page: Playwright's.
        server: what it looks at.
        shots: the folder that screenshots go to.
        problems: what the browser complained about: errors, warnings, refused requests.
        hosts: that anything was asked of.
        unreadable: the key of a file that is no slide, whose thumbnail is refused.
    """

    page: Page
    server: Server
    shots: Path
    problems: list[str] = field(default_factory=list)
    hosts: set[str | None] = field(default_factory=set)
    unreadable: str = ""

    def listen(self) -> None:
        """Take note of everything that goes wrong from now on."""

        def said(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.problems.append(f"{message.type}: {message.text}")

        def answered(response: Any) -> None:
            if response.status >= 400:
                self.problems.append(f"{response.status}: {urlsplit(response.url).path}")

        def asked(request: Any) -> None:
            if urlsplit(request.url).scheme not in ("data", "blob"):
                self.hosts.add(urlsplit(request.url).hostname)

        self.page.on("console", said)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("response", answered)
        self.page.on("request", asked)

    def open_cohort(self, query: str = "") -> None:
        """Go to the table and wait until it is there."""
        self.page.goto(f"{self.server.address}/{query}")
        self.page.wait_for_selector(".zm-open")
        self.page.wait_for_function("window.socket?.connected")

    def open_slide(self, key: str) -> None:
        """Go to a slide and wait until all of it is seen."""
        self.page.goto(f"{self.server.address}/slide/{key}")
        self.see_slide()

    def see_slide(self) -> None:
        """Wait until the slide's tiles are there and nothing moves."""
        self.page.wait_for_selector(".leaflet-tile-loaded")
        self.be_still()

    def be_still(self) -> None:
        """Wait until the map does not move and every tile that is wanted has come."""
        self.page.wait_for_function(
            f"""() => {{
                const map = {_MAP};
                const now = [map.getZoom(), ...Object.values(map.getCenter())].join();
                const tiles = [...document.querySelectorAll('.zm-tile img.leaflet-tile')];
                const come = tiles.every((one) => one.classList.contains('leaflet-tile-loaded'));
                const is_still = come && now === window.zm_before;
                window.zm_before = now;
                return is_still;
            }}""",
            polling=250,
        )

    def names(self) -> list[str]:
        """The slides of the table from top to bottom."""
        return self.page.locator(".zm-open").all_inner_texts()

    def wait_for_names(self, names: list[str]) -> None:
        """Wait until the table has just these rows."""
        self.page.wait_for_function(
            "names => JSON.stringify([...document.querySelectorAll('.zm-open')]"
            ".map((one) => one.innerText)) === names",
            arg=_json(names),
        )

    def zoom(self) -> float:
        """The map's zoom."""
        return float(self.page.evaluate(f"{_MAP}.getZoom()"))

    def middle(self) -> tuple[float, float]:
        """The map's middle as latitude and longitude."""
        found = self.page.evaluate(f"(({{lat, lng}}) => [lat, lng])({_MAP}.getCenter())")
        return float(found[0]), float(found[1])

    def place_of(self, latlng: tuple[float, float]) -> tuple[float, float]:
        """Where a point of the map is in the window."""
        x, y, left, top = self.page.evaluate(
            f"""(point) => {{
                const at = {_MAP}.latLngToContainerPoint(point);
                const box = document.querySelector('.zm-map').getBoundingClientRect();
                return [at.x, at.y, box.left, box.top];
            }}""",
            list(latlng),
        )
        return x + left, y + top

    def shot(self, name: str, *, bare: bool = False) -> np.ndarray:
        """A screenshot, kept as a file too.

        Args:
            name: of the file.
            bare: the slide and its overlay only, without lines and cards over them.
        """
        import cv2

        style = ".zm-controls, .zm-legend, .zm-scale, .leaflet-overlay-pane svg { display: none }"
        place = self.page.locator(".zm-stage") if bare else self.page
        path = self.shots / f"{name}.png"
        place.screenshot(path=path, style=style if bare else "")
        pixels = cv2.imread(str(path), cv2.IMREAD_COLOR)
        assert pixels is not None
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)

    def eventually(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        for _ in range(WAIT_MS // 100):
            if is_so():
                return
            self.page.wait_for_timeout(100)
        pytest.fail(f"never came: {what}")


@contextlib.contextmanager
def visit(browser: Browser, server: Server, shots: Path, **options: Any) -> Iterator[Visit]:
    """A window of its own, closed at the end; by default a wide one in the dark."""
    width, height = options.pop("size", WIDE)
    settings = {"viewport": {"width": width, "height": height}, "color_scheme": "dark", **options}
    context = browser.new_context(**settings)
    context.set_default_timeout(WAIT_MS)
    found = Visit(context.new_page(), server, shots)
    found.listen()
    yield found
    context.close()


def _json(names: list[str]) -> str:
    import json

    return json.dumps(names, separators=(",", ":"))
