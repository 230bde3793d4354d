"""Row 12, showing: a prediction comes in; how notebooks show it goes out, as HTML or on axes.

Patches are coloured by the rank of their attention within their step, fine steps over coarse ones,
over the slide where it still lies where it was predicted from.
"""

from __future__ import annotations

from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from zoommil.errors import PredictionError, ZoomMILError
from zoommil.grid.showing import add_boxes, boxes_svg
from zoommil.inference.geojson import ranks_of
from zoommil.slides.opening import open_slide
from zoommil.slides.resolution import GIVEN
from zoommil.slides.showing import (
    HTML_PX,
    level_0_axes,
    picture_uri,
    plot_slide,
    side_by_side,
    thumbnail_of,
)
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zoommil.inference.prediction import PredictedStep, Prediction
    from zoommil.slides.slide import Slide

_SHADES = 8
_COLOUR = "#d55e00"


def prediction_html(prediction: Prediction) -> str:
    """Probabilities, what was seen at each step, what it took, and a drawing of where it looked."""
    facts = [(name, f"{value:.3f}") for name, value in prediction.probabilities.items()]
    facts += [(_label(step), _seen(step)) for step in prediction.steps]
    cost, every = prediction.cost, prediction.exhaustive_cost
    facts.append(("encoded", f"{cost.patches} of {every.patches} patches"))
    facts.append(("computed", f"{cost.flops / 1e9:.4g} of {every.flops / 1e9:.4g} GFLOP"))
    if "total" in prediction.measured.seconds:
        facts.append(("took", f"{prediction.measured.seconds['total']:.2f} s"))
    facts += [("note", warning) for warning in prediction.warnings]
    title = f"{prediction.slide_id}: {prediction.label}"
    return side_by_side(title, _drawing(prediction), facts)


def plot_prediction(
    prediction: Prediction, axes: Axes | None = None, slide: Slide | None = None
) -> Axes:
    """Draw where a prediction looked on axes of level-0 pixels.

    Args:
        prediction: its patches are coloured by the rank of their attention within their step.
        axes: to draw on; None: new ones, with the slide where it can be found.
        slide: to draw it over; None: as it lay when predicted, if it is still there.

    Raises:
        PredictionError: it is not known where the patches lie.
    """
    if any(step.boxes is None for step in prediction.steps):
        raise PredictionError(
            f"the bag of {prediction.slide_id!r} does not say where its patches lie, so they "
            "cannot be drawn. Predict from the slide, or from a bag with coordinates."
        )
    if slide is not None:
        axes = plot_slide(slide, axes)
    elif axes is None:
        with suppress(ZoomMILError), _opened(prediction) as found:
            axes = plot_slide(found)
    axes = level_0_axes(axes)
    for step in prediction.steps:
        assert step.boxes is not None
        ranks = ranks_of(step.attention)
        order = np.argsort(ranks, kind="stable")
        add_boxes(axes, step.boxes[order], array=ranks[order], cmap="viridis", clim=(0, 1),
                  alpha=0.45, edgecolor="none")  # fmt: skip
        chosen = np.isin(step.rows, [] if step.selected is None else step.selected)
        add_boxes(axes, step.boxes[chosen], facecolor="none", edgecolor="black", linewidth=0.8)
    share = prediction.probabilities[prediction.label]
    axes.set_title(f"{prediction.slide_id}: {prediction.label} {share:.0%}")
    return axes


def _drawing(prediction: Prediction) -> str:
    """The patches as SVG; "" where it is not known where they lie."""
    groups = []
    for step in prediction.steps:
        if step.boxes is None or not len(step.boxes):
            return ""
        groups += _shaded(step.boxes, ranks_of(step.attention))
        chosen = np.isin(step.rows, [] if step.selected is None else step.selected)
        outline = 'fill="none" stroke="#000" stroke-width="1.2" vector-effect="non-scaling-stroke"'
        groups.append((outline, step.boxes[chosen]))
    return boxes_svg(groups, f"Attention on {prediction.slide_id}", _background(prediction))


def _shaded(
    boxes: Float[np.ndarray, "patch 4"], ranks: Float[np.ndarray, " patch"]
) -> list[tuple[str, np.ndarray]]:
    """Boxes in groups of like rank, the higher the more opaque, each in one path."""
    shades = np.minimum((ranks * _SHADES).astype(int), _SHADES - 1)
    return [
        (f'fill="{_COLOUR}" fill-opacity="{0.6 * shade / (_SHADES - 1):.2f}"', boxes[rows])
        for shade in range(_SHADES)
        if (rows := shades == shade).any()
    ]


def _background(prediction: Prediction) -> str:
    """The slide as an SVG image, where it can be found."""
    with suppress(ZoomMILError), _opened(prediction) as slide:
        x, y, width, height = slide.bounds
        uri = picture_uri(thumbnail_of(slide, 2 * HTML_PX))
        return (
            f'<image x="{x}" y="{y}" width="{width}" height="{height}" '
            f'preserveAspectRatio="none" href="{escape(uri, quote=True)}"/>'
        )
    return ""


def _opened(prediction: Prediction) -> Slide:
    """The slide where it lay when predicted. Raises ZoomMILError where it is not there any more."""
    path = prediction.measured.files.get("slide")
    if not path or not Path(path).exists():
        raise PredictionError(f"the slide of {prediction.slide_id!r} is not where it was.")
    about = prediction.provenance.get("slide") or {}
    given = about.get("mpp") if about.get("mpp_source") == GIVEN else None
    slide = open_slide(path, mpp=given)
    if slide.fingerprint != about.get("fingerprint"):
        slide.close()
        raise PredictionError(f"{path!r} is not the slide that was predicted.")
    return slide


def _label(step: PredictedStep) -> str:
    if step.magnification is None:
        return f"step {step.step}"
    return magnification_label(step.magnification)


def _seen(step: PredictedStep) -> str:
    text = f"{len(step.rows)} patches seen"
    return text if step.selected is None else f"{text}, {len(step.selected)} zoomed into"
