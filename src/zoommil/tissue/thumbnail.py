"""Row 3, tissue: a slide comes in, a picture of all of it at one fixed resolution comes out.

The resolution is the spec's, on every machine: never chosen by how much memory is free. It is read
in bands, so that a file with a single huge level is never in memory as a whole.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8

from zoommil.slides.slide import Slide

_BAND_PX = 256


def usable_mpp(slide: Slide, mpp: float) -> float:
    """The resolution to look at a slide with: ``mpp``, or the scan's own when that is coarser."""
    return max(mpp, slide.mpp)


def thumbnail_shape(slide: Slide, mpp: float) -> tuple[int, int]:
    """Height and width of the thumbnail of a slide's bounds; the last pixels may stick out."""
    _, _, width, height = slide.bounds
    downsample = slide.downsample_of(mpp)
    return max(1, math.ceil(height / downsample)), max(1, math.ceil(width / downsample))


def read_thumbnail(
    slide: Slide, mpp: float, *, band_px: int = _BAND_PX
) -> UInt8[np.ndarray, "height width 3"]:
    """The slide's bounds at ``mpp``.

    Args:
        slide: to read.
        mpp: microns per pixel of the picture, no finer than the scan.
        band_px: rows per read; changes memory and speed, never a pixel.
    """
    x, y, _, _ = slide.bounds
    downsample = slide.downsample_of(mpp)
    height, width = thumbnail_shape(slide, mpp)
    thumbnail = np.empty((height, width, 3), dtype=np.uint8)
    for top in range(0, height, band_px):
        rows = min(band_px, height - top)
        thumbnail[top : top + rows] = slide.read(x, y + top * downsample, width, rows, mpp)
    return thumbnail
