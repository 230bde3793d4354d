"""Row 4, grid: cells (row, column) of one step come in, their level-0 boxes come out, and back.

Every step's grid hangs on the same origin. A corner is computed from the origin in one
multiplication, never from its parent's, so no error accumulates: a cell's box is the same number
whatever other steps there are.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from zoommil.errors import GridError
from zoommil.grid.slots import offsets_of_slots

MAX_CELLS = 20_000_000

_TOLERANCE_PX = 1e-6


def grid_shape(width: float, height: float, side: float) -> tuple[int, int]:
    """How many rows and columns of cells cover an area; the last ones may stick out.

    Args:
        width: of the area, level-0 pixels.
        height: of the area, level-0 pixels.
        side: of one cell, level-0 pixels.

    Raises:
        GridError: there would be more cells than can be meant.
    """
    columns = max(1, math.ceil((width - _TOLERANCE_PX) / side))
    rows = max(1, math.ceil((height - _TOLERANCE_PX) / side))
    check_count(rows * columns, side)
    return rows, columns


def check_count(num_cells: int, side: float) -> None:
    """Refuse grids that no machine can hold."""
    if num_cells > MAX_CELLS:
        raise GridError(
            f"patches of {side:g} level-0 pixels would be {num_cells:,} cells, more than "
            f"{MAX_CELLS:,}. Use larger patches (patch_px) or lower magnifications."
        )


def all_cells(num_rows: int, num_columns: int) -> Int[np.ndarray, "cell 2"]:
    """The (row, column) of every cell of a grid, row by row."""
    rows, columns = np.divmod(np.arange(num_rows * num_columns, dtype=np.int64), num_columns)
    return np.stack([rows, columns], axis=1)


def child_cells(cells: Int[np.ndarray, "cell 2"], ratio: int) -> Int[np.ndarray, "child 2"]:
    """The (row, column) of all children, a contiguous block in slot order for each parent."""
    blocks = cells[:, None, :] * ratio + offsets_of_slots(ratio)[None, :, :]
    return blocks.reshape(-1, 2)


def boxes_of_cells(
    cells: Int[np.ndarray, "cell 2"], origin: tuple[float, float], side: float
) -> Float[np.ndarray, "cell 4"]:
    """The exact level-0 boxes (x, y, width, height) of cells.

    Rows and columns, origin and side are what a bag file stores beside the rounded corners;
    this rebuilds the exact corners from them, bit for bit.
    """
    boxes = np.empty((len(cells), 4), dtype=np.float64)
    boxes[:, 0] = origin[0] + cells[:, 1] * side
    boxes[:, 1] = origin[1] + cells[:, 0] * side
    boxes[:, 2:] = side
    return boxes


def cells_of_boxes(
    boxes: Float[np.ndarray, "cell 4"], origin: tuple[float, float], side: float
) -> Int[np.ndarray, "cell 2"]:
    """The (row, column) of boxes on a step's own grid, from their corners (rounded ones too).

    The side must be that step's own: dividing by another step's is the classic mistake.
    """
    columns_rows = np.rint((boxes[:, :2] - np.asarray(origin, dtype=np.float64)) / side)
    return columns_rows[:, ::-1].astype(np.int64)
