"""Row 1, slides: the reader of plain images: PNG, JPEG, TIFF without a vendor, NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import SlideError
from zoommil.slides.fingerprint import fingerprint_of_array, fingerprint_of_file
from zoommil.slides.levels import Level
from zoommil.slides.resolution import find_resolution
from zoommil.slides.slide import DEFAULT_CACHE_BYTES, Scale, Slide, SlideContent

_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_JPEG_MAGIC = b"\xff\xd8\xff"


@runtime_checkable
class ImageSource(Protocol):
    """What a kind of image file offers: its levels, and the decoded blocks of each."""

    vendor: str
    size: tuple[int, int]
    levels: Sequence[Level]
    properties: dict[str, str]
    warnings: tuple[str, ...]
    count_bytes: Callable[[int], None]

    def read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Decode one block, alpha on white. Raises SlideReadError."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class ImageSlide(Slide):
    """A plain image as a slide."""

    reader = "image"

    @classmethod
    def can_open(cls, path: Path) -> bool:
        """Whether the file begins like a PNG, JPEG or TIFF."""
        with path.open("rb") as stream:
            head = stream.read(8)
        return head.startswith((*_TIFF_MAGIC, _PNG_MAGIC, _JPEG_MAGIC))

    @classmethod
    def open(
        cls,
        source: Path | np.ndarray,
        *,
        mpp: float | None = None,
        scale: Scale = "physical",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Slide:
        """The open slide of an image file or of an array (height, width[, 1, 3 or 4])."""
        image = _source_of(source)
        try:
            return cls(source, image, mpp, scale, cache_bytes)
        except BaseException:
            image.close()
            raise

    def __init__(
        self,
        source: Path | np.ndarray,
        image: ImageSource,
        mpp: float | None,
        scale: Scale,
        cache_bytes: int,
    ) -> None:
        """Called by :meth:`open`."""
        path = source if isinstance(source, Path) else None
        name = path.name if path is not None else "array"
        content = SlideContent(
            size=image.size,
            levels=image.levels,
            properties=image.properties,
            resolution=find_resolution(name, image.properties, mpp),
            vendor=image.vendor,
            warnings=image.warnings,
        )
        self._source = source
        self._image = image
        super().__init__(path, content, scale=scale, cache_bytes=cache_bytes)
        image.count_bytes = self._counter.add_compressed

    def _read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        return self._image.read_block(level, column, row)

    def _fingerprint(self) -> str:
        if isinstance(self._source, Path):
            return fingerprint_of_file(self._source)
        return fingerprint_of_array(self._source)

    def _release(self) -> None:
        self._image.close()


def _source_of(source: Path | np.ndarray) -> ImageSource:
    from zoommil.slides.image_array import ArrayImage, PillowImage

    if isinstance(source, np.ndarray):
        return ArrayImage(source)
    with source.open("rb") as stream:
        head = stream.read(8)
    if head.startswith(_TIFF_MAGIC):
        from zoommil.slides.image_tiff import TiffImage

        return TiffImage(source)
    if head.startswith((_PNG_MAGIC, _JPEG_MAGIC)):
        return PillowImage(source, is_png=head.startswith(_PNG_MAGIC))
    raise SlideError(
        f"{source.name!r} is not an image (it begins with {head!r}). Expected TIFF, PNG or JPEG."
    )
