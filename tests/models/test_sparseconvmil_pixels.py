"""SparseConvMIL trained from pixels: it overfits, and its encoder really learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zoommil.errors import ModelError
from zoommil.models.sparseconvmil_pixels import PixelSparseConvMIL


def blotchy_bags() -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Four bags of eight patches of 64 random blotches each: to be learnt by heart only."""
    generator = torch.Generator().manual_seed(0)
    coords = torch.cartesian_prod(torch.arange(2), torch.arange(4)).flip(1) * 64
    blotches = torch.randn(4, 8, 3, 8, 8, generator=generator)
    patches = blotches.repeat_interleave(8, dim=-1).repeat_interleave(8, dim=-2)
    return [(patches[bag], coords, label) for bag, label in enumerate((0, 1, 1, 0))]


def train(model: PixelSparseConvMIL, num_rounds: int, encoder_lr: float) -> float:
    """The mean loss of the last round; gradients are added up bag by bag, then one step."""
    optimiser = torch.optim.Adam(model.parameter_groups(encoder_lr=encoder_lr), weight_decay=1e-4)
    total = float("inf")
    for _ in range(num_rounds):
        optimiser.zero_grad()
        total = 0.0
        for patches, coords, label in blotchy_bags():
            loss = model.loss(model(patches, coords, patch_side=64.0), label) / 4
            loss.backward()
            total += loss.item()
        optimiser.step()
    return total


@pytest.mark.parametrize(
    ("encoder", "num_rounds"),
    [("resnet18", 8), pytest.param("resnet34", 20, marks=pytest.mark.slow)],
)
def test_it_overfits_four_bags_of_eight_patches(encoder, num_rounds):
    torch.manual_seed(0)
    model = PixelSparseConvMIL(encoder, 2, patch_px=64.0, cell_px=64.0, augment=False)
    assert train(model, num_rounds, encoder_lr=1e-3) < 0.05
    model.eval()
    with torch.no_grad():
        answers = [
            model(patches, coords).logits.argmax().item() for patches, coords, _ in blotchy_bags()
        ]
    assert answers == [0, 1, 1, 0]


def test_the_encoder_gets_gradients_and_its_own_rate():
    torch.manual_seed(0)
    model = PixelSparseConvMIL("resnet18", 2)
    patches, coords, label = blotchy_bags()[0]
    model.loss(model(patches, coords), label).backward()
    assert model.encoder.conv1.weight.grad.abs().sum() > 0
    groups = model.parameter_groups()
    assert [group["lr"] for group in groups] == [1e-5, 1e-3]
    grouped = {id(p) for group in groups for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters()}


def test_any_encoder_will_do():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    with pytest.raises(ModelError, match="pass dim="):
        PixelSparseConvMIL(encoder, 2)
    model = PixelSparseConvMIL(encoder, 2, dim=5).eval()
    output = model(torch.randn(6, 3, 2, 2), torch.arange(12).reshape(6, 2) * 256)
    assert output.logits.shape == (2,)
    assert output.attention[0].sum().item() == pytest.approx(1.0)


def test_bad_input_is_refused():
    with pytest.raises(ModelError, match="resnet18, resnet34"):
        PixelSparseConvMIL("resnet1", 2)
    model = PixelSparseConvMIL(nn.Flatten(), 2, dim=12)
    with pytest.raises(ModelError, match="one corner per patch"):
        model(torch.randn(6, 3, 2, 2), torch.zeros(5, 2, dtype=torch.long))
