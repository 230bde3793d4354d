"""Row 15, overlay: one step of a prediction comes in; a picture with a pixel per patch goes out.

The patches of a step lie on one grid, so a pixel per patch is exact at every zoom of the viewer and
needs a few kilobytes for any slide.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.errors import PredictionError
from zoommil.inference.prediction import Prediction
from zoommil.reports.colours import colour_table, colours_of
from zoommil.reports.frame import boxes_of
from zoommil.reports.values import Quantity, Scale, values_of

_LONGEST_PX = 4096


@dataclass(frozen=True, eq=False)
class Overlay:
    """What lies over the slide at one step.

    Attributes:
        pixels: RGBA, a pixel per place of the grid; see-through where nothing was seen.
        box: level-0 (x, y, width, height) that the picture covers.
        low, high: the values at both ends of the colour bar.
        quantity, scale: what the values are.
    """

    pixels: UInt8[np.ndarray, "height width 4"]
    box: Float[np.ndarray, " 4"]
    low: float
    high: float
    quantity: Quantity
    scale: Scale

    def data_url(self) -> str:
        """The picture as a PNG in a data URL."""
        import cv2

        _, png = cv2.imencode(".png", cv2.cvtColor(self.pixels, cv2.COLOR_RGBA2BGRA))
        return "data:image/png;base64," + base64.b64encode(png.tobytes()).decode()


def overlay_of(
    prediction: Prediction, position: int, quantity: Quantity = "attention", scale: Scale = "rank"
) -> Overlay | None:
    """The overlay of a step; None where it has no such values or saw nothing.

    Raises:
        PredictionError: it is not known where the patches lie, or not on one grid.
    """
    step = prediction.steps[position]
    values = values_of(step, quantity, scale)
    if values is None or not len(values):
        return None
    boxes = boxes_of(prediction, position)
    cells, shape = _cells(prediction, boxes)
    low, high = _limits(values, scale)
    shares = np.clip((values - low) / (high - low), 0, 1)
    pixels = np.zeros((*shape, 4), np.uint8)
    pixels[cells[:, 1], cells[:, 0], :3] = colours_of(shares)
    pixels[cells[:, 1], cells[:, 0], 3] = 255
    corner = boxes[:, :2].min(axis=0)
    sides = boxes[0, 2:] * (shape[1], shape[0])
    return Overlay(pixels, np.concatenate([corner, sides]), low, high, quantity, scale)


def colour_bar() -> str:
    """The colour map as a CSS gradient from left to right."""
    stops = [f"rgb({r},{g},{b})" for r, g, b in colour_table()[::15].tolist()]
    return f"linear-gradient(90deg,{','.join(stops)})"


def _cells(
    prediction: Prediction, boxes: Float[np.ndarray, "patch 4"]
) -> tuple[np.ndarray, tuple[int, int]]:
    """Each patch's column and row in the grid of its step, and the grid's height and width."""
    places = (boxes[:, :2] - boxes[:, :2].min(axis=0)) / boxes[0, 2:]
    cells = np.rint(places).astype(np.int64)
    if (
        np.abs(places - cells).max() > 0.01
        or np.ptp(boxes[:, 2:], axis=0).max() > 0.01 * boxes[0, 2]
    ):
        raise PredictionError(
            f"the patches of {prediction.slide_id!r} do not lie on one grid, so they cannot be "
            "laid over the slide here. Use 'zoommil heatmap'."
        )
    width, height = (cells.max(axis=0) + 1).tolist()
    if max(width, height) > _LONGEST_PX:
        raise PredictionError(
            f"the patches of {prediction.slide_id!r} lie {max(width, height)} patches apart; at "
            f"most {_LONGEST_PX} are laid over a slide here. Use 'zoommil heatmap'."
        )
    return cells, (height, width)


def _limits(values: np.ndarray, scale: Scale) -> tuple[float, float]:
    if scale == "rank":
        return 0.0, 1.0
    low, high = min(0.0, float(values.min())), float(values.max())
    return low, high if high > low else low + 1.0
