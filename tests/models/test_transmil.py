"""TransMIL: sizes of bags, order of patches, the square and its convolutions."""

from __future__ import annotations

import pytest
import torch

from zoommil.models.transmil import PositionalConvolutions, TransMIL, square_rows


@pytest.fixture(scope="module")
def model() -> TransMIL:
    torch.manual_seed(0)
    return TransMIL(1024, 2).eval()


@pytest.mark.parametrize(("num_classes", "expected"), [(2, 2_672_146), (3, 2_672_659)])
def test_check_13_number_of_parameters(num_classes, expected):
    assert sum(p.numel() for p in TransMIL(1024, num_classes).parameters()) == expected


@pytest.mark.parametrize("num_patches", [1, 2, 255, 256, 257, 3000])
def test_check_18_bags_of_any_size_run(model, num_patches):
    features = torch.randn(num_patches, 1024, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = model([features])
    assert torch.isfinite(output.logits).all()
    assert output.attention[0].shape == (num_patches,)
    assert output.attention[0].sum().item() == pytest.approx(1.0, abs=1e-5)


def test_with_coords_the_order_of_the_rows_does_not_matter(model):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(30, 1024, generator=generator)
    cells = torch.randperm(100, generator=generator)[:30].sort().values
    coords = torch.stack([cells % 10, cells // 10], dim=1) * 512
    order = torch.randperm(30, generator=generator)
    with torch.no_grad():
        straight = model([features], [coords])
        shuffled = model([features[order]], [coords[order]])
        as_given = model([features])
        shuffled_as_given = model([features[order]])
    assert torch.equal(straight.logits, shuffled.logits)
    assert torch.equal(straight.attention[0][order], shuffled.attention[0])
    assert torch.equal(straight.logits, as_given.logits)  # they came in reading order
    assert not torch.allclose(as_given.logits, shuffled_as_given.logits, atol=1e-6)


def test_the_square_is_filled_with_the_first_rows():
    assert square_rows(torch.arange(5)).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert square_rows(torch.arange(4)).tolist() == [0, 1, 2, 3]
    assert square_rows(torch.arange(2)).tolist() == [0, 1, 0, 1]
    assert square_rows(torch.tensor([7])).tolist() == [7]


def test_positional_convolutions_sum_over_the_neighbourhood():
    torch.manual_seed(0)
    layer = PositionalConvolutions(3)
    tokens = torch.randn(1 + 16, 3)
    mixed = layer(tokens)
    assert torch.equal(mixed[0], tokens[0])
    square = tokens[1:].reshape(4, 4, 3)
    row, column, channel = 1, 3, 2
    expected = square[row, column, channel].clone()
    for convolution in layer.convolutions:
        reach = convolution.kernel_size[0] // 2
        expected += convolution.bias[channel]
        for down in range(-reach, reach + 1):
            for right in range(-reach, reach + 1):
                if 0 <= row + down < 4 and 0 <= column + right < 4:
                    weight = convolution.weight[channel, 0, down + reach, right + reach]
                    expected += weight * square[row + down, column + right, channel]
    assert mixed[1 + 4 * row + column, channel].item() == pytest.approx(expected.item(), abs=1e-5)


def test_training_draws_at_most_max_tokens_and_evaluation_none():
    model = TransMIL(16, 2, embed_dim=64, num_heads=2, max_tokens=25, dropout=0.0, seed=3)
    features = torch.randn(200, 16)
    seen = [(model([features]).attention[0] > 0).sum().item() for _ in range(3)]
    assert max(seen) <= 25
    state = model.noise.get_state()
    first = model([features]).logits
    assert not torch.equal(first, model([features]).logits)
    model.noise.set_state(state)
    assert torch.equal(first, model([features]).logits)
    with torch.no_grad():
        assert (model.eval()([features]).attention[0] > 0).sum() > 25
