"""Row 13, OME-TIFF: a heatmap and its frame come in; a pyramid to lay over a slide goes out.

It says how large its pixels are and where on the slide its corner lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from zoommil.files import atomic_path
from zoommil.reports.frame import PictureFrame

_TILE_PX = 256
_SMALLEST_PX = 256


def write_ome(
    path: Path | str,
    picture: UInt8[np.ndarray, "height width 3"],
    frame: PictureFrame,
    name: str,
) -> None:
    """Write a picture as a tiled pyramid, halved from level to level, atomically.

    Args:
        path: usually ``<slide>.overlay.ome.tiff``.
        picture: drawn in the frame.
        frame: says how large a pixel is and where the picture's corner lies on the slide.
        name: of the image, shown by viewers.
    """
    import tifffile

    levels = [picture, *_halved(picture)]
    options = {"photometric": "rgb", "tile": (_TILE_PX, _TILE_PX), "compression": "zlib"}
    with atomic_path(path) as temporary, tifffile.TiffWriter(temporary, ome=True) as file:
        file.write(levels[0], subifds=len(levels) - 1, metadata=_metadata(frame, name), **options)
        for level in levels[1:]:
            file.write(level, subfiletype=1, **options)


def _metadata(frame: PictureFrame, name: str) -> dict[str, object]:
    """OME's words for pixel size and place, in micrometres; in pixels where mpp is not known."""
    mpp = frame.picture_mpp
    size, unit = (mpp, "µm") if mpp is not None else (frame.downsample, "pixel")
    scale = 1.0 if frame.mpp is None else frame.mpp
    return {
        "axes": "YXS",
        "Name": name,
        "PhysicalSizeX": size,
        "PhysicalSizeXUnit": unit,
        "PhysicalSizeY": size,
        "PhysicalSizeYUnit": unit,
        "Plane": {
            "PositionX": [frame.corner[0] * scale],
            "PositionXUnit": [unit],
            "PositionY": [frame.corner[1] * scale],
            "PositionYUnit": [unit],
        },
    }


def _halved(picture: np.ndarray) -> Iterator[np.ndarray]:
    """Smaller and smaller versions, until one fits a tile."""
    import cv2

    while max(picture.shape[:2]) > _SMALLEST_PX:
        height, width = picture.shape[:2]
        size = (max(1, (width + 1) // 2), max(1, (height + 1) // 2))
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
        yield picture
