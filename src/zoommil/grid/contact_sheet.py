"""Row 4, grid: pictures with names and captions come in, one sheet of them all comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

_INK = (30, 30, 30)
_PAPER = (255, 255, 255)
_MARGIN_PX = 12
_NAME_PX = 15
_CAPTION_PX = 12


def contact_sheet(
    entries: Sequence[tuple[str, UInt8[np.ndarray, "_ _ 3"], str]], *, num_columns: int = 4
) -> UInt8[np.ndarray, "height width 3"]:
    """One picture of many: each with its name above and its caption below.

    Args:
        entries: name, picture and caption of each slide, in order.
        num_columns: how many side by side.
    """
    from PIL import Image

    cell_width = max((image.shape[1] for _, image, _ in entries), default=1)
    texts = [_text_blocks(name, caption, cell_width) for name, _, caption in entries]
    columns = max(1, min(num_columns, len(entries)))
    rows = [
        range(first, min(first + columns, len(entries)))
        for first in range(0, len(entries), columns)
    ]
    heights = [max(_entry_height(entries[i][1], texts[i]) for i in row) for row in rows]
    size = (
        _MARGIN_PX + columns * (cell_width + _MARGIN_PX),
        _MARGIN_PX + sum(height + _MARGIN_PX for height in heights),
    )
    sheet = Image.new("RGB", size, _PAPER)
    top = _MARGIN_PX
    for row, height in zip(rows, heights, strict=True):
        for column, i in enumerate(row):
            left = _MARGIN_PX + column * (cell_width + _MARGIN_PX)
            _place(sheet, (left, top), entries[i][1], texts[i])
        top += height + _MARGIN_PX
    return np.asarray(sheet)


def _text_blocks(name: str, caption: str, width_px: int) -> tuple[list[str], list[str]]:
    """Name and caption broken into lines that fit."""
    return _wrap(name, width_px, _NAME_PX), _wrap(caption, width_px, _CAPTION_PX)


def _wrap(text: str, width_px: int, font_px: int) -> list[str]:
    """Lines of a text that fit a width, broken at spaces, inside words where there are none."""
    font, lines = _font(font_px), []
    for line in text.splitlines():
        current = ""
        for word in line.split():
            joined = f"{current} {word}".strip()
            if font.getlength(joined) <= width_px:
                current = joined
                continue
            if current:
                lines.append(current)
            *full, current = _pieces(word, font, width_px)
            lines += full
        lines.append(current)
    return lines


def _pieces(word: str, font: Any, width_px: int) -> list[str]:
    """A word cut into pieces that fit, one character at least."""
    pieces = [""]
    for character in word:
        if pieces[-1] and font.getlength(pieces[-1] + character) > width_px:
            pieces.append("")
        pieces[-1] += character
    return pieces


def _font(font_px: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(font_px)


def _line_height(font_px: int) -> int:
    return math.ceil(font_px * 1.35)


def _entry_height(image: UInt8[np.ndarray, "_ _ 3"], text: tuple[list[str], list[str]]) -> int:
    names, captions = text
    return (
        len(names) * _line_height(_NAME_PX)
        + image.shape[0]
        + _MARGIN_PX // 2
        + len(captions) * _line_height(_CAPTION_PX)
    )


def _place(
    sheet: Any,
    corner: tuple[int, int],
    image: UInt8[np.ndarray, "_ _ 3"],
    text: tuple[list[str], list[str]],
) -> None:
    """Draw one entry with its top-left corner there."""
    from PIL import Image, ImageDraw

    draw = ImageDraw.Draw(sheet)
    left, top = corner
    names, captions = text
    for line in names:
        draw.text((left, top), line, fill=_INK, font=_font(_NAME_PX))
        top += _line_height(_NAME_PX)
    sheet.paste(Image.fromarray(image), (left, top))
    top += image.shape[0] + _MARGIN_PX // 2
    for line in captions:
        draw.text((left, top), line, fill=_INK, font=_font(_CAPTION_PX))
        top += _line_height(_CAPTION_PX)
