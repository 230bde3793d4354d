"""Row 9, models: where patches lie; level-0 corners flow in, an order or positions flow out."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

_PARTS = 16  # positions are exact to a sixteenth of a patch: the rounding of corners vanishes


def row_major_order(coords: Shaped[Tensor, "patch 2"]) -> Int[Tensor, " patch"]:
    """The rows in reading order: by y, then by x, then as they came."""
    by_x = torch.argsort(coords[:, 0], stable=True)
    return by_x[torch.argsort(coords[by_x, 1], stable=True)]


def square_coords(num_patches: int) -> Int[Tensor, "patch 2"]:
    """Corners of unit patches laid out line by line in the smallest square that holds them."""
    side = math.isqrt(num_patches - 1) + 1
    rows = torch.arange(num_patches)
    return torch.stack([rows % side, rows // side], dim=1)


def grid_spacing(coords: Shaped[Tensor, "patch 2"]) -> float:
    """The distance between neighbouring patches: the side of a patch where none overlap.

    The smallest gap between distinct x or y gives how many patches each gap spans; extent over
    number of spans gives the side without the rounding of the corners. A lone patch gives 1.
    """
    gaps = torch.cat([torch.diff(torch.unique(axis.double())) for axis in coords.T])
    if len(gaps) == 0:
        return 1.0
    spans = torch.round(gaps / gaps.min())
    return float(gaps.sum() / spans.sum())


def positions_in_patches(
    coords: Shaped[Tensor, "patch 2"], patch_side: float
) -> Float[Tensor, "patch 2"]:
    """Corners relative to the lowest x and y, in sides of a patch.

    Args:
        coords: level-0 corners.
        patch_side: side of a patch in level-0 pixels.
    """
    corners = coords.double()
    relative = (corners - corners.min(dim=0).values) / patch_side
    return torch.round(relative * _PARTS) / _PARTS
