"""Row 1, slides: a file's list of images comes in, the pyramid that reading uses goes out.

A pyramid has the levels stored in the file and, between them and above them, virtual ones that are
halved from the next finer level block by block. So every resolution has a level at most twice as
fine as itself, also in a slide with one level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEVEL_TOLERANCE = 1.01
"""A level counts as fine enough up to this factor (levels report 4.0003, 16.002)."""

_SMALLEST_HALVED_SIDE = 64
_NEAR_STORED = 0.95


@dataclass(frozen=True)
class Level:
    """One image of the pyramid: a grid of blocks, clipped at the right and bottom edge.

    ``width`` and ``height`` are the pixels that show the slide: padding that a writer added to
    fill whole tiles is left out. ``stored_index`` is the reader's own number of the level in the
    file; ``halvings`` says how often this one is halved from it (0: it is the stored one).
    """

    width: int
    height: int
    downsample_x: float
    downsample_y: float
    block_width: int
    block_height: int
    stored_index: int
    halvings: int = 0

    @property
    def downsample(self) -> float:
        """Level-0 pixels per pixel of this level."""
        return (self.downsample_x + self.downsample_y) / 2

    @property
    def is_virtual(self) -> bool:
        """Whether it is made from a finer level instead of stored in the file."""
        return self.halvings > 0

    @property
    def columns(self) -> int:
        """The number of block columns."""
        return -(-self.width // self.block_width)

    @property
    def rows(self) -> int:
        """The number of block rows."""
        return -(-self.height // self.block_height)

    def block_size(self, column: int, row: int) -> tuple[int, int]:
        """The (width, height) of one block, less than full at the right and bottom edge."""
        return (
            min(self.block_width, self.width - column * self.block_width),
            min(self.block_height, self.height - row * self.block_height),
        )


def stored_level(
    index: int,
    slide_size: tuple[int, int],
    level_size: tuple[int, int],
    tile_size: tuple[int, int],
    block_size: tuple[int, int] | None = None,
) -> Level:
    """A level of the file with its true downsample and without its padding.

    Writers divide by a whole number and round, or pad to whole tiles; a level of 2500 pixels under
    a slide of 10003 is 4 times smaller, not 4.0012 times, and one of 2560 is 4 times smaller with
    60 pixels of padding. Only where no whole number explains the sizes is their quotient used.
    """
    block = block_size or tile_size
    whole = _whole_downsample(slide_size, level_size, tile_size)
    if whole is None:
        downsample_x = slide_size[0] / level_size[0]
        downsample_y = slide_size[1] / level_size[1]
        width, height = level_size
    else:
        downsample_x = downsample_y = float(whole)
        width = min(level_size[0], -(-slide_size[0] // whole))
        height = min(level_size[1], -(-slide_size[1] // whole))
    return Level(width, height, downsample_x, downsample_y, *block, stored_index=index)


def _whole_downsample(
    slide_size: tuple[int, int], level_size: tuple[int, int], tile_size: tuple[int, int]
) -> int | None:
    sides = list(zip(slide_size, level_size, tile_size, strict=True))
    ratios = [slide_side / level_side for slide_side, level_side, _ in sides]
    logarithms = [math.log2(max(1.0, ratio)) for ratio in ratios]
    powers = sorted({2 ** way(value) for value in logarithms for way in (math.floor, math.ceil)})
    others = range(max(1, math.floor(min(ratios))), math.ceil(2 * max(ratios)) + 1)
    for candidate in [*powers, *others]:
        if all(_explains(candidate, *side) for side in sides):
            return candidate
    return None


def _explains(downsample: int, slide_side: int, level_side: int, tile_side: int) -> bool:
    """Whether a side divided by a whole number, rounded or padded to tiles, is the level's."""
    exact = slide_side / downsample
    if abs(level_side - exact) <= 1:
        return True
    return level_side == -(-math.ceil(exact) // tile_side) * tile_side


def with_halved_levels(stored: Sequence[Level], own_halvings: int = 0) -> tuple[Level, ...]:
    """The whole pyramid, finest first: the stored levels and the virtual ones between and above.

    Args:
        stored: the levels in the file, finest first.
        own_halvings: how often the reader halves a stored block by itself: the blocks of those
            levels shrink with it, so that each is made from one stored block.
    """
    pyramid: list[Level] = []
    for position, level in enumerate(stored):
        pyramid.append(level)
        is_last = position + 1 == len(stored)
        limit = math.inf if is_last else stored[position + 1].downsample * _NEAR_STORED
        while (
            pyramid[-1].downsample * 2 < limit
            and max(pyramid[-1].width, pyramid[-1].height) > _SMALLEST_HALVED_SIDE
        ):
            halvings = pyramid[-1].halvings + 1
            shrinking = 1 << (halvings if halvings <= own_halvings else 0)
            block = (level.block_width // shrinking, level.block_height // shrinking)
            pyramid.append(_halved(pyramid[-1], *block))
    return tuple(pyramid)


def _halved(level: Level, block_width: int, block_height: int) -> Level:
    return replace(
        level,
        block_width=block_width,
        block_height=block_height,
        width=-(-level.width // 2),
        height=-(-level.height // 2),
        downsample_x=level.downsample_x * 2,
        downsample_y=level.downsample_y * 2,
        halvings=level.halvings + 1,
    )


def coarsest_fine_enough(pyramid: Sequence[Level], downsample: float) -> int:
    """The index of the coarsest level whose downsample is at most the wanted one (1% over)."""
    best = 0
    for index, level in enumerate(pyramid):
        if max(level.downsample_x, level.downsample_y) <= downsample * LEVEL_TOLERANCE:
            best = index
    return best
