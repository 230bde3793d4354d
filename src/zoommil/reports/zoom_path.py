"""Row 13, zoom path: a prediction and its slide come in; an SVG of where it went goes out.

The file stands alone: the slide is an embedded JPEG, every box says what it is when pointed at, and
the steps are groups with ids of their own, for whoever edits or animates it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from jaxtyping import UInt8

from zoommil.grid.showing import STEP_COLOURS
from zoommil.inference.geojson import NUM_TOP, zoom_path
from zoommil.inference.prediction import Prediction
from zoommil.reports.colours import TRUTH, as_hex
from zoommil.reports.drawing import scale_bar
from zoommil.reports.frame import PictureFrame, boxes_of, frame_of_slide, read_picture
from zoommil.reports.truth import Region
from zoommil.slides.slide import Slide
from zoommil.units import magnification_label

LONGEST_PX = 1000


def draw_zoom_path(
    prediction: Prediction,
    slide: Slide,
    *,
    truth: Sequence[Region] = (),
    num_top: int = NUM_TOP,
    longest_px: int = LONGEST_PX,
) -> str:
    """The zoom path as a self-contained SVG document."""
    frame = frame_of_slide(slide, longest_px)
    return path_svg(prediction, frame, read_picture(slide, frame), truth=truth, num_top=num_top)


def path_svg(
    prediction: Prediction,
    frame: PictureFrame,
    background: UInt8[np.ndarray, "height width 3"],
    *,
    truth: Sequence[Region] = (),
    num_top: int = NUM_TOP,
    has_scale: bool = True,
) -> str:
    """The zoom path over a picture of the slide that is at hand already."""
    name = escape(f"{prediction.slide_id}: where it zoomed in", quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width} {frame.height}" '
        f'role="img" aria-label="{name}" font-family="sans-serif">',
        f"<title>{name}</title>",
        f'<image width="{frame.width}" height="{frame.height}" '
        f'href="{data_uri(background)}" preserveAspectRatio="none"/>',
        *_truth(truth, frame),
    ]
    for position, patches in enumerate(zoom_path(prediction, num_top)):
        parts += _step(prediction, position, patches, frame)
    scale = _scale(frame) if has_scale else ()
    return "\n".join([*parts, *scale, "</svg>", ""])


def data_uri(picture: UInt8[np.ndarray, "height width 3"], quality: int = 82) -> str:
    """A picture as a JPEG inside a URI."""
    import simplejpeg

    pixels = np.ascontiguousarray(picture)
    data = simplejpeg.encode_jpeg(pixels, quality=quality, colorspace="RGB", colorsubsampling="444")
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"


def _step(
    prediction: Prediction, position: int, patches: np.ndarray, frame: PictureFrame
) -> Iterator[str]:
    """The group of one step: its boxes, thick for coarse steps, filled for the last."""
    step = prediction.steps[position]
    is_last = position == len(prediction.steps) - 1
    colour = STEP_COLOURS[position % len(STEP_COLOURS)]
    line = max(1.0, 3.5 - position) * max(frame.width, frame.height) / 1000
    label = "" if step.magnification is None else magnification_label(step.magnification)
    yield (
        f'<g id="step-{position}" class="step" fill="{colour}" '
        f'fill-opacity="{0.35 if is_last else 0:g}" stroke="{colour}" stroke-width="{line:.2f}">'
    )
    boxes = frame.boxes_to_picture(boxes_of(prediction, position)[patches])
    for patch, (x, y, width, height) in zip(patches, boxes, strict=True):
        what = f"{label} row {step.rows[patch]}, attention {step.attention[patch]:.4f}"
        yield (
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}">'
            f"<title>{escape(what.strip())}</title></rect>"
        )
    yield "</g>"


def _truth(regions: Sequence[Region], frame: PictureFrame) -> Iterator[str]:
    if not regions:
        return
    width = 3 * max(frame.width, frame.height) / 1000
    dash = f"{4 * width:.1f} {2 * width:.1f}"
    outlines = [_outline(region, frame) for region in regions]
    halo = "".join(f'<path d="{path}"/>' for path in outlines)
    yield (
        f'<g id="truth-halo" fill="none" stroke="#fff" stroke-width="{2 * width:.2f}">{halo}</g>'
        f'<g id="truth" fill="none" stroke="{as_hex(TRUTH)}" stroke-width="{width:.2f}" '
        f'stroke-dasharray="{dash}">'
    )
    for region, path in zip(regions, outlines, strict=True):
        yield f'<path d="{path}"><title>{escape(region.name or "annotated")}</title></path>'
    yield "</g>"


def _outline(region: Region, frame: PictureFrame) -> str:
    """A region's rings as the data of an SVG path."""
    rings = (frame.to_picture(ring) for ring in region.rings)
    return " ".join(f"M{' L'.join(f'{x:.1f},{y:.1f}' for x, y in ring)}Z" for ring in rings)


def _scale(frame: PictureFrame) -> Iterator[str]:
    """A scale bar in the lower left corner, on a light ground."""
    found = scale_bar(frame, frame.width * 0.25)
    if found is None:
        return
    length, text = found
    unit = max(frame.width, frame.height) / 1000
    x, y = 16 * unit, frame.height - 16 * unit
    yield (
        f'<g id="scale"><rect x="{x - 8 * unit:.1f}" y="{y - 30 * unit:.1f}" rx="{4 * unit:.1f}" '
        f'width="{length + 16 * unit:.1f}" height="{38 * unit:.1f}" fill="#fff" '
        f'fill-opacity=".85"/><rect x="{x:.1f}" y="{y - 4 * unit:.1f}" width="{length:.1f}" '
        f'height="{4 * unit:.1f}" fill="#1c2026"/><text x="{x:.1f}" y="{y - 10 * unit:.1f}" '
        f'font-size="{16 * unit:.1f}" fill="#1c2026">{escape(text)}</text></g>'
    )
