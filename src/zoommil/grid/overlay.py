"""Row 4, grid: masks and pyramids come in, pictures to judge them by come out.

One look before anything is encoded: what is kept is in full colour, everything else is washed out;
the tissue's outline is green, the first step's patches are outlined in blue. A red frame says that
a slide needs attention.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, UInt8

from zoommil.grid.pyramid import PatchPyramid
from zoommil.slides.slide import Slide
from zoommil.tissue import TissueMask
from zoommil.tissue.saving import with_outline
from zoommil.tissue.thumbnail import read_thumbnail, usable_mpp

_CELL = (40, 80, 200)
_ATTENTION = (200, 30, 30)
_WASH = 0.65  # how far what is not kept goes towards light grey
_WASHED = 235.0
_TALLEST = 1.5  # height over the width that was asked for


def draw_overlay(
    slide: Slide, mask: TissueMask, pyramid: PatchPyramid, width_px: int = 480
) -> UInt8[np.ndarray, "height width 3"]:
    """The slide's bounds with its tissue outlined and the first step's patches drawn in.

    Args:
        slide: for its geometry, and its pixels when the mask has no thumbnail.
        mask: its tissue.
        pyramid: its patches.
        width_px: of the picture; less for slides that would be taller than 3:2.
    """
    x, y, width, height = slide.bounds
    width_px = max(1, min(width_px, round(_TALLEST * width_px * width / height)))
    height_px = max(1, round(width_px * height / width))
    picture = _picture(slide, mask, width_px, height_px)
    scale = width_px / width
    boxes = (pyramid.steps[0].boxes - np.array([x, y, 0, 0])) * scale
    picture = _wash(picture, ~_covered(boxes, height_px, width_px))
    outlined = with_outline(
        picture, _mask_over(mask, slide, height_px, width_px), thickness=_line_px(width_px)
    )
    _draw_cells(outlined, boxes)
    if pyramid.fallback or mask.is_empty:
        _frame(outlined, _ATTENTION, 2 * _line_px(width_px))
    return outlined


def caption_of(mask: TissueMask, pyramid: PatchPyramid) -> str:
    """What the picture cannot show, in lines: method, area, patches per step, warnings."""
    counts = ", ".join(f"{step.magnification:g}x {int(step.valid.sum())}" for step in pyramid.steps)
    lines = [f"{mask.method}: {mask.area_um2 / 1e6:.2f} mm2", f"patches: {counts}"]
    return "\n".join([*lines, *mask.warnings, *pyramid.warnings])


def _picture(
    slide: Slide, mask: TissueMask, width_px: int, height_px: int
) -> UInt8[np.ndarray, "height width 3"]:
    """The slide's bounds, resized to exactly the picture."""
    import cv2

    _, _, width, height = slide.bounds
    if mask.thumbnail is not None and mask.thumbnail.shape[1] >= width_px:
        thumbnail, downsample = mask.thumbnail, mask.downsample
    else:
        mpp = usable_mpp(slide, slide.mpp * width / width_px)
        thumbnail, downsample = read_thumbnail(slide, mpp), slide.downsample_of(mpp)
    columns = max(1, min(thumbnail.shape[1], round(width / downsample)))
    rows = max(1, min(thumbnail.shape[0], round(height / downsample)))
    shrinks = columns >= width_px
    return np.asarray(
        cv2.resize(
            thumbnail[:rows, :columns],
            (width_px, height_px),
            interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR,
        ),
        dtype=np.uint8,
    )


def _mask_over(
    mask: TissueMask, slide: Slide, height_px: int, width_px: int
) -> Bool[np.ndarray, "height width"]:
    """The mask sampled at the centres of the picture's pixels."""
    x, y, width, height = slide.bounds
    column = (x + (np.arange(width_px) + 0.5) * width / width_px - mask.origin[0]) / mask.downsample
    row = (y + (np.arange(height_px) + 0.5) * height / height_px - mask.origin[1]) / mask.downsample
    rows, columns = np.floor(row).astype(int), np.floor(column).astype(int)
    inside_rows = (rows >= 0) & (rows < mask.mask.shape[0])
    inside_columns = (columns >= 0) & (columns < mask.mask.shape[1])
    sampled = mask.mask[
        np.clip(rows, 0, mask.mask.shape[0] - 1)[:, None],
        np.clip(columns, 0, mask.mask.shape[1] - 1)[None, :],
    ]
    return sampled & inside_rows[:, None] & inside_columns[None, :]


def _covered(
    boxes: Float[np.ndarray, "patch 4"], height_px: int, width_px: int
) -> Bool[np.ndarray, "height width"]:
    covered = np.zeros((height_px, width_px), dtype=bool)
    for left, top, right, bottom in _corners(boxes):
        covered[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = True
    return covered


def _corners(boxes: Float[np.ndarray, "patch 4"]) -> list[tuple[int, int, int, int]]:
    """Left, top, right, bottom in picture pixels; neighbours share their edges."""
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    return [tuple(corner) for corner in np.rint(corners).astype(int).tolist()]


def _wash(
    picture: UInt8[np.ndarray, "height width 3"], where: Bool[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    washed = picture.copy()
    washed[where] = np.rint(picture[where] * (1 - _WASH) + _WASHED * _WASH).astype(np.uint8)
    return washed


def _draw_cells(
    picture: UInt8[np.ndarray, "height width 3"], boxes: Float[np.ndarray, "patch 4"]
) -> None:
    """Outline the cells, lightly where they are small."""
    import cv2

    if not len(boxes) or boxes[0, 2] < 3:
        return
    lines = picture.copy()
    for left, top, right, bottom in _corners(boxes):
        cv2.rectangle(lines, (left, top), (right, bottom), _CELL, 1)
    weight = 0.9 if boxes[0, 2] >= 24 else 0.5
    cv2.addWeighted(lines, weight, picture, 1 - weight, 0.0, dst=picture)


def _frame(
    picture: UInt8[np.ndarray, "height width 3"], colour: tuple[int, int, int], width_px: int
) -> None:
    picture[:width_px], picture[-width_px:] = colour, colour
    picture[:, :width_px], picture[:, -width_px:] = colour, colour


def _line_px(width_px: int) -> int:
    return max(1, math.ceil(width_px / 400))
