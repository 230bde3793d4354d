"""Row 1, showing: an open slide comes in; how notebooks show it goes out, as HTML or on axes.

Axes are in level-0 pixels, x to the right and y down, so that whatever has level-0 boxes can be
drawn over the slide.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import ZoomMILError
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zoommil.slides.slide import Slide

HTML_PX, PLOT_PX = 360, 1000
_BAND_PX = 256


def thumbnail_of(slide: Slide, longest_px: int) -> UInt8[np.ndarray, "height width 3"]:
    """The slide's bounds, the longer side so many pixels; read in bands, whatever its size."""
    x, y, width, height = slide.bounds
    downsample = max(1.0, max(width, height) / longest_px)
    mpp = slide.mpp * downsample
    if slide.scale == "nominal":  # there mpp stands for a magnification
        mpp *= downsample / slide.downsample_of(mpp)
    columns, rows = max(1, int(width / downsample)), max(1, int(height / downsample))
    picture = np.empty((rows, columns, 3), np.uint8)
    for top in range(0, rows, _BAND_PX):
        num = min(_BAND_PX, rows - top)
        picture[top : top + num] = slide.read(x, y + top * downsample, columns, num, mpp)
    return picture


def slide_html(slide: Slide) -> str:
    """A thumbnail with what the file is beside it."""
    about = slide.describe()
    width, height = about.size
    facts = [
        ("size", f"{width} x {height} px, {width * slide.mpp / 1e3:.1f} x "
         f"{height * slide.mpp / 1e3:.1f} mm"),
        ("resolution", f"{about.mpp:.4g} µm per pixel ({about.mpp_source}), "
         f"{magnification_label(round(about.magnification, 2))}"),
        ("levels", ", ".join(f"1/{level.downsample:.4g}" for level in about.levels)),
        ("reader", f"{about.reader}, {about.vendor}"),
        *(("note", warning) for warning in about.warnings),
    ]  # fmt: skip
    try:
        uri = picture_uri(thumbnail_of(slide, HTML_PX))
        picture = f'<img src="{uri}" alt="{escape(about.slide_id, quote=True)}">'
    except ZoomMILError as error:  # closed, or it cannot be decoded
        picture, facts = "", [*facts, ("not shown", str(error))]
    return side_by_side(about.slide_id, picture, facts)


def plot_slide(slide: Slide, axes: Axes | None = None, longest_px: int = PLOT_PX) -> Axes:
    """Draw the slide on axes of level-0 pixels, new ones unless given."""
    x, y, width, height = slide.bounds
    axes = level_0_axes(axes)
    axes.imshow(thumbnail_of(slide, longest_px), extent=(x, x + width, y + height, y))
    axes.set_title(slide.slide_id)
    return axes


def level_0_axes(axes: Axes | None) -> Axes:
    """Axes whose y grows downwards and whose pixels are square."""
    if axes is None:
        from matplotlib import pyplot  # its figures are what notebooks show at a cell's end

        axes = pyplot.figure(figsize=(7, 7), layout="constrained").add_subplot()
    axes.set_aspect("equal")
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.set_xlabel("level-0 px")
    return axes


def picture_uri(picture: UInt8[np.ndarray, "height width 3"]) -> str:
    """A picture as a JPEG inside a URI."""
    import simplejpeg

    pixels = np.ascontiguousarray(picture)
    data = simplejpeg.encode_jpeg(pixels, quality=85, colorspace="RGB")
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"


def side_by_side(title: str, picture: str, facts: Sequence[tuple[str, str]]) -> str:
    """HTML of a picture (HTML itself) and a table of texts, under a title."""
    cell = "text-align:left;vertical-align:top;padding:2px 14px 2px 0"
    rows = "".join(
        f'<tr><th style="{cell};font-weight:normal;opacity:.7">{escape(name)}</th>'
        f'<td style="{cell}">{escape(text)}</td></tr>'
        for name, text in facts
    )
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:18px;align-items:flex-start">'
        f'<div style="max-width:{HTML_PX}px">{picture}</div>'
        f"<div><b>{escape(title)}</b><table>{rows}</table></div></div>"
    )
