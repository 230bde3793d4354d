"""Row 3, tissue: a TissueMask comes in, its files come out: mask, outlines, pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from zoommil.files import atomic_path, write_text
from zoommil.tissue.geojson import raster_of
from zoommil.tissue.mask import TissueMask
from zoommil.tissue.raster import RASTER_KEY

_OUTLINE = (0, 128, 96)


def save_mask(mask: TissueMask, folder: Path) -> Path:
    """Write a mask's files under a folder; the path of its GeoJSON.

    The subfolders are those people's scripts look into. Mask and GeoJSON read back exactly with
    ``load_mask``.
    """
    slide_id = mask.frame.slide_id
    _save_png(mask, folder / "masks" / f"{slide_id}.png")
    if mask.thumbnail is not None:
        _save_image(mask.thumbnail, folder / "thumbnails" / f"{slide_id}.jpg")
        picture = with_outline(mask.thumbnail, mask.mask)
        _save_image(picture, folder / "contours" / f"{slide_id}.png")
    path = folder / "contours_geojson" / f"{slide_id}.geojson"
    write_text(path, json.dumps(mask.to_geojson(), allow_nan=False))
    return path


def with_outline(
    image: UInt8[np.ndarray, "height width 3"],
    mask: Bool[np.ndarray, "mask_height mask_width"],
    *,
    colour: tuple[int, int, int] = _OUTLINE,
    thickness: int = 2,
) -> UInt8[np.ndarray, "height width 3"]:
    """A copy of a picture with the outline of a mask that covers the same area."""
    import cv2

    height, width = image.shape[:2]
    scaled = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    contours, _ = cv2.findContours(scaled, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    picture = image.copy()
    cv2.drawContours(picture, contours, -1, colour, thickness, cv2.LINE_AA)
    return picture


def _save_png(mask: TissueMask, path: Path) -> None:
    from PIL import Image, PngImagePlugin

    text = PngImagePlugin.PngInfo()
    text.add_text(RASTER_KEY, raster_of(mask).model_dump_json())
    with atomic_path(path) as temporary:
        image = Image.fromarray(mask.mask.astype(np.uint8) * 255)
        image.save(temporary, format="PNG", pnginfo=text)


def _save_image(image: UInt8[np.ndarray, "height width 3"], path: Path) -> None:
    from PIL import Image

    kind = "JPEG" if path.suffix == ".jpg" else "PNG"
    options = {"quality": 90} if kind == "JPEG" else {"compress_level": 1}
    with atomic_path(path) as temporary:
        Image.fromarray(image).save(temporary, format=kind, **options)
