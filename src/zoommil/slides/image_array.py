"""Row 1, slides: arrays, and files that can only be decoded whole (PNG, JPEG), as image sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import SlideError, SlideReadError
from zoommil.slides.alpha import on_white
from zoommil.slides.levels import Level

BLOCK_PX = 256
MAX_WHOLE_BYTES = 1 << 30
"""The most that is decoded in one piece, where a format offers no smaller one."""

_EXIF_ORIENTATION = 0x0112
_TRANSPOSED = 5  # from this EXIF orientation on, width and height change places


class ArrayImage:
    """Pixels in memory: gray, RGB or RGBA."""

    vendor = "array"
    warnings: tuple[str, ...] = ()

    def __init__(self, pixels: np.ndarray) -> None:
        """Args: pixels: uint8, (height, width) or (height, width, 1, 3 or 4)."""
        if pixels.ndim == 2:
            pixels = pixels[..., None]
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
            raise SlideError(
                f"cannot use an array of shape {pixels.shape} and type {pixels.dtype} as a slide; "
                "expected uint8 (height, width), (height, width, 3) or (height, width, 4)."
            )
        if 0 in pixels.shape:
            raise SlideError(f"cannot use an empty array of shape {pixels.shape} as a slide.")
        self._pixels = pixels
        self.size = (pixels.shape[1], pixels.shape[0])
        self.levels: Sequence[Level] = (single_level(self.size),)
        self.properties: dict[str, str] = {}
        self.count_bytes: Callable[[int], None] = lambda _: None

    def read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """A block of the pixels."""
        return rgb_on_white(block_of(self._pixels, level, column, row))

    def close(self) -> None:
        """Nothing is open."""


class PillowImage:
    """A PNG or JPEG file: decoded whole at the first read, since neither can be entered midway."""

    def __init__(self, path: Path, *, is_png: bool) -> None:
        """Args: path: of the file; is_png: PNG (else JPEG)."""
        self._path = path
        self._is_png = is_png
        self._lock = threading.Lock()
        self._pixels: np.ndarray | None = None
        self.vendor = "png" if is_png else "jpeg"
        self.warnings: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self.count_bytes: Callable[[int], None] = lambda _: None
        self.size = self._upright_size()
        self.levels: Sequence[Level] = (single_level(self.size),)

    def read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """A block of the decoded image."""
        with self._lock:
            if self._pixels is None:
                self._pixels = self._decode()
        return block_of(self._pixels, level, column, row).copy()

    def close(self) -> None:
        """Forget the pixels."""
        self._pixels = None

    def _upright_size(self) -> tuple[int, int]:
        try:
            with self._open() as image:
                width, height = image.size
                orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
        except (OSError, SyntaxError, ValueError) as error:
            raise SlideError(
                f"{self._path.name!r} cannot be opened: {error}. The file is damaged."
            ) from error
        check_whole(self._path.name, width, height)
        return (height, width) if orientation >= _TRANSPOSED else (width, height)

    def _open(self):
        """The file opened by its own plugin: ``Image.open`` warns of large images as bombs."""
        from PIL.JpegImagePlugin import JpegImageFile
        from PIL.PngImagePlugin import PngImageFile

        return (PngImageFile if self._is_png else JpegImageFile)(str(self._path))

    def _decode(self) -> UInt8[np.ndarray, "height width 3"]:
        from PIL import ImageOps

        try:
            with self._open() as image:
                upright = ImageOps.exif_transpose(image)
                has_alpha = "A" in upright.getbands() or "transparency" in upright.info
                if upright.mode.startswith("I"):
                    gray = (np.asarray(upright).astype(np.uint32) >> 8).astype(np.uint8)
                    pixels = rgb_on_white(gray[..., None])
                else:
                    mode = "RGBA" if has_alpha else "RGB"
                    pixels = rgb_on_white(np.asarray(upright.convert(mode)))
        except (OSError, SyntaxError, ValueError) as error:
            width, height = self.size
            raise SlideReadError(
                f"{self._path.name!r}, level 0: the box (x 0, y 0, {width} x {height} px) cannot "
                f"be decoded: {error}. The file is damaged: copy it again, or leave it out."
            ) from error
        self.count_bytes(self._path.stat().st_size)
        return pixels


def single_level(size: tuple[int, int]) -> Level:
    """The one level of an image without a pyramid."""
    return Level(*size, 1.0, 1.0, BLOCK_PX, BLOCK_PX, stored_index=0)


def block_of(pixels: np.ndarray, level: Level, column: int, row: int) -> np.ndarray:
    """The view of one block of an image in memory."""
    width, height = level.block_size(column, row)
    x, y = column * level.block_width, row * level.block_height
    return pixels[y : y + height, x : x + width]


def rgb_on_white(
    pixels: UInt8[np.ndarray, "height width channel"],
) -> UInt8[np.ndarray, "height width 3"]:
    """RGB from gray, RGB or RGBA, in an array of its own."""
    if pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    return on_white(np.ascontiguousarray(pixels)) if pixels.shape[2] == 4 else pixels.copy()


def check_whole(name: str, width: int, height: int) -> None:
    """Refuse what can only be decoded in one piece and is too large for that. SlideError."""
    if width * height * 3 > MAX_WHOLE_BYTES:
        raise SlideError(
            f"{name!r} ({width} x {height}) can only be decoded whole, "
            f"{width * height * 3 / 1e9:.1f} GB; at most {MAX_WHOLE_BYTES / 1e9:.1f} GB. "
            "Convert it to a tiled pyramidal TIFF, "
            "which is read in parts."
        )
