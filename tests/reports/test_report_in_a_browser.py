"""The report as people see it: on a desk, on a telephone, in the dark, on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from zoommil.reports.page import write_report, write_slide_reports

pytestmark = pytest.mark.browser

LONG = "a_slide_with_a_name_as_long_as_those_of_the_cancer_genome_atlas-01Z-00-DX1.C6E2F4A1"
WIDER = """() => [...document.querySelectorAll('body *')].filter(one => {
    const box = one.getBoundingClientRect();
    if (box.right <= innerWidth + 1 || one.closest('.wide, svg')) return false;
    return true;
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture
def paths(answers, cohort, trained, slide_path, tmp_path) -> list[Path]:
    """A page of many slides, one of them with a long name, and a page of one."""
    many = [*answers, replace(answers[0], slide_id=LONG, warnings=("read from " + "x" * 200,))]
    given = {"cohort": cohort, "artefact": trained, "truth": str(slide_path.parent)}
    page = write_report(tmp_path / "page.html", many, rivals={"other": answers}, **given)
    return [page, *write_slide_reports(tmp_path, many, only=["lesions"], **given)]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (390, "light"), (320, "dark"), (800, "dark")]
)
def test_nothing_overflows_and_nothing_is_asked_for(browser, paths, width, scheme):
    size = {"width": width, "height": 844}
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    tab = context.new_page()
    said, asked = [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    for path in paths:
        tab.goto(path.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(WIDER) == []
        broken = "[...document.images].filter(one => !one.naturalWidth).length"
        assert tab.evaluate(broken) == 0
        assert tab.evaluate("document.images.length") > 0
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, paths, scheme):
    """Every line of text has the contrast that WCAG's AA asks for."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(paths[0].as_uri())
    assert tab.evaluate(FAINT) == []
    context.close()


def test_it_prints(browser, paths):
    tab = browser.new_page()
    tab.goto(paths[0].as_uri())
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 688, "height": 1000})  # what A4 leaves between its margins
    assert tab.evaluate("document.documentElement.scrollWidth") <= 688
    data = tab.pdf(format="A4")
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") <= 6
    tab.close()


FAINT = """() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const painter = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => {
    painter.clearRect(0, 0, 1, 1); painter.fillStyle = colour; painter.fillRect(0, 0, 1, 1);
    return painter.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const one = node.parentElement;
    if (!node.data.trim() || one.closest('svg, .scale') || !one.getClientRects().length) continue;
    const style = getComputedStyle(one);
    const [a, b] = [light(rgb(style.color)), light(ground(one))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5))
      faint.push([one.className, node.data.trim().slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return faint;
}"""
