"""Row 9, models: convolution on the occupied cells of a map; cells and features in, features out.

A sparse map is a list of distinct integer cells and one feature row per cell. A submanifold
convolution writes only where there was something to read, so the list of cells never grows. It
is computed by gather and scatter: one small matrix product per offset of the filter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class Occupancy:
    """The cells that patches lie in."""

    cells: Int[Tensor, "cell 2"]  # distinct (column, row)
    cell_of_patch: Int[Tensor, " patch"]
    counts: Int[Tensor, " cell"]  # patches in each cell

    @classmethod
    def of(cls, positions: Int[Tensor, "patch 2"]) -> Occupancy:
        """The occupancy of patches in those cells."""
        return cls(*torch.unique(positions, dim=0, return_inverse=True, return_counts=True))

    def average(self, features: Float[Tensor, "patch feature"]) -> SparseMap:
        """The map of those features: patches that share a cell are averaged."""
        sums = features.new_zeros(len(self.cells), features.shape[1])
        sums = sums.index_add(0, self.cell_of_patch, features)
        return SparseMap(self.cells, sums / self.counts[:, None].to(sums.dtype))

    def shares(self) -> Float[Tensor, " patch"]:
        """Each patch's share in a mean over cells; they sum to 1."""
        return 1 / (len(self.cells) * self.counts[self.cell_of_patch].float())


@dataclass(frozen=True)
class SparseMap:
    """Distinct cells (column, row) and the feature row of each."""

    cells: Int[Tensor, "cell 2"]
    features: Float[Tensor, "cell feature"]

    def relu(self) -> SparseMap:
        """The map with negative features set to zero."""
        return SparseMap(self.cells, self.features.relu())


def neighbour_rows(
    cells: Int[Tensor, "cell 2"], offset: tuple[int, int]
) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """Rows (of the output, of the input) of all pairs of cells that are `offset` apart."""
    lowest = cells.min(dim=0).values - 1  # a margin of one: no offset wraps into another column
    height = int(cells[:, 1].max() - lowest[1]) + 2
    relative = cells - lowest
    keys = relative[:, 0] * height + relative[:, 1]
    sorted_keys, row_of_rank = torch.sort(keys)
    wanted = keys + offset[0] * height + offset[1]
    rank = torch.searchsorted(sorted_keys, wanted).clamp(max=len(keys) - 1)
    outputs = torch.nonzero(sorted_keys[rank] == wanted).squeeze(1)
    return outputs, row_of_rank[rank[outputs]]


class SubmanifoldConv(nn.Module):
    """y[p] = b + sum over o in {-1, 0, 1}^2 of x[p + o] W_o, over occupied p and p + o only."""

    OFFSETS = tuple((column, row) for row in (-1, 0, 1) for column in (-1, 0, 1))

    def __init__(self, in_features: int, out_features: int) -> None:
        """Weights are drawn from N(0, 2 / (9 in_features)); the bias starts at zero."""
        super().__init__()
        weight = torch.randn(len(self.OFFSETS), in_features, out_features)
        self.weight = nn.Parameter(weight * (2 / (len(self.OFFSETS) * in_features)) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, sparse_map: SparseMap) -> SparseMap:
        """The map with the same cells and `out_features` features each."""
        features = sparse_map.features
        summed = self.bias.to(features.dtype).expand(len(features), -1)
        for offset, weight in zip(self.OFFSETS, self.weight, strict=True):
            outputs, inputs = neighbour_rows(sparse_map.cells, offset)
            product = features[inputs] @ weight
            summed = summed.to(product.dtype).index_add(0, outputs, product)
        return SparseMap(sparse_map.cells, summed)
