"""Row 13, patches: a prediction comes in; a table of all patches and a sheet of the best go out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from zoommil.files import write_text
from zoommil.inference.geojson import NUM_TOP, ranks_of
from zoommil.inference.prediction import Prediction
from zoommil.reports.frame import boxes_of
from zoommil.slides.slide import Slide
from zoommil.units import magnification_label

COLUMNS = (
    "slide_id", "step", "magnification", "mpp", "row", "x", "y", "width", "height",
    "attention", "attention_rank", "score", "score_rank", "selected",
)  # fmt: skip

TOP_PX = 256


@dataclass(frozen=True, eq=False)
class TopPatch:
    """One of the patches that weighed most at the last step, with its pixels."""

    row: int
    box: tuple[float, float, float, float]
    magnification: float | None
    attention: float
    pixels: UInt8[np.ndarray, "height width 3"]

    @property
    def caption(self) -> str:
        """Its attention and magnification."""
        label = (
            "" if self.magnification is None else f" at {magnification_label(self.magnification)}"
        )
        return f"attention {self.attention:.3f}{label}"


def write_patches(path: Path | str, prediction: Prediction) -> None:
    """Write every patch that was seen with its values as CSV; coordinates are level-0 pixels."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(prediction))
    write_text(path, text.getvalue())


def read_top_patches(
    prediction: Prediction, slide: Slide, num_patches: int = NUM_TOP, patch_px: int = TOP_PX
) -> list[TopPatch]:
    """The patches of the last step with the highest attention, highest first.

    They are shown at the magnification they were judged at, or coarser to fit ``patch_px``.
    """
    step, boxes = prediction.steps[-1], boxes_of(prediction, len(prediction.steps) - 1)
    found = []
    for patch in np.argsort(-step.attention, kind="stable")[:num_patches]:
        x, y, width, height = (float(value) for value in boxes[patch])
        downsample = max(width / patch_px, 1.0)
        mpp = slide.mpp * downsample
        if slide.scale == "nominal":  # there mpp stands for a magnification
            mpp *= downsample / slide.downsample_of(mpp)
        size = (max(1, round(width / downsample)), max(1, round(height / downsample)))
        pixels = slide.read(x, y, *size, mpp)
        row, attention = int(step.rows[patch]), float(step.attention[patch])
        found.append(TopPatch(row, (x, y, width, height), step.magnification, attention, pixels))
    return found


def draw_top_patches(
    patches: list[TopPatch], num_columns: int = 4
) -> UInt8[np.ndarray, "height width 3"]:
    """A contact sheet of the patches, each with its row in the grid and its attention."""
    from zoommil.grid.contact_sheet import contact_sheet

    entries = [
        (f"{place}. row {patch.row}", patch.pixels, patch.caption)
        for place, patch in enumerate(patches, start=1)
    ]
    return contact_sheet(entries, num_columns=num_columns)


def _rows(prediction: Prediction) -> Iterator[list[Any]]:
    for position, step in enumerate(prediction.steps):
        boxes = boxes_of(prediction, position)
        ranks = ranks_of(step.attention)
        scores = None if step.scores is None else (step.scores, ranks_of(step.scores))
        chosen = np.isin(step.rows, [] if step.selected is None else step.selected)
        for patch, box in enumerate(boxes):
            yield [
                prediction.slide_id,
                step.step,
                "" if step.magnification is None else f"{step.magnification:g}",
                "" if step.mpp is None else repr(step.mpp),
                int(step.rows[patch]),
                *(repr(round(float(value), 4)) for value in box),
                repr(float(step.attention[patch])),
                repr(float(ranks[patch])),
                *(("", "") if scores is None else (repr(float(kind[patch])) for kind in scores)),
                int(chosen[patch]),
            ]
