"""Row 3, tissue: a GeoJSON file of outlines comes in, the mask they enclose comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from zoommil.errors import TissueError
from zoommil.files import file_hash
from zoommil.slides.slide import Slide
from zoommil.tissue.geojson import polygons_of
from zoommil.tissue.mask import SlideFrame, TissueMask
from zoommil.tissue.outlines import rasterise
from zoommil.tissue.raster import RASTER_KEY, Raster
from zoommil.tissue.spec import TissueSpec
from zoommil.tissue.thumbnail import thumbnail_shape, usable_mpp

_OUTSIDE_WORTH_SAYING = 0.05


def load_drawn_mask(path: Path, slide: Slide, spec: TissueSpec) -> TissueMask:
    """The mask that a GeoJSON file's polygons enclose, on the raster they came from or the spec's.

    Raises:
        TissueError: it is not GeoJSON, has no areas or lies outside the slide.
    """
    polygons, raster = _read(path, slide)
    x, y, _, _ = slide.bounds
    in_bounds = (raster.frame if raster else spec.mask_frame) == "bounds"
    shift = (x, y) if in_bounds else (0, 0)
    notes = _check_overlap(path, slide, polygons, shift)
    if raster is None:
        mpp = usable_mpp(slide, spec.mpp)
        origin, downsample = (float(x), float(y)), slide.downsample_of(mpp)
        shape = thumbnail_shape(slide, mpp)
        if (x, y) != (0, 0) and spec.mask_frame == "auto":
            notes += (
                "the given GeoJSON was taken to be in level-0 pixels of the whole file; QuPath "
                "counts from the bounds' corner: mask_frame = 'bounds' says so",
            )
    else:
        origin, downsample = raster.origin, raster.downsample
        shape = (raster.height, raster.width)
    corner = (origin[0] - shift[0], origin[1] - shift[1])
    pixels = rasterise(polygons, corner, downsample, shape)
    if not pixels.any():
        notes += ("the given mask is empty",)
    return TissueMask(
        mask=pixels,
        origin=origin,
        downsample=downsample,
        frame=SlideFrame.of(slide),
        method="geojson",
        spec=spec,
        warnings=notes,
        source_hash=file_hash(path),
    )


def _read(path: Path, slide: Slide) -> tuple[list[Any], Raster | None]:
    """The polygons of a file, and the raster they came from if it says so."""
    from shapely.errors import ShapelyError

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        polygons, num_others = polygons_of(content)
    except (ValueError, LookupError, TypeError, AttributeError, ShapelyError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TissueError(
            f"mask {path.name!r} is not GeoJSON ({reason}). "
            "Export it from QuPath as a FeatureCollection."
        ) from error
    if num_others and not polygons:
        raise TissueError(
            f"mask {path.name!r} has {num_others} objects but no area. Draw polygons around tissue."
        )
    if not isinstance(content, dict) or RASTER_KEY not in content:
        return polygons, None
    width, height = slide.size
    return polygons, Raster.parse(content[RASTER_KEY], path.name, slide.slide_id, (width, height))


def _check_overlap(
    path: Path, slide: Slide, polygons: list[Any], shift: tuple[int, int]
) -> tuple[str, ...]:
    """A note when some of the polygons' area is outside the slide; an error when all of it is."""
    import shapely

    if not polygons:
        return ()
    width, height = slide.size
    area = shapely.box(-shift[0], -shift[1], width - shift[0], height - shift[1])
    shapes = shapely.make_valid(np.array(polygons, dtype=object))
    total = float(shapely.area(shapes).sum())
    inside = float(shapely.area(shapely.intersection(shapes, area)).sum())
    if inside <= 0:
        left, top, right, bottom = shapely.total_bounds(shapes)
        raise TissueError(
            f"mask {path.name!r} lies at x {left:g} to {right:g}, y {top:g} to {bottom:g}, outside "
            f"{slide.slide_id!r} of {width} x {height}. Give the file drawn on this slide, in "
            "level-0 pixels."
        )
    outside = 1 - inside / total
    if outside <= _OUTSIDE_WORTH_SAYING:
        return ()
    return (f"{100 * outside:.0f}% of the given mask's area lies outside the slide",)
