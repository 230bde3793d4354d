"""Row 1, slides: a rectangle of any level comes in, its pixels go out, put together from blocks.

Blocks of stored levels come from the reader; blocks of virtual levels are halved from four blocks
of the next finer level, recursively and depth first, so memory stays bounded however far down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import UInt8

from zoommil.slides.cache import BlockCache
from zoommil.slides.levels import Level
from zoommil.slides.resampling import halved
from zoommil.slides.statistics import ReadCounter

WHITE = 255
_MAX_RUN_PIXELS = 1 << 22  # the largest rectangle of blocks a reader is asked for at once

Key = tuple[int, int, int]


class BlockSource(Protocol):
    """What a mosaic needs of a reader (see ``slide.Slide`` for the contract)."""

    def _read_blocks(
        self, level: Level, columns: range, rows: range
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
        keys = [
            (index, column, row)
            for row in range(top // level.block_height, -(-bottom // level.block_height))
            for column in range(left // level.block_width, -(-right // level.block_width))
        ]
        blocks = self._cache.fetch(keys, self._produce, keep=keep)
        if len(keys) == 1 and (right - left, bottom - top) == (width, height):
            start_x = left - keys[0][1] * level.block_width
            start_y = top - keys[0][2] * level.block_height
            return blocks[keys[0]][start_y : start_y + height, start_x : start_x + width]
        is_inside = (left, top, right, bottom) == (x, y, x + width, y + height)
        region = np.empty((height, width, 3), np.uint8)
        if not is_inside:
            region.fill(WHITE)
        for key in keys:
            _paste(region, (x, y), blocks[key], level, key)
        return region

    def _produce(self, keys: list[Key]) -> dict[Key, np.ndarray]:
        index = keys[0][0]
        level = self._pyramid[index]
        if level.is_virtual:
            return {key: self._halved_block(*key) for key in keys}
        blocks: dict[Key, np.ndarray] = {}
        cells = [(column, row) for _, column, row in keys]
        most = max(1, _MAX_RUN_PIXELS // (level.block_width * level.block_height))
        for columns, rows in rectangles(cells, most):
            blocks.update(self._stored_blocks(index, columns, rows))
        return blocks

    def _stored_blocks(self, index: int, columns: range, rows: range) -> dict[Key, np.ndarray]:
        level = self._pyramid[index]
        picture = self._source._read_blocks(level, columns, rows)
        self._counter.add_decoded(
            level.stored_index, len(columns) * len(rows), picture.shape[0] * picture.shape[1]
        )
        if len(columns) == len(rows) == 1:
            return {(index, columns[0], rows[0]): picture}
        blocks = {}
        for row in rows:
            for column in columns:
                width, height = level.block_size(column, row)
                start_x = (column - columns[0]) * level.block_width
                start_y = (row - rows[0]) * level.block_height
                part = picture[start_y : start_y + height, start_x : start_x + width]
                blocks[index, column, row] = part.copy()
        return blocks

    def _halved_block(self, index: int, column: int, row: int) -> np.ndarray:
        level = self._pyramid[index]
        block = self._source._read_halved_block(level, column, row)
        if block is not None:
            return block
        width, height = level.block_size(column, row)
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


def rectangles(cells: Sequence[tuple[int, int]], most_cells: int) -> list[tuple[range, range]]:
    """Rectangles (columns, rows) of at most ``most_cells`` that together cover exactly the cells.

    The cells are (column, row), in row-major order. Runs of one row are joined with equal runs of
    the rows below.
    """
    runs: list[tuple[int, int, int]] = []  # first column, end, row
    for column, row in cells:
        if runs and runs[-1][1:] == (column, row) and column - runs[-1][0] < most_cells:
            runs[-1] = (runs[-1][0], column + 1, row)
        else:
            runs.append((column, column + 1, row))
    joined: dict[tuple[int, int], list[range]] = {}
    for start, end, row in runs:
        strips = joined.setdefault((start, end), [])
        fits = strips and (len(strips[-1]) + 1) * (end - start) <= most_cells
        if fits and strips[-1].stop == row:
            strips[-1] = range(strips[-1].start, row + 1)
        else:
            strips.append(range(row, row + 1))
    return [(range(start, end), rows) for (start, end), strips in joined.items() for rows in strips]
