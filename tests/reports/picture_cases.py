"""Predictions by an oracle: nested patches whose attention is the share that lesions cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely

from zoommil.inference.cost import Cost, ExhaustiveCost, StepCost
from zoommil.inference.limits import Bound
from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.reports.truth import Region
from zoommil.slides.slide import Slide


def prediction_of(
    slide: Slide,
    truth: Sequence[Region],
    sides: Sequence[int],
    num_zoomed: int = 4,
    label: str = "high_grade",
) -> Prediction:
    """What an oracle that zooms into the most diseased patches would have seen.

    Args:
        slide: its bounds are what is looked at.
        truth: where the lesions are.
        sides: of the patches of each step, level-0 pixels, each a multiple of the next.
        num_zoomed: how many patches are zoomed into at every step.
    """
    lesions = shapely.union_all([region.polygon for region in truth])
    x, y, width, height = slide.bounds
    columns, rows = -(-width // sides[0]), -(-height // sides[0])
    across = np.stack(np.meshgrid(range(columns), range(rows)), axis=-1).reshape(-1, 2)
    corners = across * sides[0] + np.array([x, y], np.float64)
    names = np.arange(len(corners))
    steps = []
    for number, side in enumerate(sides):
        boxes = np.concatenate([corners, np.full_like(corners, side)], axis=1)
        covered = covered_by(boxes, lesions)
        is_last = number == len(sides) - 1
        chosen = np.sort(np.argsort(-covered, kind="stable")[:num_zoomed])
        attention = covered + 1e-3
        steps.append(
            PredictedStep(
                step=number,
                magnification=10 / (slide.mpp * side / 50),
                mpp=slide.mpp * side / 50,
                rows=names,
                boxes=boxes,
                attention=(attention / attention.sum()).astype(np.float32),
                scores=None if is_last else covered.astype(np.float32),
                selected=None if is_last else names[chosen],
                logits=(0.0, 2.0),
                probabilities=(0.1, 0.9),
            )
        )
        if not is_last:
            corners, names = _children(corners[chosen], names[chosen], side, sides[number + 1])
    every = [columns * rows * (sides[0] // side) ** 2 for side in sides]
    return Prediction(
        slide_id=slide.slide_id,
        label=label,
        probabilities={"normal": 0.1, "high_grade": 0.9},
        logits=(0.0, 2.0),
        steps=tuple(steps),
        cost=_cost([len(step.rows) for step in steps]),
        exhaustive_cost=ExhaustiveCost(_cost(every[-1:]), _cost(every)),
        provenance={
            "slide": {
                "bounds": list(slide.bounds),
                "size": list(slide.size),
                "mpp": slide.mpp,
                "fingerprint": slide.fingerprint,
            }
        },
        bound=Bound("model", (num_zoomed,) * (len(sides) - 1), len(sides)),
    )


def covered_by(boxes: np.ndarray, area: shapely.Geometry) -> np.ndarray:
    """The share of each box that an area covers."""
    squares = shapely.box(boxes[:, 0], boxes[:, 1], *(boxes[:, :2] + boxes[:, 2:]).T)
    shapely.prepare(area)
    shares = np.zeros(len(boxes))
    near = shapely.intersects(area, squares)
    shares[near] = shapely.area(shapely.intersection(area, squares[near]))
    return shares / (boxes[:, 2] * boxes[:, 3])


def mask_of(polygons: Sequence[np.ndarray], height: int, width: int) -> np.ndarray:
    """Which pixels have their centre inside polygons given in the picture's pixels."""
    area = shapely.union_all([shapely.Polygon(ring) for ring in polygons])
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return shapely.contains_xy(area, x, y)


def _children(
    corners: np.ndarray, names: np.ndarray, side: int, finer: int
) -> tuple[np.ndarray, np.ndarray]:
    """Corners and rows of the children of some patches."""
    ratio = side // finer
    inside = np.stack(np.meshgrid(range(ratio), range(ratio)), axis=-1).reshape(-1, 2) * finer
    rows = names[:, None] * ratio**2 + np.arange(ratio**2)
    return (corners[:, None] + inside).reshape(-1, 2).astype(float), rows.reshape(-1)


def _cost(counts: Sequence[int]) -> Cost:
    return Cost(
        tuple(StepCost(None, count, count * 65536, None, 10**9 * count, 10) for count in counts)
    )
