"""Row 0, units: microns per pixel, magnification and boxes; said once, used everywhere.

Conventions of the whole package:

* geometry is (x, y) and (width, height); arrays are (height, width, channel);
* ``mpp`` is microns per pixel, the truth that code computes with;
* ``magnification`` is the nominal number people say, ``10 / mpp`` (40x = 0.25 mpp);
* a box is ``(x, y, width, height)`` in level-0 pixels, real numbers, rounded only when read.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

MPP_TIMES_MAGNIFICATION = 10.0
PLAUSIBLE_MPP = (0.02, 20.0)

_NOMINAL_BUCKETS = ((0.16, 80.0), (0.2, 60.0), (0.3, 40.0), (0.6, 20.0), (1.2, 10.0), (2.4, 5.0))


def mpp_of(magnification: float) -> float:
    """The microns per pixel that a magnification stands for."""
    return MPP_TIMES_MAGNIFICATION / magnification


def magnification_of(mpp: float) -> float:
    """The exact (not nominal) magnification of a resolution."""
    return MPP_TIMES_MAGNIFICATION / mpp


def nominal_magnification(mpp: float) -> float | None:
    """The scanner objective a resolution is usually called by, or None above 2.4 um per pixel."""
    for upper, magnification in _NOMINAL_BUCKETS:
        if mpp < upper:
            return magnification
    return None


def is_plausible_mpp(mpp: float | None) -> bool:
    """Whether a number can be a slide's resolution; 72 dpi (352.8), 0 and NaN cannot."""
    if mpp is None or not math.isfinite(mpp):
        return False
    return PLAUSIBLE_MPP[0] <= mpp <= PLAUSIBLE_MPP[1]


def magnification_label(magnification: float) -> str:
    """A magnification as people write it: ``1.25x``, ``10x``."""
    return f"{magnification:g}x"


def rounded_corners(boxes: Float[np.ndarray, "patch 4"]) -> Int[np.ndarray, "patch 2"]:
    """The boxes' top-left corners as stored on disk: floor(corner + 0.5), int64."""
    return np.floor(boxes[:, :2] + 0.5).astype(np.int64)
