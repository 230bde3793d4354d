"""Row 1, slides: a region of one level comes in, the same region at another scale goes out.

An antialiasing triangle filter in whole numbers. The weights of an output pixel are integers that
sum to 2**11, so white stays white and every sum is exact: the pixels are the same on every machine,
for every thread count, and whether computed alone or as a part of a larger region.

For that the position of a pixel must not depend on where the region begins. Corners are rounded
once, to 1/256 of an output pixel; a pixel's centre is then an exact number of output pixels from
the slide's corner, and everything else follows from that number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int32, UInt8

WEIGHT_BITS = 11
_MIDDLE_SHIFT = 7  # 8 + 11 bits down to 12 between the two passes
_FINAL_SHIFT = 8 + WEIGHT_BITS + WEIGHT_BITS - _MIDDLE_SHIFT - 8
_CORNER_STEPS = 256
_NEAREST_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Axis:
    """How the output pixels of one axis are made from the source pixels of one level.

    ``first`` is the first source pixel needed, ``length`` how many from there on. Without
    ``weights`` each output pixel is the source pixel ``taps[:, 0]`` (relative to ``first``).
    """

    first: int
    length: int
    taps: Int[np.ndarray, "output tap"]
    weights: Int32[np.ndarray, "output tap"] | None

    @property
    def is_slice(self) -> bool:
        """Whether the output is simply the source pixels as they are."""
        return self.weights is None and self.length == len(self.taps)


def snapped(corner: float) -> float:
    """A corner, in output pixels, rounded to 1/256 of one."""
    return math.floor(corner * _CORNER_STEPS + 0.5) / _CORNER_STEPS


def is_native(*scales: float) -> bool:
    """Whether source pixels can be taken as they are at these scales (one per axis)."""
    return all(abs(scale - 1) <= _NEAREST_TOLERANCE for scale in scales)


def sample_axis(corner: float, count: int, scale: float, *, nearest: bool) -> Axis:
    """The sampling of ``count`` output pixels from a snapped corner on.

    Args:
        corner: distance of the first output pixel's edge from the slide's, in output pixels.
        count: the number of output pixels.
        scale: source pixels per output pixel.
        nearest: take single source pixels instead of weighing several.
    """
    centres = (corner + np.arange(count) + 0.5) * scale
    if nearest:
        taps = np.floor(centres).astype(np.int64)[:, None]
        weights = None
    else:
        taps, weights = _triangle(centres, max(1.0, scale))
    first = int(taps[0, 0])
    return Axis(first, int(taps[-1, -1]) - first + 1, taps - first, weights)


def _triangle(
    centres: np.ndarray, radius: float
) -> tuple[Int[np.ndarray, "output tap"], Int32[np.ndarray, "output tap"]]:
    num_taps = math.ceil(2 * radius) + 1
    taps = np.floor(centres - radius + 0.5).astype(np.int64)[:, None] + np.arange(num_taps)
    heights = np.maximum(0.0, radius - np.abs(taps + 0.5 - centres[:, None]))
    total = 1 << WEIGHT_BITS
    weights = np.floor(heights * (total / heights.sum(1, keepdims=True)) + 0.5).astype(np.int32)
    rows = np.arange(len(centres))
    weights[rows, heights.argmax(1)] += total - weights.sum(1, dtype=np.int32)
    return taps, weights


def resample(
    region: UInt8[np.ndarray, "source_height source_width 3"], rows: Axis, columns: Axis
) -> UInt8[np.ndarray, "height width 3"]:
    """The output pixels of a region that begins at (columns.first, rows.first) of its level."""
    if rows.weights is None or columns.weights is None:
        return _take(region, rows, columns)
    import cv2

    height, width = len(rows.taps), len(columns.taps)
    source = region.reshape(rows.length, columns.length * 3).astype(np.int32)
    middle = _weighted(rows, source, _MIDDLE_SHIFT).reshape(height, columns.length, 3)
    turned = cv2.transpose(middle).reshape(columns.length, height * 3)
    final = _weighted(columns, turned, _FINAL_SHIFT).astype(np.uint8)
    return cv2.transpose(final.reshape(width, height, 3))


def _take(region: np.ndarray, rows: Axis, columns: Axis) -> np.ndarray:
    if not rows.is_slice:
        region = region[rows.taps[:, 0]]
    return region if columns.is_slice else np.ascontiguousarray(region[:, columns.taps[:, 0]])


def _weighted(axis: Axis, source: np.ndarray, shift: int) -> np.ndarray:
    """Weighted sums over the first axis, rounded, in exact integers."""
    from scipy.sparse import csr_array

    assert axis.weights is not None
    num_outputs, num_taps = axis.taps.shape
    ends = np.arange(0, num_outputs * num_taps + 1, num_taps, dtype=np.int32)
    matrix = csr_array(
        (axis.weights.ravel(), axis.taps.ravel().astype(np.int32), ends),
        shape=(num_outputs, axis.length),
    )
    sums = matrix @ source
    sums += 1 << (shift - 1)
    sums >>= shift
    return sums


def halved(
    region: UInt8[np.ndarray, "double_height double_width 3"],
) -> UInt8[np.ndarray, "height width 3"]:
    """The region at half its size: the rounded mean of each 2 x 2 pixels, halves rounded up."""
    import cv2

    size = (region.shape[1] // 2, region.shape[0] // 2)
    return cv2.resize(np.ascontiguousarray(region), size, interpolation=cv2.INTER_AREA)
