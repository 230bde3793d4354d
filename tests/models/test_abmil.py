"""ABMIL against its formula, and its size."""

from __future__ import annotations

import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.abmil import ABMIL


def test_check_13_number_of_parameters():
    assert sum(p.numel() for p in ABMIL(1024, 3).parameters()) == 789_252
    assert sum(p.numel() for p in ABMIL(1024, 2).parameters()) == 789_252 - 513


def test_it_is_the_formula():
    torch.manual_seed(0)
    model = ABMIL(6, 3, embed_dim=5, attention_dim=4).eval()
    features = torch.randn(9, 6)
    projection, attention = model.projection[0], model.attention
    hidden = (features @ projection.weight.T + projection.bias).clamp(min=0)
    value = torch.tanh(hidden @ attention.value.weight.T + attention.value.bias)
    gate = 1 / (1 + torch.exp(-(hidden @ attention.gate.weight.T + attention.gate.bias)))
    logits = (value * gate) @ attention.weight.weight.T + attention.weight.bias
    weights = torch.exp(logits) / torch.exp(logits).sum()
    pooled = (weights * hidden).sum(dim=0)
    head = model.head.layers[0]
    output = model([features])
    assert torch.allclose(output.attention[0], weights[:, 0], atol=1e-6)
    assert torch.allclose(output.logits, head.weight @ pooled + head.bias, atol=1e-6)


def test_the_papers_text_has_deeper_attention_and_head():
    model = ABMIL(1024, 3, attention_depth=2, head="mlp")
    assert len(model.attention.before) == 2
    added = 2 * (512 * 512 + 512) + (512 * 256 + 256 + 256 * 3 + 3) - (512 * 3 + 3)
    assert sum(p.numel() for p in model.parameters()) == 789_252 + added


def test_it_takes_the_step_it_is_told():
    model = ABMIL((4, 8, 16), 2, (2, 2), at=1).eval()
    bag = [torch.randn(1, 4), torch.randn(4, 8), torch.randn(16, 16)]
    output = model(bag)
    assert output.steps == (1,)
    assert output.attention[0].shape == (4,)
    with pytest.raises(ModelError, match="at is 3"):
        ABMIL((4, 8, 16), 2, (2, 2), at=3)
