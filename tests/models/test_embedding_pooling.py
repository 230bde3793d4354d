"""MaxMIL and MeanMIL: what they pool, what they draw, their size."""

from __future__ import annotations

import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.maxmil import MaxMIL
from zoommil.models.meanmil import MeanMIL


@pytest.mark.parametrize("model_class", [MaxMIL, MeanMIL])
def test_check_13_number_of_parameters(model_class):
    assert sum(p.numel() for p in model_class(512, 3).parameters()) == 66_051


def test_the_maximum_and_who_holds_it():
    features = torch.tensor([[1.0, 5.0, 0.0, 2.0], [3.0, 1.0, 0.0, 4.0], [0.0, 0.0, -1.0, 0.0]])
    model = MaxMIL(4, 2).eval()
    output = model([features])
    assert torch.equal(output.logits, model.head(torch.tensor([3.0, 5.0, 0.0, 4.0])))
    assert output.attention[0].tolist() == [0.375, 0.625, 0.0]  # the third feature is tied


def test_the_mean_of_all_patches():
    features = torch.randn(7, 4)
    model = MeanMIL(4, 2).eval()
    output = model([features])
    assert torch.allclose(output.logits, model.head(features.mean(dim=0)), atol=1e-6)
    assert output.attention[0].tolist() == pytest.approx([1 / 7] * 7)


@pytest.mark.parametrize("model_class", [MaxMIL, MeanMIL])
def test_drawn_patches_repeat_in_evaluation_and_vary_in_training(model_class):
    torch.manual_seed(0)
    model = model_class(8, 2, num_patches=10, seed=0)
    bag = [torch.randn(500, 8)]
    drawn = [model(bag).attention[0] > 0 for _ in range(2)]
    assert not torch.equal(*drawn)
    assert max(int(mask.sum()) for mask in drawn) <= 10
    model.eval()
    first = model(bag)
    model.seed_noise(99)
    assert torch.equal(first.logits, model(bag).logits)
    assert torch.equal(first.attention[0], model(bag).attention[0])


def test_mean_of_drawn_patches_weighs_repeats():
    model = MeanMIL(4, 2, num_patches=50).eval()
    features = torch.randn(6, 4)  # fifty draws from six: every patch more than once
    output = model([features])
    assert torch.allclose(output.logits, model.head(output.attention[0] @ features), atol=1e-6)
    assert len(set(output.attention[0].tolist())) > 1


def test_a_number_that_cannot_be_drawn_is_refused():
    with pytest.raises(ModelError, match="num_patches is 0"):
        MeanMIL(4, 2, num_patches=0)
