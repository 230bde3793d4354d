"""Row 13, frame: where level-0 coordinates lie in a picture of a slide, said once for everything.

A picture shows the slide's bounds. Its pixel ``i`` covers the level-0 coordinates from ``corner +
i * downsample`` to ``corner + (i + 1) * downsample`` along each axis; pixels of the picture are
real numbers until something is drawn. Heatmaps, overlays and the viewer go through this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.errors import PredictionError
from zoommil.inference.prediction import Prediction
from zoommil.slides.slide import Slide

LONGEST_PX = 1200
_BAND_PX = 256


@dataclass(frozen=True)
class PictureFrame:
    """Which part of a slide a picture shows, and how small.

    Attributes:
        corner: level-0 (x, y) of the picture's top-left corner.
        downsample: level-0 pixels per pixel of the picture, along both axes.
        width, height: of the picture, in its pixels; the last ones may stick out of the bounds.
        mpp: microns per level-0 pixel; None where it is not known.
    """

    corner: tuple[float, float]
    downsample: float
    width: int
    height: int
    mpp: float | None = None

    @property
    def picture_mpp(self) -> float | None:
        """Microns per pixel of the picture."""
        return None if self.mpp is None else self.mpp * self.downsample

    def to_picture(self, points: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any 2"]:
        """Level-0 (x, y) as (x, y) in the picture's pixels."""
        return (points - np.asarray(self.corner)) / self.downsample

    def to_slide(self, points: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any 2"]:
        """(x, y) in the picture's pixels as level-0 (x, y)."""
        return points * self.downsample + np.asarray(self.corner)

    def boxes_to_picture(self, boxes: Float[np.ndarray, "box 4"]) -> Float[np.ndarray, "box 4"]:
        """Level-0 (x, y, width, height) as the same in the picture's pixels."""
        corners = self.to_picture(boxes[:, :2])
        return np.concatenate([corners, boxes[:, 2:] / self.downsample], axis=1)

    def scaled(self, factor: float) -> PictureFrame:
        """The same part of the slide in a picture so many times as large."""
        return PictureFrame(
            self.corner,
            self.downsample / factor,
            max(1, math.ceil(self.width * factor - 1e-6)),
            max(1, math.ceil(self.height * factor - 1e-6)),
            self.mpp,
        )


def frame_of_bounds(
    bounds: tuple[float, float, float, float],
    mpp: float | None = None,
    longest_px: int = LONGEST_PX,
) -> PictureFrame:
    """The frame of a picture of these bounds (x, y, width, height), its longer side as given.

    It is never finer than the slide's own level 0.
    """
    x, y, width, height = bounds
    downsample = max(1.0, max(width, height) / longest_px)
    columns = max(1, math.ceil(width / downsample - 1e-6))
    rows = max(1, math.ceil(height / downsample - 1e-6))
    return PictureFrame((float(x), float(y)), downsample, columns, rows, mpp)


def frame_of_slide(slide: Slide, longest_px: int = LONGEST_PX) -> PictureFrame:
    """The frame of a picture of a slide's bounds."""
    return frame_of_bounds(slide.bounds, slide.mpp, longest_px)


def frame_of_prediction(prediction: Prediction, longest_px: int = LONGEST_PX) -> PictureFrame:
    """The frame of a picture of what a prediction looked at, without its slide.

    Raises:
        PredictionError: it is not known where the patches lie.
    """
    slide: Mapping[str, Any] = prediction.provenance.get("slide") or {}
    bounds = slide.get("bounds")
    if bounds is None:
        bounds = _extent(prediction)
    x, y, width, height = (float(value) for value in bounds)
    return frame_of_bounds((x, y, width, height), slide.get("mpp"), longest_px)


def read_picture(slide: Slide, frame: PictureFrame) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a frame, read in bands so that memory does not grow with the slide."""
    mpp = slide.mpp * frame.downsample
    if slide.scale == "nominal":  # there mpp stands for a magnification; ask for this downsample
        mpp *= frame.downsample / slide.downsample_of(mpp)
    x, y = frame.corner
    picture = np.empty((frame.height, frame.width, 3), np.uint8)
    for top in range(0, frame.height, _BAND_PX):
        rows = min(_BAND_PX, frame.height - top)
        band = slide.read(x, y + top * frame.downsample, frame.width, rows, mpp)
        picture[top : top + rows] = band
    return picture


def boxes_of(prediction: Prediction, step: int) -> Float[np.ndarray, "patch 4"]:
    """The level-0 boxes of a step.

    Raises:
        PredictionError: it is not known where the patches lie.
    """
    boxes = prediction.steps[step].boxes
    if boxes is None:
        raise PredictionError(
            f"the bag of {prediction.slide_id!r} does not say where its patches lie, so they "
            "cannot be drawn. Predict from the slide, or from a bag with coordinates."
        )
    return boxes


def _extent(prediction: Prediction) -> tuple[float, float, float, float]:
    """The smallest box around all patches of the first step."""
    boxes = boxes_of(prediction, 0)
    if not len(boxes):
        raise PredictionError(f"the prediction of {prediction.slide_id!r} has no patches to draw.")
    x, y = (float(value) for value in boxes[:, :2].min(axis=0))
    right, bottom = (float(value) for value in (boxes[:, :2] + boxes[:, 2:]).max(axis=0))
    return x, y, right - x, bottom - y
