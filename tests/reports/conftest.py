"""A synthetic slide with known lesions and shifted bounds, and predictions that look at them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_cases import prediction_of

from synthetic_slides import SEED, small_spec
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
def generator() -> np.random.Generator:
    """For what is drawn."""
    return np.random.default_rng(0)
