"""The pages in a real browser: what is seen, clicked, typed; nothing complains, nothing leaks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import psutil
import pytest
from browsing import NARROW, Visit, chromium, visit
from viewing import (
    TAMPERED,
    Server,
    ask,
    is_painted,
    is_within_a_pixel,
    keys_of,
    polygon_mask,
    viewer,
)

from zoommil import open_slide
from zoommil.reports.colours import colours_of
from zoommil.reports.values import values_of
from zoommil.viewer.tiles import STAGE
from zoommil.viewer.world import TileWorld

pytestmark = pytest.mark.browser

NAMES = {"alpha", "beta", TAMPERED, "broken", "delta", "none"}


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests of this file."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(shown, browser) -> Iterator[Server]:
    """The viewer with a model to predict with."""
    options = ("--weights", "random:0", "--precision", "fp32", "--runtime", "torch")
    with viewer(shown.predictions, shown.slides, "--artefact", shown.artefact, *options) as found:
        yield found


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    """Where the screenshots go."""
    return tmp_path_factory.mktemp("screenshots")


@pytest.fixture
def window(shown, browser, server, shots) -> Iterator[Visit]:
    """A wide window; at the end nothing went wrong in it and nothing was asked of others."""
    with visit(browser, server, shots) as found:
        found.unreadable = keys_of(shown)["none"]
        yield found
        check_clean(found)


def check_clean(window: Visit, *allowed: str) -> None:
    """No console error, no warning, no refused request but the allowed; no other host.

    The table shows a file that is no slide: its thumbnail is refused, and the browser says so once.
    """
    expected = (f"422: /thumbnails/{window.unreadable}.jpg", *allowed)
    told = "error: Failed to load resource: the server responded with a status of 422"
    left = [one for one in window.problems if not one.startswith((*expected, told))]
    assert left == []
    refused = [one for one in window.problems if one.startswith(expected)]
    assert len(refused) >= sum(one.startswith(told) for one in window.problems)
    assert window.hosts == {"127.0.0.1"}
    assert window.server.process.poll() is None


def world_of(shown, name: str) -> TileWorld:
    with open_slide(shown.slides / name) as slide:
        return TileWorld.of_slide(slide)


def middle_of(box) -> np.ndarray:
    return np.asarray(box[:2]) + np.asarray(box[2:]) / 2


def test_the_table_is_sorted_filtered_and_opened(shown, window):
    window.open_cohort()
    page = window.page
    assert set(window.names()) == NAMES  # one name is hostile; it is only a text
    first = window.names()
    page.get_by_role("button", name="Probability").click()
    page.wait_for_selector("th[aria-sort=ascending]")
    values = {name: one.probabilities[one.label] for name, one in shown.answers.items()}
    known, falling = (
        sorted(values, key=values.__getitem__, reverse=down) for down in (False, True)
    )
    assert [name for name in window.names() if name in values] == known
    assert set(window.names()[3:]) == NAMES - set(values)  # what is not known comes last
    page.get_by_role("button", name="Probability").click()
    page.wait_for_selector("th[aria-sort=descending]")
    assert window.names()[:3] == falling
    page.reload()
    page.wait_for_selector("th[aria-sort=descending]")
    assert window.names()[:3] == falling
    page.get_by_role("button", name="Probability").click()
    window.wait_for_names(first)

    page.get_by_label("Search").fill("case 1")
    window.wait_for_names(["beta"])
    window.eventually(lambda: "text=case+1" in page.url, "the filter in the address")
    page.get_by_label("Search").fill("no such thing")
    page.get_by_text("No slide fits the filter.").wait_for()
    page.get_by_label("Search").fill("")
    page.get_by_label("Which slides").click()
    page.get_by_role("option", name="Prediction differs from label").click()
    window.wait_for_names(["beta"])
    figures = page.locator(".zm-figures").inner_text()
    assert "3 of 6" in figures
    assert "1 of 2" in figures
    assert window.shot("table-filtered").std() > 5
    page.locator(".zm-table-row").first.click()
    window.see_slide()
    assert page.locator(".zm-title").inner_text() == "beta"
    assert page.locator(".zm-place").inner_text() == "1 of 1"  # the filter goes along


def test_a_click_on_a_box_flies_there(shown, window):
    window.open_slide(keys_of(shown)["alpha"])
    step = shown.answers["alpha"].steps[1]
    chosen = np.isin(step.rows, step.selected)
    box = step.boxes[chosen][0]
    world = world_of(shown, "alpha.svs")
    before = window.zoom()
    x, y = window.place_of(tuple(world.to_latlng(middle_of(box))))
    window.page.mouse.click(x, y)
    window.eventually(lambda: window.zoom() > before + 0.5, "the flight")
    window.be_still()
    left, top = window.place_of(tuple(world.to_latlng(box[:2])))
    right, bottom = window.place_of(tuple(world.to_latlng(box[:2] + box[2:])))
    stage = window.page.locator(".zm-map").bounding_box()
    assert stage is not None
    assert stage["x"] <= left < right <= stage["x"] + stage["width"]
    assert stage["y"] <= top < bottom <= stage["y"] + stage["height"]
    assert bottom - top > 0.35 * stage["height"]
    said = window.page.locator(".zm-current").inner_text()
    attention = float(step.attention[chosen][0])
    assert f"2.5×: attention {attention:.4f}" in said
    pixels = window.shot("flown-to-a-patch")
    edge = pixels[round(top) - 1 : round(top) + 2, round(left) + 20 : round(right) - 20]
    assert (edge.min(axis=2).max(axis=0) > 225).mean() > 0.9  # the white outline


def test_the_overlay_at_two_opacities_and_where_it_lies(shown, window):
    """On screen a patch is its colour to the pixel, and the rest of the slide is untouched."""
    window.open_slide(keys_of(shown)["beta"])
    slider = window.page.locator(".q-slider [tabindex='0']")
    assert window.page.get_by_role("slider", name="Opacity of the overlay").count() == 1
    pictures = {}
    for percent, key in ((0, "["), (100, "]")):
        for _ in range(10):
            window.page.keyboard.press(key)
        window.page.get_by_text(f"{percent}%", exact=True).first.wait_for()
        window.page.wait_for_timeout(300)
        pictures[percent] = window.shot(f"overlay-{percent}", bare=True).astype(int)
    slider.focus()
    for _ in range(12):
        window.page.keyboard.press("ArrowLeft")
    window.page.get_by_text("40%", exact=True).first.wait_for()
    window.page.wait_for_timeout(300)
    pictures[40] = window.shot("overlay-40", bare=True).astype(int)
    step = shown.answers["beta"].steps[-1]
    colours = colours_of(values_of(step, "attention", "rank"))
    rows, columns = np.nonzero((np.abs(pictures[0] - STAGE) > 8).any(axis=2))
    left, top, scale = columns.min(), rows.min(), (columns.max() + 1 - columns.min()) / 2048
    assert scale == pytest.approx(0.5, abs=0.002)
    covered = np.zeros(pictures[0].shape[:2], bool)
    for box, colour in zip(step.boxes, colours, strict=True):
        x, y = (box[:2] - (700, 900)) * scale + (left, top)
        side = box[2] * scale
        inner = (slice(round(y + 1), round(y + side - 1)), slice(round(x + 1), round(x + side - 1)))
        covered[round(y - 1) : round(y + side + 1), round(x - 1) : round(x + side + 1)] = True
        assert np.abs(pictures[100][inner] - colour).max() <= 3
        mixed = 0.6 * pictures[0][inner] + 0.4 * np.asarray(colour, float)
        assert np.abs(pictures[40][inner] - mixed).max() <= 6
    assert 0.05 < covered.mean() < 0.9
    assert np.array_equal(pictures[0][~covered], pictures[100][~covered])


def test_what_is_on_screen_lies_where_the_lesions_are(shown, window):
    window.open_slide(keys_of(shown)["beta"])
    window.page.keyboard.press("o")
    window.page.get_by_text("0%", exact=True).first.wait_for()
    window.page.wait_for_timeout(300)
    pixels = window.shot("lesions", bare=True)
    rows, columns = np.nonzero((np.abs(pixels.astype(int) - STAGE) > 8).any(axis=2))
    left, top, scale = columns.min(), rows.min(), (columns.max() + 1 - columns.min()) / 2048
    places = [(one - (700, 900)) * scale + (left, top) for one in shown.lesions]
    truth = polygon_mask(places, pixels.shape[:2])
    assert truth.mean() > 0.05
    assert is_within_a_pixel(is_painted(pixels), truth)


def test_every_step_has_its_overlay_and_its_top_patches(shown, window):
    window.open_slide(keys_of(shown)["alpha"])
    page = window.page
    for position, step in enumerate(shown.answers["alpha"].steps):
        page.keyboard.press(str(position + 1))
        page.wait_for_selector(f".zm-step:nth-child({position + 1})[aria-pressed=true]")
        cells = (np.ptp(step.boxes[:, :2], axis=0) / step.boxes[0, 2:] + 1).round().astype(int)
        page.wait_for_function(
            "([width, height]) => { const one = document.querySelector('img.zm-overlay'); "
            "return one?.naturalWidth === width && one?.naturalHeight === height }",
            arg=cells.tolist(),
        )
        best = np.sort(step.attention)[::-1][:12]
        page.wait_for_function(
            "number => { const all = [...document.querySelectorAll('.zm-patch img')]; "
            "return all.length === number && all.every((one) => (one.loading = 'eager') "
            "&& one.complete && one.naturalWidth > 0) }",
            arg=len(best),
        )
        said = page.locator(".zm-patch span").all_inner_texts()
        assert said == [f"{value:.3f}" for value in best]
        window.shot(f"step-{position + 1}")
    before = window.zoom()
    page.locator(".zm-patch").nth(2).click()
    window.eventually(lambda: window.zoom() > before + 1, "the flight to a top patch")
    window.be_still()
    order = np.argsort(-step.attention, kind="stable")
    wanted = world_of(shown, "alpha.svs").to_latlng(middle_of(step.boxes[order[2]]))
    assert window.middle() == pytest.approx(tuple(wanted), abs=0.5)


def test_a_live_prediction_arrives_step_by_step(shown, window):
    window.open_slide(keys_of(shown)["delta"])
    page = window.page
    page.get_by_text("Not predicted yet.").wait_for()
    page.evaluate(
        """() => {
            window.zm_seen = [];
            const look = () => {
                const steps = document.querySelectorAll('.zm-step').length;
                const said = document.querySelector('.zm-eyebrow')?.innerText ?? '';
                const now = steps + ' ' + said;
                if (window.zm_seen.at(-1) !== now) window.zm_seen.push(now);
            };
            new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
        }"""
    )
    page.get_by_role("button", name="Predict now").click()
    page.get_by_text("Loading the model").wait_for()
    page.wait_for_selector(".zm-step:nth-child(1)")
    window.shot("live-first-step")
    page.get_by_text("Predicted now; not written to a file.").wait_for()
    page.wait_for_selector(".zm-step:nth-child(3)")
    page.wait_for_selector("img.zm-overlay")
    window.be_still()
    window.shot("live-done")
    seen = [one for one in page.evaluate("window.zm_seen") if one.split(" ", 1)[1]]
    steps = [int(one.split()[0]) for one in seen]
    assert [one for one in seen if one.endswith("So far")]
    assert {1, 2, 3} <= set(steps)
    assert all(later - now in (0, 1) or 0 in (now, later) for now, later in pairwise(steps))
    assert seen[-1] == "3 Predicted"
    alpha = shown.answers["alpha"]  # the same pixels under another name
    assert page.locator(".zm-predicted").inner_text() == alpha.label
    shown_values = page.locator(".zm-bars .zm-number").all_inner_texts()
    assert shown_values == [f"{value:.3f}" for value in alpha.probabilities.values()]
    window.open_cohort()
    row = page.locator(".zm-table-row", has_text="delta")
    assert alpha.label in row.inner_text()


def test_the_keyboard_alone_is_enough(shown, window):
    window.open_cohort()
    page, press = window.page, window.page.keyboard.press
    press("/")
    page.wait_for_function("document.activeElement.tagName === 'INPUT'")
    page.keyboard.type("a")
    window.wait_for_names([name for name in window.names() if "a" in name])
    press("Enter")  # from the search into the rows
    page.wait_for_function("document.activeElement.innerText === 'alpha'")
    press("ArrowDown")
    page.wait_for_function("document.activeElement.innerText === 'beta'")
    press("ArrowUp")
    page.wait_for_function("document.activeElement.innerText === 'alpha'")
    press("Enter")
    window.see_slide()

    whole = window.zoom()
    press("1")
    page.wait_for_selector(".zm-step:nth-child(1)[aria-pressed=true]")
    press("n")
    page.get_by_text("1 of ", exact=False).last.wait_for()
    window.be_still()
    press("p")
    window.be_still()
    press("Escape")
    window.eventually(lambda: window.zoom() == whole, "the whole slide")
    window.be_still()
    for _ in range(12):
        press("Tab")
        if page.evaluate("document.activeElement.classList.contains('zm-map')"):
            break
    assert page.evaluate("document.activeElement.classList.contains('zm-map')")
    press("+")
    window.eventually(lambda: window.zoom() == whole + 1, "zooming in")
    window.be_still()
    before = window.middle()
    press("ArrowRight")
    window.eventually(lambda: window.middle()[1] > before[1], "panning")
    for key, percent in (("]", "50%"), ("[", "40%"), ("o", "0%"), ("o", "40%")):
        press(key)
        page.get_by_text(percent, exact=True).first.wait_for()
    press("?")
    page.get_by_role("dialog").wait_for()
    window.shot("keys")
    press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    for _ in range(30):
        press("Tab")
        if page.evaluate("document.activeElement.innerText === 'Predict now'"):
            break
    assert page.evaluate("document.activeElement.innerText") == "Predict now"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "2px"
    press("j")
    page.wait_for_function("document.querySelector('.zm-title').innerText === 'beta'")
    press("k")
    page.wait_for_function("document.querySelector('.zm-title').innerText === 'alpha'")
    window.see_slide()
    press("b")
    page.wait_for_selector(".zm-open")


def test_narrow_windows_and_both_schemes(shown, browser, server, shots):
    grounds = {}
    for scheme in ("light", "dark"):
        with visit(browser, server, shots, size=NARROW, color_scheme=scheme) as window:
            window.unreadable = keys_of(shown)["none"]
            window.open_cohort()
            check_readable(window)
            window.shot(f"narrow-table-{scheme}")
            ground = "getComputedStyle(document.body).backgroundColor"
            grounds[scheme] = rgb(window.page.evaluate(ground))
            window.open_slide(keys_of(shown)["alpha"])
            check_readable(window)
            window.shot(f"narrow-slide-{scheme}")
            check_clean(window)
    assert min(grounds["light"]) > 200
    assert max(grounds["dark"]) < 60


def check_readable(window: Visit) -> None:
    """Nothing sticks out of the window, and quiet text has the contrast that WCAG AA asks for."""
    page = window.page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text = "getComputedStyle(document.querySelector('.zm-muted')).color"
    quiet = rgb(page.evaluate(text))
    for ground in ("--ground", "--panel"):
        value = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('{ground}')"
        ).strip()
        assert contrast(quiet, tuple(bytes.fromhex(value[1:]))) >= 4.5


def rgb(colour: str) -> tuple[int, ...]:
    """The numbers of ``rgb(1, 2, 3)``."""
    return tuple(int(part) for part in colour[colour.index("(") + 1 : -1].split(","))[:3]


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """The contrast of two colours as WCAG defines it."""

    def luminance(colour: tuple[int, ...]) -> float:
        shares = np.array(colour) / 255
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_slides_that_break_are_said_and_the_rest_goes_on(shown, browser, server, shots):
    keys = keys_of(shown)
    with visit(browser, server, shots) as window:
        page = window.page
        page.goto(f"{server.address}/slide/{keys['none']}")
        page.get_by_text("The slide cannot be shown").wait_for()
        said = page.get_by_role("alert").inner_text()
        assert "none.svs" in said
        assert str(shown.slides) not in said
        window.open_slide(keys[TAMPERED])
        assert page.locator(".zm-title").inner_text() == TAMPERED
        page.goto(f"{server.address}/slide/{keys['broken']}")
        page.wait_for_function(
            "[...document.querySelectorAll('img.leaflet-tile')]"
            ".some((one) => one.src.startsWith('data:image/svg'))"
        )
        window.shot("broken")
        page.keyboard.press("+")
        page.get_by_role("button", name="Previous slide").wait_for()
        check_clean(window, "422: /tiles/")


def test_messages_that_no_page_sends_change_nothing(shown, browser, server, shots):
    with visit(browser, server, shots) as window:
        window.open_slide(keys_of(shown)["alpha"])
        window.page.evaluate(
            """() => {
                const client_id = window.clientId;
                const junk = [
                    null, 1e308, -1, 'x'.repeat(10000), [[[]]], '../../etc/passwd',
                    {latlng: {lat: 'a'}}, {latlng: {lat: 1e308, lng: -1e308}}, {zoom: 1e99},
                ];
                for (const args of junk) {
                    for (let id = 0; id < 60; id++) {
                        window.socket.emit('event', {id, client_id, listener_id: 'none', args});
                    }
                    window.socket.emit('javascript_response', args);
                    window.socket.emit('nothing', args);
                }
            }"""
        )
        window.page.keyboard.press("1")
        window.page.wait_for_selector(".zm-step:nth-child(1)[aria-pressed=true]")
    assert ask(server, "/health").status == 200
    assert server.process.poll() is None


def test_ctrl_c_ends_all_with_a_page_open_and_a_prediction_under_way(shown, browser, shots):
    options = ("--weights", "random:0", "--precision", "fp32", "--runtime", "torch")
    with (
        viewer(shown.predictions, shown.slides, "--artefact", shown.artefact, *options) as server,
        visit(browser, server, shots) as window,
    ):
        window.open_slide(keys_of(shown)["delta"])
        window.page.get_by_role("button", name="Predict now").click()
        window.page.get_by_text("Loading the model").wait_for()
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert family
        said = len(server.said)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert not psutil.wait_procs(family, timeout=60)[1]
        assert server.said[said:] == []
