"""Row 13, legend: a heatmap comes in; it goes out with title, colour bar, scale bar and key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from zoommil.reports.colours import CHOSEN, INK, MUTED, PAPER, TRUTH
from zoommil.reports.drawing import colour_bar, fitted, font_of, scale_bar, text_width
from zoommil.reports.frame import PictureFrame

_NARROWEST_PX = 420
_MARGIN = 0.9  # in lines of text


@dataclass(frozen=True)
class Legend:
    """What is written around a heatmap.

    Attributes:
        title, subtitle: above it.
        meaning: what the colours stand for.
        ends: what stands at the left and the right end of the colour bar.
        has_chosen, has_truth: which outlines to explain.
    """

    title: str
    subtitle: str
    meaning: str
    ends: tuple[str, str]
    has_chosen: bool = True
    has_truth: bool = False


def with_legend(
    picture: UInt8[np.ndarray, "height width 3"], frame: PictureFrame, legend: Legend
) -> UInt8[np.ndarray, "tall wide 3"]:
    """The picture, its pixels as they are, with text above and a key below."""
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    wide = max(width, _NARROWEST_PX)
    size = max(11, round(wide / 62))
    margin = round(size * _MARGIN)
    above, below = round(size * 3.6) + margin, round(size * 7.2)
    sheet = Image.new("RGB", (wide + 2 * margin, above + height + below), PAPER)
    left = margin + (wide - width) // 2
    sheet.paste(Image.fromarray(picture), (left, above))
    draw = ImageDraw.Draw(sheet)
    large = round(size * 1.25)
    draw.text((margin, margin), fitted(legend.title, large, wide), fill=INK, font=font_of(large))
    text = fitted(legend.subtitle, size, wide)
    draw.text((margin, margin + round(size * 1.75)), text, fill=MUTED, font=font_of(size))
    _draw_key(sheet, draw, (margin, above + height + margin), wide, size, frame, legend)
    return np.asarray(sheet)


def _draw_key(
    sheet: Any,
    draw: Any,
    corner: tuple[int, int],
    wide: int,
    size: int,
    frame: PictureFrame,
    legend: Legend,
) -> None:
    """Colour bar at the left, scale bar at the right, the lines' meaning below."""
    from PIL import Image

    x, y = corner
    bar = colour_bar(round(wide * 0.52), size)
    draw.text((x, y), fitted(legend.meaning, size, bar.shape[1]), fill=INK, font=font_of(size))
    sheet.paste(Image.fromarray(bar), (x, y + round(size * 1.6)))
    low, high = legend.ends
    line = y + round(size * 2.8)
    draw.text((x, line), low, fill=MUTED, font=font_of(size))
    right = x + bar.shape[1] - text_width(high, size)
    draw.text((right, line), high, fill=MUTED, font=font_of(size))
    _draw_scale(draw, (x + wide, y), wide, size, frame)
    _draw_lines(draw, (x, y + round(size * 4.6)), size, legend)


def _draw_scale(
    draw: Any, corner: tuple[int, int], wide: int, size: int, frame: PictureFrame
) -> None:
    """The scale bar, its right end at the corner."""
    found = scale_bar(frame, wide * 0.32)
    if found is None:
        return
    length, text = found
    right, y = corner
    bar = (right - round(length), y + round(size * 1.6), right - 1, y + round(size * 1.9))
    draw.rectangle(bar, fill=INK)
    draw.text((right - text_width(text, size), y), text, fill=INK, font=font_of(size))


def _draw_lines(draw: Any, corner: tuple[int, int], size: int, legend: Legend) -> None:
    """A sample and a word for each kind of outline."""
    x, y = corner
    entries: list[tuple[str, Callable[[tuple[int, int, int, int]], None]]] = []
    if legend.has_chosen:
        entries.append(("zoomed into", lambda box: _draw_chosen(draw, box)))
    if legend.has_truth:
        entries.append(("annotated", lambda box: draw.ellipse(box, outline=TRUTH, width=3)))
    for text, draw_sample in entries:
        draw_sample((x, y, x + size, y + size))
        draw.text((x + round(size * 1.6), y - 1), text, fill=INK, font=font_of(size))
        x += round(size * 3.2) + text_width(text, size)


def _draw_chosen(draw: Any, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    draw.rectangle(box, fill=MUTED, outline=INK, width=1)
    draw.rectangle((left + 2, top + 2, right - 2, bottom - 2), outline=CHOSEN, width=2)
