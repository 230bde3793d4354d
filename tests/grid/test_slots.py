"""The order of children inside a block, and of the first step's cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil.grid.slots import (
    is_power_of_two,
    morton_order,
    offsets_of_slots,
    row_major_order,
    slots_of_offsets,
)

RATIOS = (1, 2, 3, 4, 5, 6, 8, 16)


def test_the_published_order_of_ratio_two():
    assert offsets_of_slots(2).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]


def test_ratio_four_is_ratio_two_inside_ratio_two():
    coarse, fine = np.divmod(np.arange(16), 4)
    two = offsets_of_slots(2)
    np.testing.assert_array_equal(offsets_of_slots(4), two[coarse] * 2 + two[fine])


def test_ratio_three_is_row_by_row():
    assert offsets_of_slots(3)[:4].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]


@pytest.mark.parametrize("ratio", RATIOS)
def test_check_9_slot_function_and_inverse_are_bijections(ratio):
    offsets = offsets_of_slots(ratio)
    assert len({tuple(offset) for offset in offsets.tolist()}) == ratio**2
    assert offsets.min() == 0
    assert offsets.max() == ratio - 1
    np.testing.assert_array_equal(slots_of_offsets(offsets, ratio), np.arange(ratio**2))


@given(st.integers(1, 4), st.integers(1, 4))
def test_blocks_of_powers_of_two_nest(a, b):
    outer, inner = 2**a, 2**b
    slots = np.arange((outer * inner) ** 2)
    coarse, fine = np.divmod(slots, inner**2)
    nested = offsets_of_slots(outer)[coarse] * inner + offsets_of_slots(inner)[fine]
    np.testing.assert_array_equal(offsets_of_slots(outer * inner), nested)


def test_which_ratios_nest():
    assert [ratio for ratio in RATIOS if is_power_of_two(ratio)] == [1, 2, 4, 8, 16]


@given(st.integers(1, 20), st.integers(1, 20))
def test_orders_are_permutations(rows, columns):
    cells = np.argwhere(np.ones((rows, columns), dtype=bool)).astype(np.int64)
    for order in (morton_order(cells), row_major_order(cells[::-1].copy())):
        np.testing.assert_array_equal(np.sort(order), np.arange(len(cells)))


def test_row_major_is_row_by_row():
    cells = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
    ordered = cells[row_major_order(cells)]
    assert ordered.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_morton_neighbours_in_order_are_neighbours_in_space():
    cells = np.argwhere(np.ones((16, 16), dtype=bool)).astype(np.int64)

    def mean_step(order):
        return np.abs(np.diff(cells[order], axis=0)).sum(axis=1).mean()

    apart = {
        name: _apart(cells[order(cells)], 16)
        for name, order in (("morton", morton_order), ("rows", row_major_order))
    }
    assert apart["morton"] < apart["rows"] / 2
    assert mean_step(morton_order(cells)) < 2.5


def _apart(cells: np.ndarray, run: int) -> float:
    """The mean extent of runs of that many cells."""
    runs = cells.reshape(-1, run, 2)
    return float((runs.max(axis=1) - runs.min(axis=1)).max(axis=1).mean())
