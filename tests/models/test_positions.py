"""Reading order, spacing and positions from rounded level-0 corners."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoommil.models.positions import (
    grid_spacing,
    positions_in_patches,
    row_major_order,
    square_coords,
)


def rounded_grid(rows_columns: torch.Tensor, side: float, origin: float) -> torch.Tensor:
    """Level-0 corners (x, y) as they are stored: floor(corner + 0.5)."""
    return torch.floor(origin + rows_columns.flip(1).double() * side + 0.5).long()


def test_reading_order_is_by_y_then_x():
    coords = torch.tensor([[5, 9], [1, 0], [7, 0], [0, 9], [1, 4]])
    assert row_major_order(coords).tolist() == [1, 2, 4, 3, 0]


@given(
    side=st.floats(64, 3000),
    origin=st.floats(0, 5000),
    extent=st.integers(3, 100),
    seed=st.integers(0, 99),
)
def test_positions_are_exact_whatever_the_side_and_the_rounding(side, origin, extent, seed):
    generator = torch.Generator().manual_seed(seed)
    scattered = torch.randint(0, extent, (50, 2), generator=generator)
    neighbours = torch.tensor([[0, 0], [0, 1], [1, 0]])
    rows_columns = torch.cat([neighbours, scattered])
    coords = rounded_grid(rows_columns, side, origin)
    spacing = grid_spacing(coords)
    assert spacing == pytest.approx(side, abs=1.0)
    assert positions_in_patches(coords, spacing).tolist() == rows_columns.flip(1).tolist()


def test_a_lone_patch_has_a_spacing():
    assert grid_spacing(torch.tensor([[7, 9]])) == 1.0
    assert positions_in_patches(torch.tensor([[7, 9]]), 1.0).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("num_patches", "side"), [(1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4)])
def test_patches_without_coords_fill_the_smallest_square(num_patches, side):
    coords = square_coords(num_patches)
    assert len(torch.unique(coords, dim=0)) == num_patches
    assert coords.max() < side
    assert row_major_order(coords).tolist() == list(range(num_patches))
