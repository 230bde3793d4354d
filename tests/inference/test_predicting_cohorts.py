"""Cohorts: lines as slides end, tables at the end, resumed by key, failures by their own name."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from small_cases import CLASSES, spoil_tile

from commands import room_for
from zoommil.bags.cohort import SlideRow
from zoommil.engines.local import LocalEngine
from zoommil.errors import DiskFullError, SlideReadError
from zoommil.extraction import SlideFailure
from zoommil.inference.cohort import LINES_FILE, PredictorChoice, predict_cohort
from zoommil.inference.limits import Limits
from zoommil.inference.prediction import read_predictions
from zoommil.slides.opening import open_slide


@pytest.fixture
def rows(slides) -> list[SlideRow]:
    """Two slides of one case and one of another."""
    cases = ("c1", "c1", "c2")
    return [
        SlideRow(path.stem, path, case, label="low" if case == "c1" else "high")
        for path, case in zip(slides, cases, strict=True)
    ]


@pytest.fixture
def choice(artefact) -> PredictorChoice:
    return PredictorChoice(
        artefact=artefact.folder, weights=("random:0",), runtime="torch", device="cpu"
    )


def run(rows, folder, choice, predictor=None, workers=1):
    """Statuses (or error kinds) by slide, and the canonical lines of the file."""
    ended = {}
    engine = LocalEngine(workers)
    for outcome in predict_cohort(rows, folder, choice, engine, predictor=predictor):
        is_failure = isinstance(outcome, SlideFailure)
        name = outcome.slide_id if is_failure else outcome.row.slide_id
        ended[name] = outcome.kind if is_failure else outcome.status
    return ended, [one.to_json() for one in read_predictions(folder / LINES_FILE)]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_tables_and_lines_of_a_cohort(rows, choice, predictor, tmp_path):
    ended, lines = run(rows, tmp_path, choice, predictor)
    assert ended == dict.fromkeys(("s0", "s1", "s2"), "made")
    assert lines == [predictor.predict(row.path).to_json() for row in rows]
    slides = table(tmp_path / "slides.csv")
    names = [f"prob_{name}" for name in CLASSES]
    assert list(slides[0]) == ["slide_id", "case_id", "label", "pred", *names]
    answers = [predictor.predict(row.path) for row in rows]
    for line, answer in zip(slides, answers, strict=True):
        assert line["pred"] == answer.label
        assert [float(line[name]) for name in names] == list(answer.probabilities.values())
    cases = table(tmp_path / "cases.csv")
    assert [case["case_id"] for case in cases] == ["c1", "c2"]
    first = [sum(a.probabilities[name] for a in answers[:2]) / 2 for name in CLASSES]
    assert [float(cases[0][name]) for name in names] == pytest.approx(first, abs=1e-12)
    assert cases[0]["pred"] == CLASSES[first.index(max(first))]
    total = json.loads((tmp_path / "cost.json").read_text())
    assert total["patches"] == sum(answer.cost.patches for answer in answers)
    assert total["flops"] == sum(answer.cost.flops for answer in answers)
    assert total["exhaustive_flops"] == sum(a.exhaustive_cost.flops for a in answers)


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_lines_for_any_number_of_workers(rows, choice, predictor, tmp_path, workers):
    _, expected = run(rows, tmp_path / "one", choice, predictor)
    _, found = run(rows, tmp_path / "many", choice, workers=workers)
    assert found == expected


def test_what_is_done_is_kept_and_what_changed_is_made_again(rows, choice, predictor, tmp_path):
    _, expected = run(rows[:2], tmp_path, choice, predictor)
    ended, lines = run(rows, tmp_path, choice, predictor)
    assert ended == {"s0": "kept", "s1": "kept", "s2": "made"}
    assert lines[:2] == expected
    changed = choice.model_copy(update={"limits": Limits(budget_patches=30)})
    ended, lines = run(rows[:1], tmp_path, changed, predictor)
    assert ended == {"s0": "made"}
    assert len(lines) == 3  # of other slides nothing was lost
    ended, _ = run([replace(rows[0], mpp=0.9), rows[1]], tmp_path, choice, predictor)
    assert ended == {"s0": "made", "s1": "kept"}


def test_h5_a_line_cut_short_by_a_kill_counts_as_none(rows, choice, predictor, tmp_path):
    _, expected = run(rows, tmp_path, choice, predictor)
    path = tmp_path / LINES_FILE
    content = path.read_bytes()
    path.write_bytes(content[: -len(content) // 6])
    ended, lines = run(rows, tmp_path, choice, predictor)
    assert ended == {"s0": "kept", "s1": "kept", "s2": "made"}
    assert lines == expected


def test_a_full_disk_keeps_every_answer_that_was_given(rows, choice, predictor, tmp_path):
    _, expected = run(rows, tmp_path / "straight", choice, predictor)
    folder = tmp_path / "full"
    run(rows[:1], folder, choice, predictor)
    size = (folder / LINES_FILE).stat().st_size
    with room_for(size + 50), pytest.raises(DiskFullError, match=r"predictions\.jsonl"):
        run(rows, folder, choice, predictor)
    ended, lines = run(rows, folder, choice, predictor)
    assert ended == {"s0": "kept", "s1": "made", "s2": "made"}
    assert lines == expected


@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_the_same_lines_for_any_batch_size_and_a_second_time(
    rows, choice, predictor, tmp_path, batch_size
):
    _, expected = run(rows[:2], tmp_path / "first", choice, predictor)
    changed = choice.model_copy(update={"batch_size": batch_size})
    _, found = run(rows[:2], tmp_path / "again", changed, predictor)
    assert found == expected


def test_lines_are_there_as_soon_as_a_slide_ends(rows, choice, predictor, tmp_path):
    counts = []
    for _ in predict_cohort(rows, tmp_path, choice, LocalEngine(1), predictor=predictor):
        counts.append(len(read_predictions(tmp_path / LINES_FILE)))
    assert counts == [1, 2, 3]


def test_h16_failures_have_their_own_name_and_the_others_go_on(rows, choice, predictor, tmp_path):
    bad = tmp_path / "bad.svs"
    bad.write_text("not a slide")
    more = [
        SlideRow("bad", bad, "c3"),
        rows[0],
        SlideRow("lost", tmp_path / "lost.svs", "c4"),
        SlideRow("nowhere", None, "c5"),
    ]
    failures = [
        one
        for one in predict_cohort(more, tmp_path, choice, LocalEngine(1), predictor=predictor)
        if isinstance(one, SlideFailure)
    ]
    assert [(one.slide_id, one.kind) for one in failures] == [
        ("bad", "SlideError"),
        ("lost", "SlideError"),
        ("nowhere", "CohortError"),
    ]
    assert all("\n" not in one.reason for one in failures)
    assert [line["slide_id"] for line in table(tmp_path / "slides.csv")] == ["s0"]


def tiles_under(boxes, tile_px: int = 256) -> set[tuple[int, int]]:
    """The level-0 tiles (column, row) that boxes touch, a filter margin included."""
    touched = set()
    for x, y, width, height in boxes:
        columns = range(int(max(0, x - 2) // tile_px), int((x + width + 2) // tile_px) + 1)
        rows = range(int(max(0, y - 2) // tile_px), int((y + height + 2) // tile_px) + 1)
        touched |= {(column, row) for column in columns for row in rows}
    return touched


def test_a_slide_that_breaks_half_way_fails_only_when_the_zoom_touches_it(
    predictor, slides, rows, choice, tmp_path
):
    """Tiles of the highest magnification only: at the lower ones everything is sound."""
    answer = predictor.predict(slides[0])
    touched = tiles_under(answer.steps[-1].boxes)
    everything = {(column, row) for column in range(4) for row in range(4)}
    untouched = sorted(everything - touched)
    assert untouched, "the zoom of this test must leave something out"
    beside = Path(shutil.copy(slides[0], tmp_path / "beside.svs"))
    for column, row in untouched:
        spoil_tile(beside, 0, column, row)
    found = predictor.predict(beside)
    assert found.logits == answer.logits
    assert found.provenance["slide"]["fingerprint"] != answer.provenance["slide"]["fingerprint"]

    hit = Path(shutil.copy(slides[0], tmp_path / "hit.svs"))
    with open_slide(slides[0]) as slide:
        assert slide.plan_of(answer.steps[-1].mpp).stored_index == 0
        assert slide.plan_of(answer.steps[-2].mpp).stored_index == 1
    middle = answer.steps[-1].boxes[0]
    spoil_tile(hit, 0, int(middle[0] + middle[2] / 2) // 256, int(middle[1] + 1) // 256)
    with pytest.raises(SlideReadError, match=r"'hit\.svs', level 0"):
        predictor.predict(hit)
    stream = predictor.stream(hit)
    assert [len(next(stream).steps) for _ in range(2)] == [1, 2]  # it broke half-way
    with pytest.raises(SlideReadError):
        next(stream)
    both = [SlideRow("beside", beside, "c"), SlideRow("hit", hit, "c")]
    ended, _ = run(both, tmp_path / "out", choice, predictor)
    assert ended == {"beside": "made", "hit": "SlideReadError"}
