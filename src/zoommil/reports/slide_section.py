"""Row 13, slide sections: a prediction and its slide come in; what a report shows goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoommil.bags.cohort import SlideRow
from zoommil.inference.prediction import Prediction
from zoommil.reports.colours import TRUTH
from zoommil.reports.drawing import outline_regions, scale_bar
from zoommil.reports.frame import frame_of_slide, read_picture
from zoommil.reports.heatmap import lay_over
from zoommil.reports.localisation import wilson_interval
from zoommil.reports.patches import TopPatch, read_top_patches
from zoommil.reports.truth import Region
from zoommil.reports.values import compose
from zoommil.reports.zoom_path import data_uri, path_svg
from zoommil.slides.slide import Slide
from zoommil.units import magnification_label

PICTURE_PX = 720
PATCH_PX = 176
NUM_TOP = 6
_OPACITY = 0.75
_BIN = 0.1


@dataclass(frozen=True)
class PatchPicture:
    """One of the patches that weighed most: a data URI and what to write under it."""

    uri: str
    attention: float
    label: str


@dataclass(frozen=True)
class SlidePictures:
    """What is drawn of one slide; the pictures are inside the page.

    Attributes:
        path: the zoom path, as an SVG with the slide inside.
        heatmap: the attention, as a data URI.
        width, height: of the heatmap, pixels.
        scale: the text of a scale bar and its length as a part of the width; None: mpp not known.
        patches: the last step's highest attention.
        has_regions: annotated areas are outlined.
    """

    path: str
    heatmap: str
    width: int
    height: int
    scale: tuple[str, float] | None
    patches: tuple[PatchPicture, ...]
    has_regions: bool


@dataclass(frozen=True)
class Peers:
    """The other labelled slides that were answered about as surely, and how many of them rightly.

    ``low`` and ``high`` are the 95% interval of that share.
    """

    num: int
    right: int
    low: float
    high: float


@dataclass(frozen=True)
class StepLine:
    """What one step did, in words of a table."""

    label: str
    seen: int
    zoomed: int | None
    probability: float


@dataclass(frozen=True)
class SlideSection:
    """One slide of a report.

    Attributes:
        slide_id, case_id: of the slide.
        label: predicted class. ``truth``: the true one, None where unknown.
        probabilities: of every class, calibrated, in the model's order.
        peers: the other labelled slides answered about as surely; None without any.
        steps: what was seen.
        patches, exhaustive_patches, seconds: what it took.
        warnings: of the prediction.
        pictures: None where the slide was not drawn; ``reason`` says why then.
    """

    slide_id: str
    case_id: str
    label: str
    truth: str | None
    probabilities: dict[str, float]
    peers: Peers | None
    steps: tuple[StepLine, ...]
    patches: int
    exhaustive_patches: int
    seconds: float | None
    warnings: tuple[str, ...]
    pictures: SlidePictures | None = None
    reason: str | None = None

    @property
    def is_right(self) -> bool | None:
        """Whether the answer agrees with the label; None where there is none."""
        return None if self.truth is None else self.label == self.truth

    @property
    def confidence(self) -> float:
        """Of the answer."""
        return self.probabilities[self.label]

    @property
    def anchor(self) -> str:
        """Its place in the page, whatever characters its name has."""
        return "slide-" + "".join(c if c.isalnum() else f"-{ord(c):x}-" for c in self.slide_id)


def section_of(
    prediction: Prediction,
    row: SlideRow | None,
    peers: Peers | None = None,
    pictures: SlidePictures | None = None,
    reason: str | None = None,
) -> SlideSection:
    """The section of a prediction, its row of the cohort beside it."""
    return SlideSection(
        slide_id=prediction.slide_id,
        case_id=prediction.slide_id if row is None else row.case_id,
        label=prediction.label,
        truth=None if row is None else row.label,
        probabilities=dict(prediction.probabilities),
        peers=peers,
        steps=tuple(_lines(prediction)),
        patches=prediction.cost.patches,
        exhaustive_patches=prediction.exhaustive_cost.patches,
        seconds=prediction.measured.seconds.get("total"),
        warnings=prediction.warnings,
        pictures=pictures,
        reason=reason,
    )


def draw_slide(prediction: Prediction, slide: Slide, truth: Sequence[Region] = ()) -> SlidePictures:
    """The pictures of a slide, a few hundred kilobytes altogether.

    Raises:
        ZoomMILError: the slide cannot be read, or it is not known where the patches lie.
    """
    frame = frame_of_slide(slide, PICTURE_PX)
    background = read_picture(slide, frame)
    attention = lay_over(background, compose(prediction, frame), _OPACITY)
    outline_regions(attention, truth, frame, TRUTH)
    scale = scale_bar(frame, frame.width * 0.3)
    return SlidePictures(
        path=path_svg(prediction, frame, background, truth=truth, num_top=NUM_TOP, has_scale=False),
        heatmap=data_uri(attention, 80),
        width=frame.width,
        height=frame.height,
        scale=None if scale is None else (scale[1], scale[0] / frame.width),
        patches=tuple(map(_picture, read_top_patches(prediction, slide, NUM_TOP, PATCH_PX))),
        has_regions=bool(truth),
    )


def peers_of(
    predictions: Sequence[Prediction], labels: Mapping[str, str]
) -> dict[str, Peers | None]:
    """For each slide how often others answered about as surely (within 0.1) were right."""
    known = [one for one in predictions if one.slide_id in labels]
    names = np.array([one.slide_id for one in known], dtype=object)
    sure = np.array([one.probabilities[one.label] for one in known])
    right = np.array([one.label == labels[one.slide_id] for one in known], bool)
    found: dict[str, Peers | None] = {}
    for one in predictions:
        near = (np.abs(sure - one.probabilities[one.label]) <= _BIN) & (names != one.slide_id)
        num, hits = int(near.sum()), int(right[near].sum())
        found[one.slide_id] = Peers(num, hits, *wilson_interval(hits, num)) if num else None
    return found


def _picture(patch: TopPatch) -> PatchPicture:
    label = "" if patch.magnification is None else magnification_label(patch.magnification)
    return PatchPicture(data_uri(patch.pixels, 84), patch.attention, label)


def _lines(prediction: Prediction) -> list[StepLine]:
    classes = list(prediction.probabilities)
    return [
        StepLine(
            label=f"step {step.step}"
            if step.magnification is None
            else magnification_label(step.magnification),
            seen=len(step.rows),
            zoomed=None if step.selected is None else len(step.selected),
            probability=step.probabilities[classes.index(prediction.label)],
        )
        for step in prediction.steps
    ]
