"""Row 3, tissue: what is dark or coloured but not tissue; a thumbnail comes in, masks come out.

Haematoxylin and eosin run from purple to pink: red is never the weakest channel. Blue and green
ink is where it is, strongly; the faint rims and thin ends of such a stroke are found by their
touching it. Red and black ink have the hues of blood and of deep nuclei, so only the extreme is
taken, with a small rim.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int16, UInt8

_BLACK_LEVEL = 64  # brightest channel; the densest stained tissue at 8 um per pixel lies above
_BLACK_CHROMA = 24
_STRONG_SATURATION = 0.4
_STRONG_CHROMA = 60
_RED_SATURATION = 0.75
_RED_LEVEL = 130
_RIM_PX = 2


def extremes(
    image: UInt8[np.ndarray, "height width 3"],
) -> tuple[UInt8[np.ndarray, "height width"], UInt8[np.ndarray, "height width"]]:
    """Each pixel's brightest and darkest channel, much quicker than reducing the last axis."""
    red, green, blue = (image[:, :, channel] for channel in range(3))
    brightest = np.maximum(np.maximum(red, green), blue)
    return brightest, np.minimum(np.minimum(red, green), blue)


def black_areas(
    image: UInt8[np.ndarray, "height width 3"],
) -> Bool[np.ndarray, "height width"]:
    """Where the picture is black as no tissue is: borders, outside of the scan."""
    brightest, darkest = extremes(image)
    return (brightest < _BLACK_LEVEL) & (brightest - darkest < _BLACK_CHROMA)


def ink_marks(
    image: UInt8[np.ndarray, "height width 3"],
) -> Bool[np.ndarray, "height width"]:
    """Where the picture is coloured as only ink is: blue, cyan, green or red pens."""
    red, green, blue = (image[:, :, channel].astype(np.int16) for channel in range(3))
    brightest, darkest = (part.astype(np.int16) for part in extremes(image))
    chroma = brightest - darkest
    return _cold_ink(red, green, blue, brightest, chroma) | _red_ink(red, green, blue, chroma)


def with_rim(
    mask: Bool[np.ndarray, "height width"], rim_px: int = _RIM_PX
) -> Bool[np.ndarray, "height width"]:
    """The mask grown by the pixels that its edge is mixed into."""
    import cv2

    kernel = np.ones((2 * rim_px + 1, 2 * rim_px + 1), np.uint8)
    return cv2.dilate(mask.astype(np.uint8), kernel) > 0


def _cold_ink(
    red: Int16[np.ndarray, "height width"],
    green: Int16[np.ndarray, "height width"],
    blue: Int16[np.ndarray, "height width"],
    brightest: Int16[np.ndarray, "height width"],
    chroma: Int16[np.ndarray, "height width"],
) -> Bool[np.ndarray, "height width"]:
    """Blue, cyan and green: red is the weakest channel; faint parts count if they touch strong."""
    faint = (green >= red - chroma // 8) & (np.maximum(green, blue) - red >= 8)
    strong = faint & (chroma >= _STRONG_CHROMA) & (chroma >= _STRONG_SATURATION * brightest)
    return _touching(faint, strong)


def _red_ink(
    red: Int16[np.ndarray, "height width"],
    green: Int16[np.ndarray, "height width"],
    blue: Int16[np.ndarray, "height width"],
    chroma: Int16[np.ndarray, "height width"],
) -> Bool[np.ndarray, "height width"]:
    """Pure reds, more saturated than blood at this resolution."""
    pure = (red >= _RED_LEVEL) & (chroma >= _RED_SATURATION * red)
    return pure & (np.abs(green - blue) <= chroma // 4)


def _touching(
    candidates: Bool[np.ndarray, "height width"], seeds: Bool[np.ndarray, "height width"]
) -> Bool[np.ndarray, "height width"]:
    """The connected components of the candidates that hold at least one seed."""
    import cv2

    if not seeds.any():
        return seeds
    num_labels, labels = cv2.connectedComponents(candidates.astype(np.uint8), connectivity=8)
    labels = np.asarray(labels, dtype=np.int32)
    is_kept = np.zeros(num_labels, dtype=bool)
    is_kept[labels[seeds]] = True
    is_kept[0] = False
    return is_kept[labels]
