"""Row 12, geojson: a prediction comes in; QuPath's tiles with attention and scores go out."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.errors import PredictionError
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.inference.prediction import Frame, PredictedStep, Prediction

_SEEN = [70, 130, 180]
_CHOSEN = [220, 120, 30]


def feature_collection(prediction: Prediction, frame: Frame) -> dict[str, Any]:
    """The patches of all steps, lowest magnification first, as a feature collection.

    Raises:
        PredictionError: it is not known where the patches lie, or where the bounds begin.
    """
    shift = _shift(prediction, frame)
    features = []
    for step in prediction.steps:
        if step.boxes is None:
            raise PredictionError(
                f"the bag of {prediction.slide_id!r} does not say where its patches lie, so they "
                "cannot be drawn. Predict from the slide, or from a bag with coordinates."
            )
        features += _tiles(step, step.boxes - shift, prediction.slide_id)
    return {"type": "FeatureCollection", "features": features}


def _shift(prediction: Prediction, frame: Frame) -> np.ndarray:
    if frame == "slide":
        return np.zeros(4)
    bounds = prediction.provenance.get("slide", {}).get("bounds")
    if frame != "bounds" or bounds is None:
        raise PredictionError(
            f"frame {frame!r} cannot be had for {prediction.slide_id!r}; use 'slide', or 'bounds' "
            "for a prediction from the slide itself."
        )
    return np.array([bounds[0], bounds[1], 0.0, 0.0])


def _tiles(step: PredictedStep, boxes: np.ndarray, slide_id: str) -> list[dict[str, Any]]:
    chosen = set() if step.selected is None else set(step.selected.tolist())
    label = "" if step.magnification is None else magnification_label(step.magnification)
    ranks = _ranks(step.attention)
    features = []
    for patch, box in enumerate(boxes):
        row = int(step.rows[patch])
        is_chosen = row in chosen
        measurements = {
            "Attention": float(step.attention[patch]),
            "Attention rank": ranks[patch],
        }
        if step.magnification is not None:
            measurements["Magnification"] = step.magnification
        if step.scores is not None:
            measurements["Score"] = float(step.scores[patch])
        kind = f"{'Zoomed' if is_chosen else 'Seen'} {label}".strip()
        features.append(
            {
                "type": "Feature",
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"zoommil:{slide_id}:{label}:{row}")),
                "geometry": {"type": "Polygon", "coordinates": [_ring(box)]},
                "properties": {
                    "objectType": "tile",
                    "name": f"{label} {row}".strip(),
                    "classification": {"name": kind, "color": _CHOSEN if is_chosen else _SEEN},
                    "measurements": measurements,
                    "isLocked": True,
                },
            }
        )
    return features


def _ring(box: np.ndarray) -> list[list[float]]:
    """A box as a closed ring, as GeoJSON wants it: counter-clockwise in its own axes."""
    x, y, width, height = (float(value) for value in box)
    right, bottom = x + width, y + height
    corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
    return [[round(a, 2), round(b, 2)] for a, b in corners]


def _ranks(values: np.ndarray) -> list[float]:
    """Each value's place among all, 0 for the lowest to 1 for the highest; equal ones share it."""
    order = np.sort(values)
    below = np.searchsorted(order, values, side="left")
    above = np.searchsorted(order, values, side="right") - 1
    return ((below + above) / 2 / max(1, len(values) - 1)).tolist()
