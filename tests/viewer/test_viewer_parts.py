"""Library, shelf, table, overlay: what may be shown, in which order, and where it lies."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from viewing import TAMPERED

from zoommil.errors import CohortError, PredictionError, SlideError, UnknownNameError
from zoommil.viewer.cohort import Order, state_of
from zoommil.viewer.endpoints import told
from zoommil.viewer.library import Entry, Library, StoredPredictions, Summary
from zoommil.viewer.overlay import overlay_of
from zoommil.viewer.shelf import SlideShelf
from zoommil.viewer.tiles import PictureCache
from zoommil.viewer.world import TileWorld


@pytest.fixture
def library(shown) -> Library:
    return Library(StoredPredictions(shown.predictions), shown.slides)


def by_name(library: Library) -> dict[str, Entry]:
    return {entry.slide_id: entry for entry in library.entries.values()}


def test_only_what_lies_in_the_folder_is_there(shown, library):
    entries = by_name(library)
    assert set(entries) == {"alpha", "beta", TAMPERED, "broken", "delta", "none"}
    assert all(entry.path.is_relative_to(shown.slides.resolve()) for entry in entries.values())
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in library.entries)
    assert state_of(entries["alpha"]) == "agrees"
    assert state_of(entries["beta"]) == "differs"
    assert state_of(entries[TAMPERED]) == "unlabelled"
    assert state_of(entries["delta"]) == "not predicted"


def test_a_file_that_becomes_a_link_to_the_outside_is_not_opened(shown, library, tmp_path):
    folder = tmp_path / "slides"
    folder.mkdir()
    (folder / "alpha.svs").write_bytes((shown.slides / "alpha.svs").read_bytes())
    moved = Library(StoredPredictions(shown.predictions), folder)
    shelf = SlideShelf(moved)
    key = by_name(moved)["alpha"].key
    (folder / "alpha.svs").unlink()
    (folder / "alpha.svs").symlink_to(shown.outside)
    with pytest.raises(SlideError, match="not in the slides folder any more"), shelf.slide(key):
        pass
    moved.refresh()
    assert by_name(moved)["alpha"].path is None


def test_predictions_are_read_again_as_they_were_written(shown, library):
    for key, entry in library.entries.items():
        found = library.prediction(key)
        if entry.summary is None:
            assert found is None
        else:
            assert found.to_json() == shown.answers[entry.slide_id].to_json()


def test_a_line_that_was_cut_short_is_left_out(shown, tmp_path, caplog):
    text = (shown.predictions / "predictions.jsonl").read_text()
    path = tmp_path / "some.jsonl"
    path.write_text(text[: len(text) - 200])
    with caplog.at_level("WARNING", "zoommil"):
        stored = StoredPredictions(path)
    assert len(stored.summaries) == len(shown.answers) - 1
    assert "1 lines are no predictions" in caplog.text


def test_one_prediction_over_many_lines(shown, tmp_path):
    import json

    path = tmp_path / "one.json"
    path.write_text(json.dumps(json.loads(shown.answers["alpha"].to_json()), indent=2))
    assert StoredPredictions(path).prediction("alpha").label == shown.answers["alpha"].label


@pytest.mark.parametrize("text", [None, "", "{}\n", "[1]\n"])
def test_what_holds_no_prediction_is_said(tmp_path, text):
    path = tmp_path / "predictions.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PredictionError, match="zoommil predict --out"):
        StoredPredictions(path)


def test_a_missing_folder_is_said(shown):
    with pytest.raises(CohortError, match="does not exist"):
        Library(StoredPredictions(shown.predictions), shown.slides / "nowhere")


def test_the_shelf_keeps_few_slides_open_and_none_that_fail(shown, library):
    shelf = SlideShelf(library, max_open=1)
    entries = by_name(library)
    with shelf.slide(entries["alpha"].key) as alpha, shelf.slide(entries["beta"].key):
        assert shelf.num_open == 2  # both are in use
        with shelf.slide(entries["alpha"].key) as again:
            assert again is alpha
    assert shelf.num_open == 1
    with pytest.raises(SlideError), shelf.slide(entries["none"].key):
        pass
    with pytest.raises(UnknownNameError), shelf.slide("../../etc/passwd"):
        pass
    assert shelf.num_open == 1
    shelf.close()
    assert shelf.num_open == 0


def test_pictures_are_kept_up_to_a_bound():
    cache = PictureCache(1000)
    for number in range(30):
        cache.put(number, b"x" * 100)
        assert cache.get(0) is not None  # what is asked for stays
    assert cache.held_bytes <= 1000
    assert cache.get(5) is None
    cache.put(0, b"y" * 50)
    assert cache.get(0) == b"y" * 50
    cache.put("large", b"z" * 2000)
    assert cache.held_bytes <= 1000


def entry(name: str, label=None, predicted=None, probability=0.5, seconds=None) -> Entry:
    summary = None
    if predicted is not None:
        other = "b" if predicted == "a" else "a"
        values = {predicted: probability, other: 1 - probability}
        summary = Summary(predicted, values, 10, 100, 5, 50, seconds)
    return Entry(key=name, slide_id=name, label=label, summary=summary)


ENTRIES = [
    entry("s3", "a", "a", 0.9, 3.0),
    entry("s1", "b", "a", 0.6, 1.0),
    entry("s10", None, "b", 0.7),
    entry("s2", "a"),
]


def names(order: Order) -> list[str]:
    return [one.slide_id for one in order.applied(ENTRIES)]


def test_the_table_is_sorted_and_what_is_not_known_comes_last():
    assert names(Order()) == ["s3", "s1", "s10", "s2"]
    assert names(Order(sort="probability")) == ["s1", "s10", "s3", "s2"]
    assert names(Order(sort="probability", is_down=True)) == ["s3", "s10", "s1", "s2"]
    assert names(Order(sort="seconds", is_down=True)) == ["s3", "s1", "s10", "s2"]
    assert names(Order(sort="label")) == ["s3", "s2", "s1", "s10"]


def test_the_table_is_filtered():
    assert names(Order(show="agrees")) == ["s3"]
    assert names(Order(show="differs")) == ["s1"]
    assert names(Order(show="unlabelled")) == ["s10"]
    assert names(Order(show="not predicted")) == ["s2"]
    assert names(Order(predicted="a")) == ["s3", "s1"]
    assert names(Order(text="S1")) == ["s1", "s10"]


def test_orders_survive_the_address_and_nonsense_means_nothing():
    order = Order(sort="label", is_down=True, text="a&b=c", show="differs", predicted="a")
    from urllib.parse import parse_qsl

    assert Order.of(dict(parse_qsl(order.query()[1:])), ["a", "b"]) == order
    hostile = {"sort": "__class__", "show": "../..", "predicted": "zzz", "text": "x" * 10_000}
    assert Order.of(hostile, ["a"]) == Order(text="x" * 100)
    assert Order().query() == ""


def test_errors_are_told_without_folders(shown):
    error = SlideError(f"'{shown.slides}/sub folder/a.svs' does not exist. Check the path.")
    assert told(error) == "'a.svs' does not exist. Check the path."
    assert "/" not in told(OSError(2, "No such file", "/secret/place/a.svs"))


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("scale", ["rank", "raw"])
def test_a_pixel_of_the_overlay_is_a_patch_at_its_exact_place(shown, name, scale):
    prediction = shown.answers[name]
    for position, step in enumerate(prediction.steps):
        overlay = overlay_of(prediction, position, "attention", scale)
        height, width = overlay.pixels.shape[:2]
        side = overlay.box[2:] / (width, height)
        assert side == pytest.approx(step.boxes[0, 2:])
        rows, columns = np.nonzero(overlay.pixels[..., 3])
        corners = overlay.box[:2] + np.stack([columns, rows], axis=1) * side
        order = np.lexsort((step.boxes[:, 0], step.boxes[:, 1]))
        assert corners == pytest.approx(step.boxes[order, :2], abs=1e-6)
        place = step.boxes[int(step.attention.argmax())]
        column, row = np.rint((place[:2] - overlay.box[:2]) / side).astype(int)
        assert overlay.pixels[row, column].tolist() == [253, 231, 37, 255]  # viridis ends here


def test_steps_without_scores_have_no_overlay_of_them(shown):
    assert overlay_of(shown.answers["alpha"], 0, "score") is not None
    assert overlay_of(shown.answers["alpha"], 2, "score") is None


def test_patches_that_lie_on_no_grid_are_said(shown):
    prediction = shown.answers["alpha"]
    step = prediction.steps[2]
    boxes = step.boxes.copy()
    boxes[1] += (30, 0, 0, 0)
    moved = replace(prediction, steps=(replace(step, boxes=boxes),))
    with pytest.raises(PredictionError, match="not lie on one grid"):
        overlay_of(moved, 0)


def test_the_world_of_a_shifted_slide_begins_at_its_bounds(shown, library):
    with SlideShelf(library).slide(by_name(library)["beta"].key) as slide:
        world = TileWorld.of_slide(slide)
        assert slide.bounds == (700, 900, 2048, 1792)
    assert world.corner_of(world.max_zoom, 1, 2) == (700 + 256, 900 + 512)


def test_the_viewer_imports_no_torch():
    import subprocess

    code = (
        "import sys, zoommil.viewer.pages, zoommil.viewer.serving, zoommil.viewer.live; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nicegui_is_imported_by_the_viewer_only():
    import zoommil

    package = Path(zoommil.__file__).parent
    users = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if "import nicegui" in path.read_text() or "from nicegui" in path.read_text()
    }
    assert users == {"viewer"}
