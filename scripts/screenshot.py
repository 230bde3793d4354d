"""Photograph a slide of the demo's report for the README: docs/images/heatmap.png.

    make demo && python scripts/screenshot.py zoommil-demo/report.html

Needs Debian's chromium, as the tests marked ``browser`` do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1280, 760


def main() -> int:
    """Write the picture from the report that is named."""
    from playwright.sync_api import sync_playwright

    report = Path(sys.argv[1]).resolve()
    with sync_playwright() as driver:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        browser = driver.chromium.launch(**options)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.as_uri())
        _slide(page).screenshot(path=FOLDER / "heatmap.png")
        browser.close()
    return 0


def _slide(page):
    """A slide with a lesion that was answered rightly; the first of all where there is none."""
    right = page.locator("article.slide").filter(has_text="✓").filter(has_not_text="normal ✓")
    return right.first if right.count() else page.locator("article.slide").first


if __name__ == "__main__":
    sys.exit(main())
