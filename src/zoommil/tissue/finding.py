"""Row 3, tissue: a slide and a spec, or a mask somebody drew, come in; a TissueMask comes out."""

from __future__ import annotations

import logging
from pathlib import Path

from zoommil.errors import TissueError
from zoommil.slides.slide import Slide
from zoommil.tissue.mask import SlideFrame, TissueMask
from zoommil.tissue.reading import load_mask
from zoommil.tissue.spec import METHODS, TissueSpec
from zoommil.tissue.thumbnail import read_thumbnail, usable_mpp

_logger = logging.getLogger(__name__)


def find_tissue(
    slide: Slide, spec: TissueSpec | None = None, mask: TissueMask | Path | str | None = None
) -> TissueMask:
    """Where a slide has tissue.

    Args:
        slide: to look at.
        spec: how; the default finds all stained tissue.
        mask: a mask to use instead: a file (image or GeoJSON) or one made before.

    Raises:
        TissueError: the given mask cannot be read or is of another slide.
        SlideReadError: part of the slide cannot be decoded.
    """
    spec = TissueSpec() if spec is None else spec
    if isinstance(mask, TissueMask):
        if mask.frame.size != tuple(slide.size):
            raise TissueError(
                f"the mask is of a slide of {mask.frame.size[0]} x {mask.frame.size[1]}, "
                f"{slide.slide_id!r} has {slide.size[0]} x {slide.size[1]}. Pass its own mask."
            )
        return mask
    if mask is not None:
        return load_mask(mask, slide, spec=spec)
    if spec.method == "everything":
        return TissueMask.everything(slide)
    return _find(slide, spec)


def _find(slide: Slide, spec: TissueSpec) -> TissueMask:
    mpp = usable_mpp(slide, spec.mpp)
    thumbnail = read_thumbnail(slide, mpp)
    mask, warnings = METHODS.load(spec.method)(thumbnail, mpp, spec)
    if not mask.any():
        warnings = (*warnings, f"no tissue was found by method {spec.method!r}")
    for warning in warnings:
        _logger.warning("%s: %s", slide.slide_id, warning)
    return TissueMask(
        mask=mask,
        origin=(float(slide.bounds[0]), float(slide.bounds[1])),
        downsample=slide.downsample_of(mpp),
        frame=SlideFrame.of(slide),
        method=spec.method,
        spec=spec,
        warnings=warnings,
        thumbnail=thumbnail,
    )
