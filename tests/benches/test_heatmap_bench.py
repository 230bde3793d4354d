"""Bench heatmap in its short form: a moderately large file, drawn within the bounds of memory."""

from __future__ import annotations

import json
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
import tifffile

from zoommil.benches.heatmap import MOST_GROWTH, bench_heatmap
from zoommil.files import write_text
from zoommil.inference.cost import Cost, ExhaustiveCost, Measured, StepCost
from zoommil.inference.limits import Bound
from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.slides.opening import open_slide

SIDE_PX, TILE_PX = 20_480, 256


@pytest.fixture(scope="module")
def large_slide(tmp_path_factory):
    """A slide of 20 480 x 20 480 px at 40x, every tile the same."""
    path = tmp_path_factory.mktemp("large") / "large.tif"
    draw = np.random.default_rng(0)
    tissue = draw.integers((150, 60, 130), (230, 120, 190), (TILE_PX, TILE_PX, 3)).astype("u1")
    with tifffile.TiffWriter(path) as file:
        for index, downsample in enumerate((1, 4, 16)):
            side = SIDE_PX // downsample
            file.write(
                repeat(tissue, (side // TILE_PX) ** 2),
                shape=(side, side, 3),
                dtype=np.uint8,
                tile=(TILE_PX, TILE_PX),
                compression="jpeg",
                photometric="rgb",
                subfiletype=int(index > 0),
                resolution=(1e4 / 0.25, 1e4 / 0.25),
                resolutionunit=3,
                metadata=None,
            )
    return path


def prediction_of(path: Path) -> Prediction:
    """As if every patch at 10x of a slide had been seen."""
    with open_slide(path) as slide:
        about = {"size": slide.size, "bounds": slide.bounds, "fingerprint": slide.fingerprint}
    corners = np.stack(np.meshgrid(*[np.arange(0, SIDE_PX, 1024.0)] * 2), axis=-1).reshape(-1, 2)
    attention = np.arange(1.0, len(corners) + 1, dtype=np.float32)
    step = PredictedStep(
        step=0,
        magnification=10.0,
        mpp=1.0,
        rows=np.arange(len(corners)),
        boxes=np.concatenate([corners, np.full_like(corners, 1024)], axis=1),
        attention=attention / attention.sum(),
        scores=None,
        selected=None,
        logits=(0.0, 1.0),
        probabilities=(0.3, 0.7),
    )
    cost = Cost((StepCost(10.0, len(corners), 0, None, None, 0),))
    return Prediction(
        slide_id=path.stem,
        label="b",
        probabilities={"a": 0.3, "b": 0.7},
        logits=(0.0, 1.0),
        steps=(step,),
        cost=cost,
        exhaustive_cost=ExhaustiveCost(cost, cost),
        provenance={"slide": about},
        bound=Bound("model", (), 1),
        measured=Measured(files={"slide": str(path)}),
    )


@pytest.mark.slow
def test_h20_heatmaps_of_a_large_file_stay_within_memory(large_slide, tmp_path):
    stored = prediction_of(large_slide).to_json(measured=True)
    write_text(tmp_path / "heatmap" / f"zooming-{large_slide.stem}.json", stored)
    result = bench_heatmap(tmp_path, slide=large_slide, ways=["zooming"], rounds=1)
    page = result.write(tmp_path).read_text()
    assert f"{SIDE_PX} x {SIDE_PX} px" in page
    assert "| heatmap, zooming |" in page
    found = json.loads((tmp_path / "heatmap.json").read_text())
    assert 0 < found["growth_bytes"] < MOST_GROWTH
    assert all(run["growth"] < MOST_GROWTH for line in found["lines"] for run in line["runs"])
