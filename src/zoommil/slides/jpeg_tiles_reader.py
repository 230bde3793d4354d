"""Row 1, slides: the fast reader of Aperio slides and plain TIFF pyramids of JPEG tiles.

What the file is (properties, levels, resolution) OpenSlide says; the pixels come straight from the
file's tiles. Levels between the stored ones are decoded at a half, quarter or eighth of the size:
a pixel is then made from the lowest frequencies of its block, which is quicker than decoding all
and closer to the picture than a mean of rounded pixels.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import openslide
from jaxtyping import UInt8

from zoommil.errors import SlideError, SlideReadError
from zoommil.slides.fingerprint import fingerprint_of_file
from zoommil.slides.jpeg_layout import TilePage, is_tiff, read_layout
from zoommil.slides.jpeg_stream import MAX_HALVINGS
from zoommil.slides.levels import Level
from zoommil.slides.mosaic import WHITE
from zoommil.slides.openslide_reader import bounds_of, levels_of, open_handle
from zoommil.slides.resampling import halved
from zoommil.slides.resolution import find_resolution
from zoommil.slides.shared_file import SharedFile
from zoommil.slides.slide import DEFAULT_CACHE_BYTES, Scale, Slide, SlideContent


class JpegTilesSlide(Slide):
    """A slide of JPEG tiles, each decoded where it lies in the file.

    Native pixels are OpenSlide's, except at levels whose sides are no whole fraction of the
    slide's: those OpenSlide blends with their neighbours, here they are as stored.
    """

    reader = "jpeg_tiles"
    stands_in_for = "openslide"

    @classmethod
    def can_open(cls, path: Path) -> bool:
        """Whether it is an Aperio slide or TIFF pyramid of baseline JPEG tiles and no more."""
        if not is_tiff(path):
            return False
        with contextlib.suppress(SlideError), open_handle(path) as handle:
            _layout_of(path, handle)
            return True
        return False

    @classmethod
    def open(
        cls,
        source: Path,
        *,
        mpp: float | None = None,
        scale: Scale = "physical",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Slide:
        """The open slide of a path.

        Raises:
            SlideError: OpenSlide cannot open it, or would read it differently.
        """
        with open_handle(source) as handle:
            return cls(source, handle, mpp, scale, cache_bytes)

    def __init__(
        self,
        path: Path,
        handle: openslide.OpenSlide,
        mpp: float | None,
        scale: Scale,
        cache_bytes: int,
    ) -> None:
        """Called by :meth:`open`."""
        properties = dict(handle.properties)
        self._pages = _layout_of(path, handle)
        levels, warnings = levels_of(handle, [page.tile_size for page in self._pages])
        content = SlideContent(
            size=handle.dimensions,
            levels=levels,
            properties=properties,
            resolution=find_resolution(path.name, properties, mpp),
            bounds=bounds_of(properties),
            vendor=properties.get("openslide.vendor", "unknown"),
            warnings=warnings,
            own_halvings=MAX_HALVINGS,
        )
        self._levels = {level.stored_index: level for level in levels}
        self._file: SharedFile | None = SharedFile(path)
        super().__init__(path, content, scale=scale, cache_bytes=cache_bytes)

    def _read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        width, height = level.block_size(column, row)
        pixels = self._decode(level, column, row, halvings=0)
        if pixels is None:
            return np.full((height, width, 3), WHITE, np.uint8)
        return pixels[:height, :width]

    def _read_halved_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"] | None:
        """A tile decoded smaller; the filling of tiles at the slide's edge is kept out of it."""
        if level.halvings > MAX_HALVINGS:
            return None
        stored = self._levels[level.stored_index]
        width, height = stored.block_size(column, row)
        self._counter.add_decoded(level.stored_index, 1, width * height)
        if (width, height) != (stored.block_width, stored.block_height):
            return _halved_on_white(self._read_block(stored, column, row), level.halvings)
        pixels = self._decode(stored, column, row, level.halvings)
        if pixels is None:
            width, height = level.block_size(column, row)
            return np.full((height, width, 3), WHITE, np.uint8)
        return pixels

    def _decode(
        self, level: Level, column: int, row: int, halvings: int
    ) -> UInt8[np.ndarray, "height width 3"] | None:
        """A whole tile, at a fraction of its size; None where the file has none."""
        file = self._file
        if file is None:
            raise SlideError(f"{self.name!r} is closed. Open it again to read.")
        page: TilePage = self._pages[level.stored_index]
        offset, num_bytes = page.place(column, row)
        if num_bytes == 0:
            return None
        try:
            tile = file.read(offset, num_bytes)
            pixels = page.decoder.decode(tile, halvings)
        except (ValueError, OSError) as error:
            raise self._unreadable(level, column, row, error) from error
        self._counter.add_compressed(num_bytes)
        return pixels

    def _unreadable(self, level: Level, column: int, row: int, error: Exception) -> SlideReadError:
        x, y = (
            round(column * level.block_width * level.downsample_x),
            round(row * level.block_height * level.downsample_y),
        )
        width, height = level.block_size(column, row)
        return SlideReadError(
            f"{self.name!r}, level {level.stored_index}: the box (x {x}, y {y}, "
            f"{width} x {height} px) cannot be decoded: {error}. "
            "The file is damaged there: copy it again, or leave it out."
        )

    def _fingerprint(self) -> str:
        assert self.path is not None
        return fingerprint_of_file(self.path)

    def _release(self) -> None:
        self._file = None  # closes when the last thread that still reads from it is done


def _layout_of(path: Path, handle: openslide.OpenSlide) -> tuple[TilePage, ...]:
    """Where the tiles of OpenSlide's levels lie. Raises SlideError where that is not certain."""
    vendor = handle.properties.get("openslide.vendor", "unknown")
    return read_layout(path, vendor, handle.level_dimensions)


def _halved_on_white(pixels: np.ndarray, halvings: int) -> np.ndarray:
    """Pixels halved so many times; sides that are odd get a white line first."""
    for _ in range(halvings):
        height, width = pixels.shape[:2]
        margins = ((0, height % 2), (0, width % 2), (0, 0))
        pixels = halved(np.pad(pixels, margins, constant_values=WHITE))
    return pixels
