"""Row 3, tissue: a mask file comes in (image or GeoJSON), a TissueMask comes out."""

from __future__ import annotations

import logging
from pathlib import Path

from zoommil.errors import TissueError
from zoommil.slides.slide import Slide
from zoommil.tissue.mask import TissueMask
from zoommil.tissue.spec import TissueSpec

_logger = logging.getLogger(__name__)

_GEOJSON = (".geojson", ".json")


def load_mask(path: Path | str, slide: Slide, *, spec: TissueSpec | None = None) -> TissueMask:
    """The mask in a file, laid over a slide.

    Args:
        path: an image (nonzero is tissue) or GeoJSON (as QuPath exports it).
        slide: the slide it was drawn on.
        spec: gives ``mask_frame``, and the resolution that polygons are drawn at.

    Raises:
        TissueError: it cannot be read, or was not drawn on this slide.
    """
    path = Path(path)
    spec = TissueSpec() if spec is None else spec
    if not path.is_file():
        raise TissueError(f"mask {str(path)!r} is not a file. Check the mask_path of this slide.")
    if path.suffix.lower() in _GEOJSON:
        from zoommil.tissue.drawn import load_drawn_mask as load
    else:
        from zoommil.tissue.painted import load_painted_mask as load
    mask = load(path, slide, spec)
    for warning in mask.warnings:
        _logger.warning("%s: %s", slide.slide_id, warning)
    return mask
