"""Row 1, slides: the reader of every format that OpenSlide knows, DICOM included."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openslide
from jaxtyping import UInt8

from zoommil.errors import SlideError, SlideReadError
from zoommil.slides.alpha import on_white
from zoommil.slides.fingerprint import fingerprint_of_file
from zoommil.slides.levels import Level, stored_level
from zoommil.slides.resolution import find_resolution
from zoommil.slides.slide import DEFAULT_CACHE_BYTES, Scale, Slide, SlideContent

_PLAIN_TIFF = "generic-tiff"
_BLOCK_PX = 256
_SMALLEST_BLOCK_PX = 128
_LARGEST_BLOCK_PX = 2048
_BLENDED_BLOCK_PX = 128  # where OpenSlide blends, pixels cost more than calls: waste fewer
_DIFFERENT_PICTURE = 0.2


class OpenSlideSlide(Slide):
    """A slide read through OpenSlide, block by block, aligned to the file's own tiles."""

    reader = "openslide"

    @classmethod
    def can_open(cls, path: Path) -> bool:
        """Whether OpenSlide recognises the format (and reads all that a plain TIFF says)."""
        vendor = None
        with contextlib.suppress(openslide.OpenSlideError, OSError):
            vendor = openslide.OpenSlide.detect_format(str(path))
        if vendor != _PLAIN_TIFF:
            return vendor is not None
        from zoommil.slides.image_tiff import has_own_layout

        return not has_own_layout(path)

    @classmethod
    def open(
        cls,
        source: Path,
        *,
        mpp: float | None = None,
        scale: Scale = "physical",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Slide:
        """The open slide of a path. Raises SlideError where OpenSlide cannot open it."""
        handle = open_handle(source, cache_bytes)
        try:
            return cls(source, handle, mpp, scale, cache_bytes)
        except BaseException:
            handle.close()
            raise

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
        levels, warnings = levels_of(handle)
        content = SlideContent(
            size=handle.dimensions,
            levels=levels,
            properties=properties,
            resolution=find_resolution(path.name, properties, mpp),
            bounds=bounds_of(properties),
            vendor=properties.get("openslide.vendor", "unknown"),
            warnings=warnings,
        )
        self._handle: openslide.OpenSlide | None = handle
        self._handle_lock = threading.Lock()
        self._steps = [float(downsample) for downsample in handle.level_downsamples]
        self._tile_cache_bytes = cache_bytes
        super().__init__(path, content, scale=scale, cache_bytes=cache_bytes)

    def _reads_boxes(self, level: Level) -> bool:
        """Whether the level's pixels do not depend on where a call begins.

        At a downsample such as 4.0003 OpenSlide blends neighbours by the fraction left over of the
        level-0 corner. Such a level is read in blocks that always begin at the same places.
        """
        return self._steps[level.stored_index].is_integer()

    def _read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        x, y = column * level.block_width, row * level.block_height
        return self._read_box(level, x, y, *level.block_size(column, row))

    def _read_box(
        self, level: Level, x: int, y: int, width: int, height: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        step = self._steps[level.stored_index]
        location = (math.floor(x * step + 0.5), math.floor(y * step + 0.5))
        picture = self._read_region(location, level.stored_index, (width, height))
        return on_white(np.asarray(picture))

    def _read_region(self, location: tuple[int, int], index: int, size: tuple[int, int]) -> Any:
        """The RGBA picture of a region, in spite of OpenSlide's latching errors.

        After one error a handle fails for ever, also for other threads. So whoever sees an error
        tries again with a handle of its own, which then takes the place of the shared one.
        """
        handle = self._handle
        if handle is None:
            raise SlideError(f"{self.name!r} is closed. Open it again to read.")
        try:
            return handle.read_region(location, index, size)
        except openslide.OpenSlideError:
            pass
        try:
            fresh = open_handle(self._file(), self._tile_cache_bytes)
            picture = fresh.read_region(location, index, size)
        except (openslide.OpenSlideError, SlideError) as error:
            with contextlib.suppress(SlideError):
                self._replace_handle(handle, open_handle(self._file(), self._tile_cache_bytes))
            raise SlideReadError(
                f"{self.name!r}, level {index}: the box (x {location[0]}, y {location[1]}, "
                f"{size[0]} x {size[1]} px) cannot be decoded: {_reason(error)}. "
                "The file is damaged there: copy it again, or leave it out."
            ) from error
        self._replace_handle(handle, fresh)
        return picture

    def _replace_handle(self, failed: openslide.OpenSlide, fresh: openslide.OpenSlide) -> None:
        """Share a fresh handle unless another thread did; the old one closes when unused."""
        with self._handle_lock:
            if self._handle is failed:
                self._handle = fresh

    def _file(self) -> Path:
        assert self.path is not None
        return self.path

    def _fingerprint(self) -> str:
        return fingerprint_of_file(self._file())

    def _release(self) -> None:
        self._handle = None  # closes when the last thread that still reads from it is done


def open_handle(path: Path, cache_bytes: int | None = None) -> openslide.OpenSlide:
    """OpenSlide's own object. Raises SlideError where it cannot open the file."""
    try:
        handle = openslide.OpenSlide(str(path))
        if cache_bytes is not None:
            handle.set_cache(openslide.OpenSlideCache(cache_bytes))
        return handle
    except (openslide.OpenSlideError, OSError) as error:
        raise SlideError(
            f"{path.name!r} cannot be opened as a slide: {_reason(error)}. "
            "The file is damaged or of a kind OpenSlide does not read."
        ) from error


def levels_of(
    handle: openslide.OpenSlide, tiles: Sequence[tuple[int, int]] | None = None
) -> tuple[list[Level], tuple[str, ...]]:
    """The levels in falling size, without those that do not show the whole slide.

    Args:
        handle: the open file.
        tiles: (width, height) of each level's tiles, to be the blocks as they are; None: blocks
            that suit OpenSlide.
    """
    levels: list[Level] = []
    warnings: list[str] = []
    for index, size in enumerate(handle.level_dimensions):
        tile = tiles[index] if tiles else _tile_size(handle, index)
        block = tile if tiles else _block_size(handle, index, tile)
        level = stored_level(index, handle.dimensions, size, tile, block)
        if abs(level.downsample_x / level.downsample_y - 1) > _DIFFERENT_PICTURE:
            warnings.append(f"level {index} ({size[0]} x {size[1]}) has another shape: not used")
        elif not levels or level.downsample > levels[-1].downsample:
            levels.append(level)
    return levels, tuple(warnings)


def _tile_size(handle: openslide.OpenSlide, index: int) -> tuple[int, int]:
    prefix = f"openslide.level[{index}].tile-"
    try:
        return int(handle.properties[prefix + "width"]), int(handle.properties[prefix + "height"])
    except (KeyError, ValueError):
        return _BLOCK_PX, _BLOCK_PX


def _block_size(handle: openslide.OpenSlide, index: int, tile: tuple[int, int]) -> tuple[int, int]:
    if not float(handle.level_downsamples[index]).is_integer():
        return _BLENDED_BLOCK_PX, _BLENDED_BLOCK_PX
    return _block_side(tile[0]), _block_side(tile[1])


def _block_side(tile_side: int) -> int:
    """The block side for a tile side: the tile, unless it is very small or very large."""
    if tile_side < _SMALLEST_BLOCK_PX:
        return tile_side * (_BLOCK_PX // max(1, tile_side))
    return tile_side if tile_side <= _LARGEST_BLOCK_PX else _BLOCK_PX


def bounds_of(properties: dict[str, str]) -> tuple[int, int, int, int] | None:
    """The part of a slide with content, where its properties say so."""
    try:
        x, y, width, height = (
            int(properties[f"openslide.bounds-{name}"]) for name in ("x", "y", "width", "height")
        )
    except (KeyError, ValueError):
        return None
    return x, y, width, height


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
