"""Row 1, slides: a rectangle of any level comes in, its pixels go out.

Readers that decode single blocks have their rectangles put together from cached blocks; readers
that cut any box out of a level themselves are asked for the box. Virtual levels are halved from
the next finer level, recursively and piece by piece, so memory stays bounded however far down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from zoommil.slides.cache import BlockCache
from zoommil.slides.levels import Level
from zoommil.slides.resampling import halved
from zoommil.slides.statistics import ReadCounter

WHITE = 255
_MOST_PIXELS_AT_ONCE = 1 << 22  # in one call of a reader, and in one piece to be halved

Key = tuple[int, int, int]
Box = tuple[int, int, int, int]


@runtime_checkable
class BlockSource(Protocol):
    """What a mosaic needs of a reader (see ``slide.Slide`` for the contract)."""

    def _reads_boxes(self, level: Level) -> bool: ...

    def _read_box(
        self, level: Level, x: int, y: int, width: int, height: int
    ) -> UInt8[np.ndarray, "height width 3"]: ...

    def _read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]: ...

    def _read_halved_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"] | None: ...


class BlockMosaic:
    """The pixels of any rectangle of any level of a pyramid."""

    def __init__(
        self,
        source: BlockSource,
        pyramid: Sequence[Level],
        cache: BlockCache,
        counter: ReadCounter,
    ) -> None:
        """Args: source: the reader; pyramid: its levels and the virtual ones, finest first."""
        self._source = source
        self._pyramid = tuple(pyramid)
        self._cache = cache
        self._counter = counter

    def region(
        self, index: int, x: int, y: int, width: int, height: int, *, keep: bool = True
    ) -> UInt8[np.ndarray, "height width 3"]:
        """A rectangle in the pixels of one level; white outside it. May be a read-only view.

        Args:
            index: of the level in the pyramid.
            x, y, width, height: whole pixels of that level.
            keep: whether newly decoded blocks stay in the cache.
        """
        level = self._pyramid[index]
        left, top = max(x, 0), max(y, 0)
        right, bottom = min(x + width, level.width), min(y + height, level.height)
        if left >= right or top >= bottom:
            return np.full((height, width, 3), WHITE, np.uint8)
        box = (left, top, right - left, bottom - top)
        if self._source._reads_boxes(level):
            inside = self._cut_out(index, *box)
        else:
            inside = self._put_together(index, box, keep)
        if box == (x, y, width, height):
            return inside
        region = np.full((height, width, 3), WHITE, np.uint8)
        region[top - y : bottom - y, left - x : right - x] = inside
        return region

    def _cut_out(self, index: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        """A box inside a level, from a reader that reads boxes."""
        level = self._pyramid[index]
        num_pixels = width * height * (4 if level.is_virtual else 1)
        if num_pixels > _MOST_PIXELS_AT_ONCE and max(width, height) > 1:
            if width >= height:
                half = width // 2
                left = self._cut_out(index, x, y, half, height)
                right = self._cut_out(index, x + half, y, width - half, height)
                return np.concatenate([left, right], axis=1)
            half = height // 2
            upper = self._cut_out(index, x, y, width, half)
            lower = self._cut_out(index, x, y + half, width, height - half)
            return np.concatenate([upper, lower])
        if level.is_virtual:
            return halved(self.region(index - 1, 2 * x, 2 * y, 2 * width, 2 * height))
        pixels = self._source._read_box(level, x, y, width, height)
        columns = (x + width - 1) // level.block_width - x // level.block_width + 1
        rows = (y + height - 1) // level.block_height - y // level.block_height + 1
        self._counter.add_decoded(level.stored_index, columns * rows, width * height)
        return pixels

    def _put_together(self, index: int, box: Box, keep: bool) -> np.ndarray:
        """A box inside a level, from blocks."""
        level = self._pyramid[index]
        x, y, width, height = box
        keys = [
            (index, column, row)
            for row in range(y // level.block_height, -(-(y + height) // level.block_height))
            for column in range(x // level.block_width, -(-(x + width) // level.block_width))
        ]
        blocks = self._cache.fetch(keys, self._produce, keep=keep)
        if len(keys) == 1:
            start_x = x - keys[0][1] * level.block_width
            start_y = y - keys[0][2] * level.block_height
            return blocks[keys[0]][start_y : start_y + height, start_x : start_x + width]
        region = np.empty((height, width, 3), np.uint8)
        for key in keys:
            _paste(region, (x, y), blocks[key], level, key)
        return region

    def _produce(self, keys: list[Key]) -> dict[Key, np.ndarray]:
        return {key: self._block(*key) for key in keys}

    def _block(self, index: int, column: int, row: int) -> np.ndarray:
        level = self._pyramid[index]
        width, height = level.block_size(column, row)
        if not level.is_virtual:
            block = self._source._read_block(level, column, row)
            assert block.shape == (height, width, 3), "a reader must give blocks of their size"
            self._counter.add_decoded(level.stored_index, 1, width * height)
            return block
        block = self._source._read_halved_block(level, column, row)
        if block is not None:
            return block
        finer = self.region(
            index - 1,
            2 * column * level.block_width,
            2 * row * level.block_height,
            2 * width,
            2 * height,
            keep=False,  # each is needed once: keeping them would push out what is needed again
        )
        return halved(finer)


def _paste(
    region: np.ndarray, corner: tuple[int, int], block: np.ndarray, level: Level, key: Key
) -> None:
    """Copy the part of a block that lies in a region."""
    _, column, row = key
    offset_x = column * level.block_width - corner[0]
    offset_y = row * level.block_height - corner[1]
    left, top = max(0, offset_x), max(0, offset_y)
    right = min(region.shape[1], offset_x + block.shape[1])
    bottom = min(region.shape[0], offset_y + block.shape[0])
    region[top:bottom, left:right] = block[
        top - offset_y : bottom - offset_y, left - offset_x : right - offset_x
    ]
