"""Row 8, sampling: a cohort's slides and a grid in; pixels of some of their patches out.

What an encoder's int8 form is calibrated on: patches of every magnification it will see, drawn
evenly over the slides, the same ones every time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import CohortError, ZoomMILError
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.tissue import TissueSpec, find_tissue

if TYPE_CHECKING:
    from zoommil.bags.cohort import SlideRow
    from zoommil.slides.slide import Slide

logger = logging.getLogger(__name__)

NUM_PATCHES = 304
MOST_SLIDES = 38


@dataclass(frozen=True)
class PatchSample:
    """Pixels of patches, and the fingerprints of the slides they are of."""

    pixels: UInt8[np.ndarray, "patch side side 3"]
    slides: tuple[str, ...]


def sample_patches(
    rows: Sequence[SlideRow],
    grid: GridSpec,
    tissue: TissueSpec,
    open_row: Callable[[SlideRow], Slide],
    *,
    steps: Sequence[int] | None = None,
    num_patches: int = NUM_PATCHES,
    seed: int = 0,
) -> PatchSample:
    """About so many patches of a cohort, fewer where its slides have fewer.

    Args:
        rows: the slides; of many, some are taken at even distances.
        grid: what patches are.
        tissue: how tissue is searched where a slide has no mask of its own.
        open_row: opens one slide.
        steps: of the grid; None: all.
        num_patches: in all.
        seed: of the draw.

    Raises:
        CohortError: not one slide could be used; the last one's reason is given.
    """
    steps = range(len(grid.magnifications)) if steps is None else steps
    places = np.linspace(0, len(rows) - 1, min(len(rows), MOST_SLIDES)).round().astype(int)
    quota = -(-num_patches // max(1, len(places)))
    pixels: list[np.ndarray] = []
    fingerprints: list[str] = []
    reason = "there are no slides"
    for place in places:
        row = rows[place]
        try:
            with open_row(row) as slide:
                mask = find_tissue(slide, tissue, mask=row.mask_path)
                pyramid = PatchPyramid.build(slide, mask, grid)
                rng = np.random.default_rng([seed, int(place)])
                pixels += _read(slide, pyramid, steps, quota, rng)
                fingerprints.append(slide.fingerprint)
        except ZoomMILError as error:
            reason = f"{row.slide_id!r}: {error}"
            logger.warning("no patches are taken of slide %s", reason)
    if not pixels:
        raise CohortError(f"no patches could be taken of {len(rows)} slides; {reason}")
    return PatchSample(np.concatenate(pixels)[:num_patches], tuple(fingerprints))


def _read(
    slide: Slide, pyramid: PatchPyramid, steps: Sequence[int], quota: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """So many patches of one slide, the steps' shares as equal as they can be, lowest first."""
    for position, index in enumerate(steps):
        step = pyramid.steps[index]
        present = np.flatnonzero(step.valid)
        count = min(len(present), quota // (len(steps) - position))
        chosen = np.sort(rng.choice(present, count, replace=False))
        if count:
            corners = step.boxes[chosen, :2]
            yield slide.read_boxes(corners, step.patch_px, step.patch_px, step.mpp)
        quota -= count
