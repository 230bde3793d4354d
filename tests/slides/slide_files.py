"""Small slide files for tests, whose pixels say where they are.

The picture is a grid of square cells; a cell's red and green tell its column and row (for up to
256 of each). Every level is sampled from that grid at its own exact downsample, so a reader that
misplaces a level shows the wrong cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tifffile

RED_STEP, GREEN_STEP = 37, 53  # odd, so that the products are different modulo 256
BLACK = 0


def cell_picture(width: int, height: int, cell_px: float, downsample: float = 1.0) -> np.ndarray:
    """The picture of cells as a level of that size and downsample shows it, (height, width, 3)."""
    columns = ((np.arange(width) + 0.5) * downsample / cell_px).astype(int)
    rows = ((np.arange(height) + 0.5) * downsample / cell_px).astype(int)
    picture = np.empty((height, width, 3), np.uint8)
    picture[..., 0] = (columns * RED_STEP % 256)[None, :]
    picture[..., 1] = (rows * GREEN_STEP % 256)[:, None]
    picture[..., 2] = ((columns[None, :] + rows[:, None]) % 2) * 200
    return picture


def cell_colour(x: float, y: float, cell_px: float) -> np.ndarray:
    """The colour of the cell at a level-0 position."""
    column, row = int(x // cell_px), int(y // cell_px)
    return np.array([column * RED_STEP % 256, row * GREEN_STEP % 256, (column + row) % 2 * 200])


def noise_picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Pixels that share nothing with their neighbours, (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write_tiff(
    path: Path,
    levels: Sequence[np.ndarray],
    *,
    mpp: float | None = 0.25,
    tile: int = 64,
    compression: str | None = "deflate",
    description: str | None = None,
) -> Path:
    """A tiled TIFF that OpenSlide opens as generic-tiff, its levels as given."""
    resolution = {} if mpp is None else {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": 3}
    with tifffile.TiffWriter(path) as writer:
        for index, level in enumerate(levels):
            writer.write(
                level,
                tile=(tile, tile),
                compression=compression,
                photometric="rgb",
                subfiletype=int(index > 0),
                description=description if index == 0 else None,
                metadata=None,
                **resolution,
            )
    return path


def write_cells(
    path: Path,
    size: tuple[int, int],
    downsamples: Sequence[float] = (1.0, 4.0, 16.0),
    *,
    cell_px: float = 64.0,
    mpp: float = 0.25,
    tile: int = 64,
    is_padded: bool = False,
    round_side=round,
) -> Path:
    """A pyramid of cells; padded levels are filled with black up to whole tiles."""
    levels = []
    for downsample in downsamples:
        width, height = (max(1, round_side(side / downsample)) for side in size)
        picture = cell_picture(width, height, cell_px, downsample)
        if is_padded and downsample > 1:
            picture = np.pad(picture, ((0, -height % tile), (0, -width % tile), (0, 0)))
        levels.append(picture)
    return write_tiff(path, levels, mpp=mpp, tile=tile)


def halving_pyramid(picture: np.ndarray, num_levels: int) -> list[np.ndarray]:
    """Levels each half the one before (2 x 2 means), sides rounded down."""
    levels = [picture]
    for _ in range(num_levels - 1):
        height, width = (side // 2 * 2 for side in levels[-1].shape[:2])
        blocks = levels[-1][:height, :width].reshape(height // 2, 2, width // 2, 2, 3)
        levels.append((blocks.astype(np.uint16).sum((1, 3)) + 2 >> 2).astype(np.uint8))
    return levels


def spoil_tile(path: Path, level: int, column: int, row: int) -> None:
    """Overwrite one tile of a TIFF with bytes that no codec can decode."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        index = row * math.ceil(page.imagewidth / page.tilewidth) + column
        offset, size = page.dataoffsets[index], page.databytecounts[index]
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"\xff" * size)
