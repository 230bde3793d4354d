"""Row 13, heatmap: a stored prediction and its slide come in; a picture of attention goes out.

Everything is composed at the scale of the picture: time and memory follow the picture's size and
the number of patches, never the slide's size. Seen patches are coloured by their value over a grey
slide, more opaque the higher the value, so that tissue stays readable and what was never looked at
keeps its own colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from pydantic import BaseModel, ConfigDict, Field

from zoommil.files import atomic_path
from zoommil.inference.prediction import Prediction
from zoommil.reports.colours import CHOSEN, TRUTH, colours_of
from zoommil.reports.drawing import outline_boxes, outline_regions
from zoommil.reports.frame import (
    LONGEST_PX,
    PictureFrame,
    boxes_of,
    frame_of_slide,
    read_picture,
)
from zoommil.reports.legend import Legend, with_legend
from zoommil.reports.truth import Region
from zoommil.reports.values import Quantity, Scale, ValueMap, compose
from zoommil.slides.slide import Slide
from zoommil.units import magnification_label

_FAINTEST = 0.35  # opacity of the lowest value, as a part of the highest's
_GREY = (0.299, 0.587, 0.114)


class HeatmapSpec(BaseModel):
    """What a heatmap shows and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: Quantity = "attention"
    scale: Scale = "rank"
    opacity: float = Field(default=0.75, ge=0, le=1, description="Of the highest value.")
    longest_px: int = Field(default=LONGEST_PX, ge=16, le=20_000, description="The longer side.")
    outlines: bool = Field(default=True, description="Outline the patches that were zoomed into.")


def draw_heatmap(
    prediction: Prediction,
    slide: Slide,
    spec: HeatmapSpec | None = None,
    *,
    truth: Sequence[Region] = (),
) -> UInt8[np.ndarray, "height width 3"]:
    """The heatmap of all steps in one, the finer over the coarser, with its legend.

    Args:
        prediction: of this slide.
        slide: to draw it on.
        spec: what to show.
        truth: annotated areas to outline.

    Raises:
        PredictionError: there is nothing to draw, or it is not known where.
    """
    spec = spec or HeatmapSpec()
    frame = frame_of_slide(slide, spec.longest_px)
    background = read_picture(slide, frame)
    found = compose(prediction, frame, spec.quantity, spec.scale)
    picture = lay_over(background, found, spec.opacity)
    draw_lines(picture, prediction, frame, spec, truth=truth)
    return with_legend(picture, frame, legend_of(prediction, found, truth))


def draw_steps(
    prediction: Prediction,
    slide: Slide,
    spec: HeatmapSpec | None = None,
    *,
    truth: Sequence[Region] = (),
) -> UInt8[np.ndarray, "height width 3"]:
    """The heatmaps of the single steps side by side, each with a legend of its own."""
    spec = spec or HeatmapSpec()
    frame = frame_of_slide(slide, spec.longest_px)
    background = read_picture(slide, frame)
    panels = []
    for position, step in enumerate(prediction.steps):
        if spec.quantity == "score" and step.scores is None:
            continue
        found = compose(prediction, frame, spec.quantity, spec.scale, [position])
        picture = lay_over(background, found, spec.opacity)
        draw_lines(picture, prediction, frame, spec, truth=truth, steps=[position])
        panels.append(with_legend(picture, frame, legend_of(prediction, found, truth, position)))
    height = max(panel.shape[0] for panel in panels)
    below = [((0, height - panel.shape[0]), (0, 0), (0, 0)) for panel in panels]
    padded = [np.pad(*both, constant_values=255) for both in zip(panels, below, strict=True)]
    return np.concatenate(padded, axis=1)


def draw_overlay(
    prediction: Prediction,
    slide: Slide,
    spec: HeatmapSpec | None = None,
    *,
    truth: Sequence[Region] = (),
) -> tuple[UInt8[np.ndarray, "height width 3"], PictureFrame]:
    """The heatmap alone, pixel for pixel what its frame says: for viewers and other pictures."""
    spec = spec or HeatmapSpec()
    frame = frame_of_slide(slide, spec.longest_px)
    found = compose(prediction, frame, spec.quantity, spec.scale)
    picture = lay_over(read_picture(slide, frame), found, spec.opacity)
    draw_lines(picture, prediction, frame, spec, truth=truth)
    return picture, frame


def lay_over(
    background: UInt8[np.ndarray, "height width 3"], found: ValueMap, opacity: float
) -> UInt8[np.ndarray, "height width 3"]:
    """Values as colours over a grey slide; what was not seen stays as it is."""
    shares = found.shares()
    is_seen = found.steps >= 0
    picture = background.copy()
    alpha = (opacity_of(shares[is_seen]) * opacity)[:, None]
    grey = background[is_seen] @ np.asarray(_GREY, np.float32)
    blended = grey[:, None] * (1 - alpha) + colours_of(shares[is_seen]) * alpha
    picture[is_seen] = np.rint(blended).astype(np.uint8)
    return picture


def opacity_of(shares: Float32[np.ndarray, " pixel"]) -> Float32[np.ndarray, " pixel"]:
    """How opaque a part of the colour bar is, as a part of the opacity that was asked for."""
    return (_FAINTEST + (1 - _FAINTEST) * shares).astype(np.float32)


def draw_lines(
    picture: UInt8[np.ndarray, "height width 3"],
    prediction: Prediction,
    frame: PictureFrame,
    spec: HeatmapSpec,
    *,
    truth: Sequence[Region] = (),
    steps: Sequence[int] | None = None,
) -> None:
    """Outline what was zoomed into, coarse steps with thicker lines, and the annotated areas."""
    unit = max(1, round(max(picture.shape[:2]) / 900))
    outline_regions(picture, truth, frame, TRUTH, 2 * unit)
    if not spec.outlines:
        return
    for position, step in enumerate(prediction.steps):
        if step.selected is None or (steps is not None and position not in steps):
            continue
        boxes = boxes_of(prediction, position)[np.isin(step.rows, step.selected)]
        outline_boxes(
            picture, frame.boxes_to_picture(boxes), CHOSEN, 2 * unit if not position else unit
        )


def legend_of(
    prediction: Prediction,
    found: ValueMap,
    truth: Sequence[Region] = (),
    position: int | None = None,
) -> Legend:
    """What the reader must be told to understand a heatmap."""
    labels = [
        f"step {step.step}"
        if step.magnification is None
        else magnification_label(step.magnification)
        for step in prediction.steps
    ]
    shown = labels if position is None else labels[position : position + 1]
    name = "Attention" if found.quantity == "attention" else "Score, by which patches are chosen"
    of = " within each magnification" if len(shown) > 1 else ""
    if found.scale == "rank":
        meaning, ends = f"{name}, rank{of}", ("lowest", "highest")
    else:
        share = ", share of the answer" if found.quantity == "attention" else ""
        meaning, ends = f"{name}{share}{of}", tuple(f"{value:.3g}" for value in found.limits)
    best = prediction.probabilities[prediction.label]
    return Legend(
        title=prediction.slide_id,
        subtitle=f"{prediction.label} {best:.0%} · {' → '.join(shown)}",
        meaning=meaning,
        ends=(ends[0], ends[1]),
        has_chosen=any(
            step.selected is not None and len(step.selected) for step in prediction.steps
        ),
        has_truth=bool(truth),
    )


def write_png(path: Path | str, picture: UInt8[np.ndarray, "height width 3"]) -> None:
    """Write a picture as PNG, atomically."""
    import cv2

    with atomic_path(path) as temporary:
        _, data = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        temporary.write_bytes(data.tobytes())
