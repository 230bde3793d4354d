"""Row 13, values: a prediction and a frame come in; what each pixel stands for goes out.

Attention and scores are painted at the picture's scale, coarse steps first and finer ones over
them, so that every pixel has the value of the closest look that was taken there. The slide's own
pixels and its size play no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int8

from zoommil.errors import PredictionError
from zoommil.inference.geojson import ranks_of
from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.reports.frame import PictureFrame, boxes_of

Quantity = Literal["attention", "score"]
Scale = Literal["rank", "raw"]


@dataclass(frozen=True, eq=False)
class ValueMap:
    """What the pixels of a picture stand for.

    Attributes:
        values: as asked for; NaN where nothing was seen.
        steps: the step a value is of; -1 where nothing was seen.
        quantity, scale: what the values are.
    """

    values: Float32[np.ndarray, "height width"]
    steps: Int8[np.ndarray, "height width"]
    quantity: Quantity
    scale: Scale

    @property
    def limits(self) -> tuple[float, float]:
        """The values at both ends of the colour bar: 0 to 1 for ranks, else 0 to the highest."""
        if self.scale == "rank" or not np.isfinite(self.values).any():
            return 0.0, 1.0
        low, high = float(np.nanmin(self.values)), float(np.nanmax(self.values))
        low = min(0.0, low)
        return low, high if high > low else low + 1.0

    def shares(self) -> Float32[np.ndarray, "height width"]:
        """The values as parts of the colour bar, 0 to 1; NaN where nothing was seen."""
        low, high = self.limits
        return np.clip((self.values - np.float32(low)) / np.float32(high - low), 0, 1)


def compose(
    prediction: Prediction,
    frame: PictureFrame,
    quantity: Quantity = "attention",
    scale: Scale = "rank",
    steps: Sequence[int] | None = None,
) -> ValueMap:
    """The values of a prediction as a picture.

    Args:
        prediction: what was seen.
        frame: which part of the slide, and how small.
        quantity: "attention", or the "score" that patches were chosen by.
        scale: "rank" within each step, 0 the lowest and 1 the highest; or "raw".
        steps: only these, by position among the prediction's steps; None: all.

    Raises:
        PredictionError: nothing of that kind is known, or not where the patches lie.
    """
    values = np.full((frame.height, frame.width), np.nan, np.float32)
    levels = np.full((frame.height, frame.width), -1, np.int8)
    is_painted = False
    for position, step in enumerate(prediction.steps):
        found = values_of(step, quantity, scale)
        if found is None or (steps is not None and position not in steps):
            continue
        boxes = frame.boxes_to_picture(boxes_of(prediction, position))
        _paint(values, levels, boxes, found, position)
        is_painted = True
    if not is_painted:
        raise PredictionError(
            f"the prediction of {prediction.slide_id!r} has no {quantity} to draw at the steps "
            "that were asked for; scores are of steps that were zoomed from. Draw its attention."
        )
    return ValueMap(values, levels, quantity, scale)


def values_of(
    step: PredictedStep, quantity: Quantity, scale: Scale
) -> Float[np.ndarray, " patch"] | None:
    """One step's values in the order of its patches; None where there are none."""
    raw = step.attention if quantity == "attention" else step.scores
    if raw is None:
        return None
    return ranks_of(raw) if scale == "rank" else raw.astype(np.float64)


def pixel_edges(boxes: Float[np.ndarray, "patch 4"]) -> np.ndarray:
    """Left, top, right, bottom of boxes as whole pixels: nearest edges, one pixel at least."""
    low = np.floor(boxes[:, :2] + 0.5).astype(np.int64)
    high = np.floor(boxes[:, :2] + boxes[:, 2:] + 0.5).astype(np.int64)
    return np.concatenate([low, np.maximum(high, low + 1)], axis=1)


def _paint(
    values: np.ndarray, levels: np.ndarray, boxes: np.ndarray, found: np.ndarray, position: int
) -> None:
    """Fill each patch's pixels, the higher value on top where rounding makes two share one."""
    edges = np.maximum(pixel_edges(boxes), 0)
    for patch in np.argsort(found, kind="stable"):
        left, top, right, bottom = edges[patch]
        values[top:bottom, left:right] = found[patch]
        levels[top:bottom, left:right] = position
