"""A synthetic slide with known lesions and shifted bounds, and predictions that look at them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_cases import prediction_of

from synthetic_slides import SEED, small_spec
from zoommil.artefact import Artefact
from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.inference.prediction import Prediction
from zoommil.reports.truth import Region, read_regions
from zoommil.slides.opening import open_slide
from zoommil.synthetic.slide import truth_path, write_slide

BOUNDS = (200, 120, 1700, 1600)


@pytest.fixture(scope="session")
def slide_path(tmp_path_factory) -> Path:
    """A slide of 2048 x 1800 at 5x with two lesions."""
    path = tmp_path_factory.mktemp("reports") / "lesions.svs"
    write_slide(path, small_spec(label="high_grade"), SEED)
    return path


@pytest.fixture
def slide(slide_path):
    """The slide, open, its bounds shifted as a scanner's would be."""
    with open_slide(slide_path) as opened:
        opened.bounds = BOUNDS
        yield opened


@pytest.fixture(scope="session")
def truth(slide_path) -> tuple[Region, ...]:
    """The slide's lesions."""
    return read_regions(truth_path(slide_path))


@pytest.fixture
def prediction(slide, truth) -> Prediction:
    """Three steps that zoom into the lesions; attention is the share of a patch they cover."""
    return prediction_of(slide, truth, sides=(400, 200, 50))


@pytest.fixture
def pointed(slide, truth) -> Prediction:
    """One step of patches as large as a pixel of a 1/8 picture."""
    return prediction_of(slide, truth, sides=(8,))


@pytest.fixture
def answers(prediction) -> list[Prediction]:
    """Three predictions: right, right, wrong; only the first is of a slide that is there."""
    names = ("normal", "high_grade")
    sure = replace(prediction, slide_id="b", label="normal")
    sure = replace(sure, probabilities=dict(zip(names, (0.8, 0.2), strict=True)))
    return [prediction, sure, replace(prediction, slide_id="c")]


@pytest.fixture
def cohort(prediction, slide_path) -> Cohort:
    """The labels of those predictions, and where the slide lies."""
    labels = {prediction.slide_id: "high_grade", "b": "normal", "c": "normal"}
    rows = (
        SlideRow(name, slide_path if name == prediction.slide_id else None, f"case {name}", label)
        for name, label in labels.items()
    )
    return Cohort(tuple(rows), ("normal", "high_grade"), "cohort.csv")


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Artefact:
    """A model that was really trained, on bags of plain vectors."""
    from zoommil.training.run import RunSpec
    from zoommil.training.train import train

    draw = np.random.default_rng(0)
    names = [f"t{number:02}" for number in range(16)]
    bags = {
        name: Bag(tuple(draw.normal(size=(n, 8)).astype("f4") for n in (4, 16)), slide_id=name)
        for name in names
    }
    rows = (
        SlideRow(name, None, name, ("normal", "high_grade")[number % 2])
        for number, name in enumerate(names)
    )
    cohort = Cohort(tuple(rows), ("normal", "high_grade"), "cohort.csv")
    model = {"k": 2, "embed_dim": 16, "attention_dim": 8, "num_samples": 10}
    run = RunSpec.from_recipe("zoommil", {"model": model, "training": {"epochs": 3}})
    return train(run, cohort, bags, out=tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (make browser)")
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=options)
        yield opened
        opened.close()


@pytest.fixture
def generator() -> np.random.Generator:
    """For what is drawn."""
    return np.random.default_rng(0)
