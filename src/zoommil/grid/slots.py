"""Row 4, grid: in which order patches are numbered; cells (row, column) come in, slots come out.

A parent's children fill one contiguous block of rows of the next step; the slot is a child's place
in that block. For ratios that are powers of two the order nests (a middle step can be left out);
other ratios are numbered row by row and do not nest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

_MORTON_BITS = 26


def is_power_of_two(ratio: int) -> bool:
    """Whether blocks of this linear ratio nest in one another."""
    return ratio >= 1 and ratio & (ratio - 1) == 0


def slots_of_offsets(offsets: Int[np.ndarray, "child 2"], ratio: int) -> Int[np.ndarray, " child"]:
    """The slots of children at (row, column) offsets inside their parent.

    Powers of two: the sum over bits b of 4^b (bit_b(row) + 2 bit_b(column)), so for ratio 2
    (0,0), (1,0), (0,1), (1,1). Otherwise row * ratio + column.
    """
    rows, columns = offsets[:, 0].astype(np.int64), offsets[:, 1].astype(np.int64)
    if not is_power_of_two(ratio):
        return rows * ratio + columns
    return _interleave(rows, columns, ratio.bit_length() - 1)


def offsets_of_slots(ratio: int) -> Int[np.ndarray, "child 2"]:
    """The (row, column) offsets of all ratio^2 children, in slot order: the inverse."""
    slots = np.arange(ratio * ratio, dtype=np.int64)
    if not is_power_of_two(ratio):
        return np.stack([slots // ratio, slots % ratio], axis=1)
    rows, columns = np.zeros_like(slots), np.zeros_like(slots)
    for bit in range(ratio.bit_length() - 1):
        rows |= (slots >> (2 * bit) & 1) << bit
        columns |= (slots >> (2 * bit + 1) & 1) << bit
    return np.stack([rows, columns], axis=1)


def morton_order(cells: Int[np.ndarray, "cell 2"]) -> Int[np.ndarray, " cell"]:
    """The permutation that puts cells along a Morton curve, so that neighbours stay near."""
    codes = _interleave(cells[:, 0], cells[:, 1], _MORTON_BITS)
    return np.argsort(codes, kind="stable")


def row_major_order(cells: Int[np.ndarray, "cell 2"]) -> Int[np.ndarray, " cell"]:
    """The permutation that puts cells row by row (the published order)."""
    return np.lexsort((cells[:, 1], cells[:, 0]))


def _interleave(
    rows: Int[np.ndarray, " cell"], columns: Int[np.ndarray, " cell"], num_bits: int
) -> Int[np.ndarray, " cell"]:
    codes = np.zeros(len(rows), dtype=np.int64)
    for bit in range(num_bits):
        codes |= (rows >> bit & 1) << (2 * bit)
        codes |= (columns >> bit & 1) << (2 * bit + 1)
    return codes
