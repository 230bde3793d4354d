"""Row 1, slides: a path or an array comes in, an open slide goes out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import ConfigError, ResolutionError, SlideError
from zoommil.registry import Registry
from zoommil.slides.slide import DEFAULT_CACHE_BYTES, Slide

AUTO = "auto"
READERS = Registry(
    "reader",
    {
        "jpeg_tiles": "zoommil.slides.jpeg_tiles_reader:JpegTilesSlide",
        "openslide": "zoommil.slides.openslide_reader:OpenSlideSlide",
        "image": "zoommil.slides.image_reader:ImageSlide",
    },
)
"""All readers; "auto" takes the first that can open a file."""

SCALES = ("physical", "nominal")


def open_slide(
    path: str
    | Path
    | UInt8[np.ndarray, "height width channel"]
    | UInt8[np.ndarray, "height width"],
    *,
    mpp: float | None = None,
    reader: str = AUTO,
    scale: str = "physical",
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    like: Collection[str] = (),
) -> Slide:
    """An open slide, from which boxes are read at any resolution. Use it in a ``with`` block.

    The resolution comes from the file's metadata. A value given here wins over the metadata,
    because whoever passes one knows of an error in the file; where the two differ by more than 1%
    a warning is logged, and kept in ``slide.warnings``, that says both numbers.

    Args:
        path: a slide or image file; of a DICOM slide any of its files. Or the pixels themselves.
        mpp: microns per level-0 pixel, for files that do not say it or say it wrongly.
        reader: "auto", or the name of a registered reader.
        scale: "physical" (exact) or "nominal" (the scanner's objective, as published).
        cache_bytes: the most memory that decoded blocks may keep.
        like: readers of slides that this one will be compared with. "auto" does not take a reader
            that is not among them where the one that it stands in for is.

    Raises:
        ResolutionError: the resolution is unknown or implausible.
        SlideError: it is not a slide, or a damaged one.
    """
    if scale not in SCALES:
        raise ConfigError(f"scale {scale!r} is unknown. Known: {', '.join(SCALES)}.")
    if isinstance(path, np.ndarray):
        kind = READERS.load("image" if reader == AUTO else reader)
        return kind.open(path, mpp=mpp, scale=scale, cache_bytes=cache_bytes)
    path = checked_path(path)
    if reader != AUTO:
        kind = READERS.load(reader)
        return kind.open(path, mpp=mpp, scale=scale, cache_bytes=cache_bytes)
    first_error: SlideError | None = None
    for kind in map(READERS.load, READERS.names()):
        if kind.reader not in like and kind.stands_in_for in like:
            continue
        if not kind.can_open(path):
            continue
        try:
            return kind.open(path, mpp=mpp, scale=scale, cache_bytes=cache_bytes)
        except ResolutionError:
            raise
        except SlideError as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    raise SlideError(
        f"{path.name!r} is not a slide or image that can be read "
        f"(it begins with {_first_bytes(path)!r}). Expected a whole-slide format that OpenSlide "
        "knows, TIFF, PNG or JPEG; check that the file is complete."
    )


def checked_path(path: str | Path) -> Path:
    """The path, if it leads to a file that can be read. Raises SlideError otherwise."""
    path = Path(path)
    if path.is_dir():
        raise SlideError(
            f"{str(path)!r} is a directory, not a slide. "
            "Give one file in it; of a DICOM slide any of its .dcm files."
        )
    if not path.exists():
        raise SlideError(f"{str(path)!r} does not exist. Check the path.")
    try:
        if not _first_bytes(path):
            raise SlideError(f"{str(path)!r} is empty (0 bytes). Copy the file again.")
    except OSError as error:
        raise SlideError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    return path


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(8)
