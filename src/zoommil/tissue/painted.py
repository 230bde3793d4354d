"""Row 3, tissue: an image file comes in, the mask it paints over a slide comes out.

Images of any size are stretched over the whole slide or over its bounds, whichever has their
shape; those this package wrote say themselves where they lie.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from zoommil.errors import TissueError
from zoommil.files import file_hash
from zoommil.slides.slide import Slide
from zoommil.tissue.mask import SlideFrame, TissueMask
from zoommil.tissue.raster import RASTER_KEY, Raster
from zoommil.tissue.spec import TissueSpec

_SHAPE_TOLERANCE = 0.01


def load_painted_mask(path: Path, slide: Slide, spec: TissueSpec) -> TissueMask:
    """The mask in an image: nonzero pixels are tissue.

    Raises:
        TissueError: it cannot be read, or has another shape than the slide.
    """
    pixels, text = _read(path)
    origin, downsample = None, 0.0
    if text is not None:
        width, height = slide.size
        raster = Raster.parse(text, path.name, slide.slide_id, (width, height))
        if pixels.shape == (raster.height, raster.width):  # not resized since
            origin, downsample = raster.origin, raster.downsample
    if origin is None:
        x, y, width, height = _frame_of(path, pixels.shape, slide, spec)
        origin = (float(x), float(y))
        pixels, downsample = _with_square_pixels(pixels, width, height)
    return TissueMask(
        mask=pixels,
        origin=origin,
        downsample=downsample,
        frame=SlideFrame.of(slide),
        method="image",
        spec=spec,
        warnings=() if pixels.any() else ("the given mask is empty",),
        source_hash=file_hash(path),
    )


def _read(path: Path) -> tuple[Bool[np.ndarray, "height width"], str | None]:
    """The pixels that are tissue, and the text that places them if there is one."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                text = getattr(image, "text", {}).get(RASTER_KEY)
                return _is_tissue(image), text
    except Image.DecompressionBombError as error:
        raise TissueError(
            f"mask {path.name!r} has too many pixels. Save it smaller; 8 um per pixel is enough."
        ) from error
    except (OSError, ValueError, SyntaxError) as error:
        raise TissueError(
            f"mask {path.name!r} cannot be read as an image ({type(error).__name__}). "
            "Give a PNG, TIFF or JPEG, or a .geojson file."
        ) from error


def _is_tissue(image: Any) -> Bool[np.ndarray, "height width"]:
    """Nonzero pixels; above half for JPEG, whose zeros are not quite. Transparent ones are not."""
    pixels = np.asarray(image)
    if pixels.dtype == bool:
        return pixels
    has_alpha = image.mode in {"LA", "RGBA"}
    colours = pixels[..., :-1] if has_alpha else pixels
    tissue = np.asarray(colours > 127 if image.format == "JPEG" else colours != 0)
    if tissue.ndim == 3:
        tissue = np.any(tissue, axis=2)
    return np.logical_and(tissue, pixels[..., -1]) if has_alpha else tissue


def _frame_of(
    path: Path, shape: tuple[int, ...], slide: Slide, spec: TissueSpec
) -> tuple[int, int, int, int]:
    """The level-0 area a mask image covers: the whole slide, or its bounds."""
    frames = {"slide": (0, 0, *slide.size), "bounds": tuple(slide.bounds)}
    wanted = ("slide", "bounds") if spec.mask_frame == "auto" else (spec.mask_frame,)
    for name in wanted:
        x, y, width, height = frames[name]
        if _has_shape(shape, width, height):
            return x, y, width, height
    areas = " nor ".join(f"the {name}'s {frames[name][2]} x {frames[name][3]}" for name in wanted)
    raise TissueError(
        f"mask {path.name!r} of {shape[1]} x {shape[0]} has not the shape of {areas} "
        f"of {slide.slide_id!r}. Draw it over the whole slide, at any size."
    )


def _has_shape(shape: tuple[int, ...], width: float, height: float) -> bool:
    """Whether an image can be an area shrunk, its sides rounded either way."""
    rows, columns = shape
    ratio = (height / rows) / (width / columns)
    return abs(math.log(ratio)) <= _SHAPE_TOLERANCE + 1 / rows + 1 / columns


def _with_square_pixels(
    pixels: Bool[np.ndarray, "height width"], width: float, height: float
) -> tuple[Bool[np.ndarray, "new_height new_width"], float]:
    """A mask stretched over an area, sampled to one downsample for both axes; and that."""
    rows, columns = pixels.shape
    across, down = width / columns, height / rows
    downsample = min(across, down)
    if math.isclose(across, down, rel_tol=1e-9):
        return pixels, downsample
    x = (np.arange(math.ceil(width / downsample)) + 0.5) * downsample / across
    y = (np.arange(math.ceil(height / downsample)) + 0.5) * downsample / down
    column = np.minimum(x.astype(np.int64), columns - 1)
    row = np.minimum(y.astype(np.int64), rows - 1)
    return pixels[row[:, None], column[None, :]], downsample
