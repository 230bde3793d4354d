"""Row 13, colours: which colour stands for what, in every picture; safe for colour-blind eyes.

Values are drawn in viridis, which grows in lightness from end to end and keeps its order for
readers with any colour vision, and in greyscale print. Lines are of the Okabe-Ito palette, and
never told apart by their colour alone.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt8

RGB = tuple[int, int, int]

INK: RGB = (28, 32, 38)
MUTED: RGB = (96, 104, 114)
PAPER: RGB = (255, 255, 255)
CHOSEN: RGB = (255, 255, 255)
TRUTH: RGB = (213, 94, 0)


def colour_table() -> UInt8[np.ndarray, "256 3"]:
    """The 256 colours of viridis, lowest value first."""
    import cv2

    ramp = np.arange(256, dtype=np.uint8)[:, None]
    return cv2.cvtColor(cv2.applyColorMap(ramp, cv2.COLORMAP_VIRIDIS), cv2.COLOR_BGR2RGB)[:, 0]


def colours_of(shares: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """Parts of the colour bar, 0 to 1, as colours; NaN as the lowest."""
    index = np.clip(np.rint(np.nan_to_num(shares) * 255), 0, 255).astype(np.uint8)
    return colour_table()[index]


def as_hex(colour: RGB) -> str:
    """A colour as HTML and SVG spell it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
