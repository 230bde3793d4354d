"""Row 1, slides: pixels with an alpha channel come in, the same on white go out."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

OPAQUE = 255


def on_white(
    rgba: UInt8[np.ndarray, "height width 4"], *, is_premultiplied: bool = False
) -> UInt8[np.ndarray, "height width 3"]:
    """RGB pixels as they look on white paper: transparent is white, never black.

    Args:
        rgba: colour and alpha.
        is_premultiplied: whether colour is already multiplied by alpha ("associated" in TIFF).
    """
    import cv2

    alpha = rgba[..., 3]
    if alpha.min() == OPAQUE:
        return cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB)
    alpha = alpha[..., None].astype(np.uint16)
    if is_premultiplied:
        return np.minimum(rgba[..., :3] + (OPAQUE - alpha), OPAQUE).astype(np.uint8)
    blend = rgba[..., :3] * alpha + OPAQUE * (OPAQUE - alpha) + OPAQUE // 2
    return (blend // OPAQUE).astype(np.uint8)
