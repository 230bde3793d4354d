"""``zoommil evaluate --truth``: a trained model's attention against annotated areas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import shapely

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.store import write_bag

SIDE, ACROSS, NUM_SLIDES = 256, 5, 24


def marked_patch(number: int) -> tuple[int, int]:
    """Row and column of the one patch that carries the class of a slide."""
    return number % ACROSS, (3 * number + 1) % ACROSS


@pytest.fixture(scope="module")
def cohort(tmp_path_factory) -> Path:
    """Bags of 25 patches, one of them marked; their labels; the areas around and beside it."""
    folder = tmp_path_factory.mktemp("marked")
    grid = np.array([(row, column) for row in range(ACROSS) for column in range(ACROSS)])
    step = StepInfo(10, 1.0, 1, SIDE, 0, 0, SIDE, rows_columns=grid)
    generator = np.random.default_rng(0)
    lines = ["slide_id,label"]
    for number in range(NUM_SLIDES):
        slide_id, label = f"s{number}", number % 2
        row, column = marked_patch(number)
        features = generator.normal(size=(len(grid), 16)).astype(np.float32)
        features[row * ACROSS + column, :2] = 6, 6 * (2 * label - 1)
        write_bag(
            Bag(features=(features,), slide_id=slide_id, steps=(step,)),
            folder / "bags" / f"{slide_id}.h5",
        )
        lines.append(f"{slide_id},{('no', 'yes')[label]}")
        write_area(folder / "around" / f"{slide_id}.geojson", row, column)
        write_area(folder / "beside" / f"{slide_id}.geojson", (row + 2) % ACROSS, column)
    (folder / "cohort.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_area(path: Path, row: int, column: int) -> None:
    """The square of one patch, as QuPath writes an annotation."""
    corners = (column * SIDE, row * SIDE, (column + 1) * SIDE, (row + 1) * SIDE)
    geometry = shapely.geometry.mapping(shapely.box(*corners))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": "Feature", "properties": {}, "geometry": geometry}))


@pytest.fixture
def artefact(zoommil, cohort) -> Path:
    """ABMIL, trained to tell the slides apart."""
    out = cohort / "run"
    if not out.exists():
        changes = ["training.epochs=20", "optimiser.lr=0.003", "model.embed_dim=32"]
        words = [word for change in changes for word in ("--set", change)]
        ended = zoommil(
            "train", "abmil", "--cohort", cohort / "cohort.csv", "--bags", cohort / "bags",
            "-o", out, *words,
        )  # fmt: skip
        assert ended.code == 0, ended.errors
    return out / "artefact"


def judged(zoommil, artefact: Path, cohort: Path, truth: str, *words) -> dict:
    ended = zoommil(
        "evaluate", artefact, cohort / "cohort.csv", "--bags", cohort / "bags",
        "--truth", cohort / truth, "--json", *words,
    )  # fmt: skip
    assert ended.code == 0, ended.errors
    return json.loads(ended.output)


def test_attention_points_into_the_annotated_areas(zoommil, artefact, cohort, tmp_path):
    (step,) = judged(zoommil, artefact, cohort, "around", "-o", tmp_path)["localisation"]
    assert step["num_slides"] == NUM_SLIDES
    assert step["pointing"] > 0.9
    assert step["chance"] == pytest.approx(1 / ACROSS**2)
    assert step["top_inside"] > 5 * step["even_inside"]
    assert json.loads((tmp_path / "localisation_all.json").read_text()) == [step]


def test_attention_is_not_found_in_areas_where_nothing_is(zoommil, artefact, cohort):
    (step,) = judged(zoommil, artefact, cohort, "beside")["localisation"]
    assert step["pointing"] < 0.1
    assert step["chance"] == pytest.approx(1 / ACROSS**2)


def test_a_table_shows_chance_beside_the_figure(zoommil, artefact, cohort):
    ended = zoommil(
        "evaluate", artefact, cohort / "cohort.csv", "--bags", cohort / "bags",
        "--truth", cohort / "around",
    )  # fmt: skip
    assert ended.code == 0, ended.errors
    assert "pointing game" in ended.output
    assert "0.04" in ended.output


def test_a_folder_without_any_area_is_an_error(zoommil, artefact, cohort, tmp_path):
    ended = zoommil(
        "evaluate", artefact, cohort / "cohort.csv", "--bags", cohort / "bags", "--truth", tmp_path
    )
    assert ended.code != 0
    assert "none of 24 slides has an annotated area" in ended.errors
