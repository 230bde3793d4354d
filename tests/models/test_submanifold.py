"""Submanifold convolution by gather and scatter against a masked dense convolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from zoommil.models.submanifold import Occupancy, SparseMap, SubmanifoldConv, neighbour_rows


def dense_conv(conv: SubmanifoldConv, sparse_map: SparseMap) -> torch.Tensor:
    """Rows of conv2d on the zero-filled map, read back at the occupied cells."""
    columns, rows = (sparse_map.cells - sparse_map.cells.min(dim=0).values).T
    filled = sparse_map.features.new_zeros(
        sparse_map.features.shape[1], int(rows.max()) + 1, int(columns.max()) + 1
    )
    filled[:, rows, columns] = sparse_map.features.T
    weight = conv.weight.reshape(3, 3, *conv.weight.shape[1:]).permute(3, 2, 0, 1)
    return functional.conv2d(filled[None], weight, conv.bias, padding=1)[0][:, rows, columns].T


def random_map(num_patches: int, extent: int, features: int) -> SparseMap:
    generator = torch.Generator().manual_seed(num_patches)
    positions = torch.randint(-extent, extent, (num_patches, 2), generator=generator)
    return Occupancy.of(positions).average(torch.randn(num_patches, features, generator=generator))


@pytest.mark.parametrize(("num_patches", "extent"), [(1, 5), (2, 1), (60, 5), (100, 40), (400, 10)])
def test_check_18_gather_scatter_equals_masked_dense_convolution(num_patches, extent):
    torch.manual_seed(0)
    first, second = SubmanifoldConv(16, 8), SubmanifoldConv(8, 4)
    nn.init.normal_(first.bias)
    nn.init.normal_(second.bias)
    sparse_map = random_map(num_patches, extent, 16)
    sparse = first(sparse_map)
    dense = SparseMap(sparse_map.cells, dense_conv(first, sparse_map))
    assert (sparse.features - dense.features).abs().max() < 1e-5
    assert (second(sparse).features - dense_conv(second, dense)).abs().max() < 1e-5


def test_check_18_gradients_equal_those_of_the_dense_convolution():
    torch.manual_seed(0)
    conv = SubmanifoldConv(6, 5)
    sparse_map = random_map(50, 4, 6)
    weighting = torch.randn(len(sparse_map.cells), 5)
    sparse = torch.autograd.grad((conv(sparse_map).features * weighting).sum(), conv.weight)[0]
    dense = torch.autograd.grad((dense_conv(conv, sparse_map) * weighting).sum(), conv.weight)[0]
    assert (sparse - dense).abs().max() < 1e-4


def test_check_18_patches_in_one_cell_are_averaged():
    positions = torch.tensor([[2, 3], [0, 0], [2, 3], [2, 3]])
    features = torch.tensor([[3.0, 0.0], [1.0, 1.0], [6.0, 0.0], [0.0, 3.0]])
    occupancy = Occupancy.of(positions)
    averaged = occupancy.average(features)
    assert occupancy.shares().tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    assert averaged.cells.tolist() == [[0, 0], [2, 3]]
    assert averaged.features.tolist() == [[1.0, 1.0], [3.0, 1.0]]


def test_cells_do_not_become_neighbours_across_the_edge_of_the_map():
    cells = torch.tensor([[0, 4], [1, 0]])  # the end of one column, the start of the next
    for offset in SubmanifoldConv.OFFSETS:
        outputs, inputs = neighbour_rows(cells, offset)
        assert torch.equal(outputs, inputs)
        assert len(outputs) == (2 if offset == (0, 0) else 0)


def test_initial_weights_have_the_stated_spread():
    torch.manual_seed(0)
    conv = SubmanifoldConv(512, 32)
    assert conv.weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.02)
    assert not conv.bias.any()
