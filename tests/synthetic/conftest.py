"""The same synthetic slide under every label, drawn once for all tests of this row."""

from __future__ import annotations

from pathlib import Path

import pytest

from synthetic_slides import SEED, small_spec
from zoommil.synthetic.slide import SlideTruth, write_slide


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, SlideTruth]]:
    """Path and truth of one seed's slide under each label."""
    folder = tmp_path_factory.mktemp("synthetic")
    slides = {}
    for label in ("normal", "low_grade", "high_grade"):
        path = folder / f"{label}.svs"
        slides[label] = (path, write_slide(path, small_spec(label=label), SEED))
    return slides
