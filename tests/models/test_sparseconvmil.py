"""SparseConvMIL: where patches land, what is averaged, what varies and what must not."""

from __future__ import annotations

import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.sparseconvmil import SparseConvMIL, augmented


def grid_coords(columns: int, rows: int, side: float, origin: float = 0.0) -> torch.Tensor:
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(1)
    return torch.floor(origin + cells.double() * side + 0.5).long()


def logits_of(model: SparseConvMIL, features: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()([features], [coords]).logits


def whole_model(**settings) -> SparseConvMIL:
    torch.manual_seed(0)
    return SparseConvMIL(8, 2, **{"num_patches": None, "cell_px": 256.0, **settings})


def test_check_13_number_of_parameters():
    model = SparseConvMIL(512, 3)
    assert sum(p.numel() for p in model.convolutions.parameters()) == 156_736
    assert sum(p.numel() for p in model.head.parameters()) == 4_611


def test_check_18_patches_of_one_cell_are_averaged():
    model = whole_model()
    features, coords = torch.randn(4, 8), grid_coords(2, 2, 512)
    doubled = torch.cat([features, features[:1] + 1, features[:1] - 1])
    doubled_coords = torch.cat([coords, coords[:1], coords[:1]])
    expected = logits_of(model, features, coords)
    assert torch.allclose(logits_of(model, doubled, doubled_coords), expected, atol=1e-6)


def test_check_18_evaluation_is_deterministic_and_training_is_not():
    torch.manual_seed(0)
    model = SparseConvMIL(8, 2, seed=0)
    features, coords = torch.randn(300, 8), grid_coords(20, 15, 512)
    trained = [model([features], [coords]).logits for _ in range(2)]
    assert not torch.equal(*trained)
    first = logits_of(model, features, coords)
    model.train()([features], [coords])
    model.seed_noise(5)
    assert torch.equal(logits_of(model, features, coords), first)


def test_neither_origin_nor_side_nor_order_of_the_patches_matters():
    model = whole_model()
    features = torch.randn(42, 8)
    first = logits_of(model, features, grid_coords(7, 6, 256))
    for side, origin in ((512.4, 0.0), (1023.7, 3811.3), (300.02, 77.77)):
        coords = grid_coords(7, 6, side, origin)
        assert torch.allclose(logits_of(model, features, coords), first, atol=1e-6)
    order = torch.randperm(42)
    shuffled = logits_of(model, features[order], grid_coords(7, 6, 256)[order])
    assert torch.allclose(shuffled, first, atol=1e-6)


def test_neighbours_meet_only_when_the_cell_is_a_patch():
    features, near = torch.randn(4, 8), grid_coords(2, 2, 512)
    far = torch.cat([near, near.new_tensor([[512 * 40, 512 * 40]])])
    spread_out = torch.cat([near * 10, near.new_tensor([[512, 0]])])  # keeps the spacing known
    one_more = torch.cat([features, torch.zeros(1, 8)])
    for cell_px, is_same in ((128.0, True), (256.0, False)):
        model = whole_model(cell_px=cell_px)
        together, apart = (logits_of(model, one_more, coords) for coords in (far, spread_out))
        assert torch.allclose(together, apart, atol=1e-6) == is_same


def test_attention_is_the_share_in_the_mean_over_cells():
    model = whole_model().eval()
    coords = torch.tensor([[0, 0], [0, 0], [512, 0], [1024, 0]])
    attention = model([torch.randn(4, 8)], [coords]).attention[0]
    assert attention.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])


def test_augmented_positions_are_whole_pixels_and_keep_a_sane_shape():
    generator = torch.Generator().manual_seed(0)
    positions = grid_coords(10, 4, 256).double()
    diagonal = float(positions.amax(dim=0).norm())
    lengths = []
    for _ in range(200):
        moved = augmented(positions, generator)
        assert torch.equal(moved, moved.round())
        assert moved.amin(dim=0).tolist() == [0.0, 0.0]
        lengths.append(float((moved[-1] - moved[0]).norm()) / diagonal)
    assert min(lengths) > 0.69
    assert max(lengths) < 1.31
    assert max(lengths) - min(lengths) > 0.4


def test_augmentation_can_be_switched_off():
    model = whole_model(augment=False, cell_px=128.0).train()
    features, coords = torch.randn(12, 8), grid_coords(4, 3, 512)
    trained = model([features], [coords]).logits
    assert torch.allclose(trained, logits_of(model, features, coords), atol=1e-6)


def test_bags_without_coords_lie_in_a_square():
    model = whole_model()
    features = torch.randn(9, 8)
    expected = logits_of(model, features, grid_coords(3, 3, 512))
    with torch.no_grad():
        assert torch.allclose(model.eval()([features]).logits, expected, atol=1e-6)


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(ModelError, match="cell_px is 0"):
        SparseConvMIL(8, 2, cell_px=0)
    with pytest.raises(ModelError, match="num_patches is -1"):
        SparseConvMIL(8, 2, num_patches=-1)
