"""Row 12, geojson: a prediction comes in; QuPath's objects with attention and scores go out.

There are two collections: every patch that was seen, as tiles; and the zoom path alone, as
annotations that QuPath lists in the order they were looked at.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from zoommil.errors import PredictionError
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.inference.prediction import Frame, PredictedStep, Prediction

NUM_TOP = 8
"""How many patches of the last step end the zoom path."""

_SEEN = [70, 130, 180]
_CHOSEN = [220, 120, 30]


def feature_collection(
    prediction: Prediction, frame: Frame, steps: Sequence[int] | None = None
) -> dict[str, Any]:
    """The patches of all steps, lowest magnification first, as a feature collection.

    Args:
        prediction: what was seen.
        frame: level-0 pixels of the "slide", or of its "bounds", which QuPath crops to.
        steps: only these, by position among the prediction's steps; None: all.

    Raises:
        PredictionError: it is not known where the patches lie, or where the bounds begin.
    """
    shift = _shift(prediction, frame)
    features = []
    for position, step in enumerate(prediction.steps):
        if steps is None or position in steps:
            every = np.arange(len(step.rows))
            features += _objects(prediction, position, every, shift, "tile")
    return {"type": "FeatureCollection", "features": features}


def path_collection(prediction: Prediction, frame: Frame, num_top: int = NUM_TOP) -> dict[str, Any]:
    """Where it went: what it zoomed into at each step, then the last step's highest attention.

    Raises:
        PredictionError: as :func:`feature_collection`.
    """
    shift = _shift(prediction, frame)
    features = []
    for position, patches in enumerate(zoom_path(prediction, num_top)):
        features += _objects(prediction, position, patches, shift, "annotation")
    return {"type": "FeatureCollection", "features": features}


def zoom_path(prediction: Prediction, num_top: int = NUM_TOP) -> list[Int[np.ndarray, " patch"]]:
    """For each step the patches, as indices, that were zoomed into; highest attention first.

    Of the last step they are those that weighed most in the answer.
    """
    found = []
    for step in prediction.steps:
        order = np.argsort(-step.attention, kind="stable")
        if step.selected is None or not len(step.selected):
            found.append(order[:num_top])
        else:
            found.append(order[np.isin(step.rows[order], step.selected)])
    return found


def ranks_of(values: Float[np.ndarray, " patch"]) -> Float[np.ndarray, " patch"]:
    """Each value's place among all, 0 for the lowest to 1 for the highest; equal ones share it."""
    order = np.sort(values)
    below = np.searchsorted(order, values, side="left")
    above = np.searchsorted(order, values, side="right") - 1
    return (below + above) / 2 / max(1, len(values) - 1)


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


def _objects(
    prediction: Prediction, position: int, patches: np.ndarray, shift: np.ndarray, kind: str
) -> list[dict[str, Any]]:
    """Some patches of a step as QuPath objects of a kind, in this order."""
    step = prediction.steps[position]
    if step.boxes is None:
        raise PredictionError(
            f"the bag of {prediction.slide_id!r} does not say where its patches lie, so they "
            "cannot be drawn. Predict from the slide, or from a bag with coordinates."
        )
    ranks = ranks_of(step.attention)
    label = "" if step.magnification is None else magnification_label(step.magnification)
    chosen = np.isin(step.rows, [] if step.selected is None else step.selected)
    return [
        {
            "type": "Feature",
            "id": _id_of(prediction.slide_id, kind, step.step, label, int(step.rows[patch])),
            "geometry": {"type": "Polygon", "coordinates": [_ring(step.boxes[patch] - shift)]},
            "properties": {
                "objectType": kind,
                "name": f"{label} {step.rows[patch]}".strip(),
                "classification": _class_of(bool(chosen[patch]), label),
                "measurements": _measurements(step, int(patch), float(ranks[patch])),
                "isLocked": True,
            },
        }
        for patch in patches
    ]


def _id_of(slide_id: str, kind: str, step: int, label: str, row: int) -> str:
    """The same object has the same id whenever it is written."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"zoommil:{slide_id}:{kind}:{step}:{label}:{row}"))


def _class_of(is_chosen: bool, label: str) -> dict[str, Any]:
    name = f"{'Zoomed' if is_chosen else 'Seen'} {label}".strip()
    return {"name": name, "color": _CHOSEN if is_chosen else _SEEN}


def _measurements(step: PredictedStep, patch: int, rank: float) -> dict[str, float]:
    found = {"Attention": float(step.attention[patch]), "Attention rank": rank}
    if step.magnification is not None:
        found["Magnification"] = float(step.magnification)
    if step.scores is not None:
        found["Score"] = float(step.scores[patch])
    return found


def _ring(box: np.ndarray) -> list[list[float]]:
    """A box as a closed ring, as GeoJSON wants it: counter-clockwise in its own axes."""
    x, y, width, height = (float(value) for value in box)
    right, bottom = x + width, y + height
    corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
    return [[round(a, 2), round(b, 2)] for a, b in corners]
