"""Row 13, drawing: outlines, text, colour bars and scale bars for pictures of slides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.reports.colours import RGB, colour_table
from zoommil.reports.frame import PictureFrame
from zoommil.reports.truth import Region
from zoommil.reports.values import pixel_edges

_HALO: RGB = (0, 0, 0)
_BARS_UM = (1, 2, 5)


def outline_boxes(
    picture: UInt8[np.ndarray, "height width 3"],
    boxes: Float[np.ndarray, "patch 4"],
    colour: RGB,
    thickness: int = 1,
) -> None:
    """Draw boxes, given in the picture's pixels: a line inside their edges, with a dark halo."""
    import cv2

    for grow, paint in ((1, _HALO), (0, colour)):
        for left, top, right, bottom in pixel_edges(boxes):
            corners = (
                (int(left) + grow, int(top) + grow),
                (int(right) - 1 - grow, int(bottom) - 1 - grow),
            )
            if grow and min(right - left, bottom - top) < 6 * thickness:
                continue  # too small for a halo
            cv2.rectangle(picture, *corners, paint, thickness)


def outline_regions(
    picture: UInt8[np.ndarray, "height width 3"],
    regions: Sequence[Region],
    frame: PictureFrame,
    colour: RGB,
    thickness: int = 2,
) -> None:
    """Draw annotated areas: a coloured line on a dark one, to a fraction of a pixel."""
    import cv2

    fraction_bits = 4
    for region in regions:
        # cv2 counts from the centres of pixels, a frame from their corners.
        rings = [(frame.to_picture(ring) - 0.5) * 2**fraction_bits for ring in region.rings]
        points = [np.rint(ring).astype(np.int32).reshape(-1, 1, 2) for ring in rings]
        for extra, paint in ((2, _HALO), (0, colour)):
            cv2.polylines(
                picture, points, True, paint, thickness + extra, cv2.LINE_AA, fraction_bits
            )


@cache
def font_of(size_px: int) -> Any:
    """DejaVu Sans, which has the letters of most languages; it comes with Matplotlib."""
    from PIL import ImageFont

    spec = find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    fonts = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(str(fonts / "DejaVuSans.ttf"), size_px)


def text_width(text: str, size_px: int) -> int:
    """Pixels a line of text takes."""
    return math.ceil(font_of(size_px).getlength(text))


def fitted(text: str, size_px: int, width_px: int) -> str:
    """The text, cut short with an ellipsis where it would be wider."""
    if text_width(text, size_px) <= width_px:
        return text
    while text and text_width(f"{text}…", size_px) > width_px:
        text = text[:-1]
    return f"{text.rstrip()}…"


def colour_bar(width_px: int, height_px: int) -> UInt8[np.ndarray, "height width 3"]:
    """The whole colour map from left to right."""
    index = np.clip(np.linspace(0, 255, width_px).round(), 0, 255).astype(np.uint8)
    return np.broadcast_to(colour_table()[index], (height_px, width_px, 3)).copy()


def scale_bar(frame: PictureFrame, longest_px: float) -> tuple[float, str] | None:
    """The length in pixels and the text of the longest round scale bar; None: mpp not known."""
    mpp = frame.picture_mpp
    if mpp is None:
        return None
    room = longest_px * mpp
    power = 10.0 ** math.floor(math.log10(room))
    length = max(part * power for part in _BARS_UM if part * power <= room)
    return length / mpp, f"{length:,.0f} µm".replace(",", " ") if length >= 1 else f"{length:g} µm"
