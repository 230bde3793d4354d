"""CLAM: its losses on a bag small enough for hand, its sizes and its guards."""

from __future__ import annotations

from math import exp, log, log1p, tanh

import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.clam import ClamMB, ClamSB, smooth_svm

FEATURES = (0.5, 3.0, 1.0, 2.5, 2.0, 1.5)


def num_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def set_linear(layer: torch.nn.Module, weight: list[list[float]], bias: list[float]) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))


def small_model(**settings) -> ClamSB:
    """Hidden values are the features, attention grows with them, logits are (g, -g, 0)."""
    model = ClamSB(
        1, 3, embed_dim=1, attention_dim=1, dropout=0.0, bag_weight=0.6, num_instances=2, **settings
    )
    set_linear(model.projection[0], [[1.0]], [0.0])
    set_linear(model.attention.value, [[1.0]], [0.0])
    set_linear(model.attention.gate, [[0.0]], [0.0])
    set_linear(model.attention.weight, [[2.0]], [0.0])
    set_linear(model.classifiers, [[1.0], [-1.0], [0.0]], [0.0, 0.0, 0.0])
    set_linear(model.instance_classifiers[0], [[0.0], [1.0]], [0.0, 0.0])  # logits (0, h)
    set_linear(model.instance_classifiers[1], [[1.0], [0.0]], [0.0, 0.0])  # logits (h, 0)
    set_linear(model.instance_classifiers[2], [[0.0], [0.0]], [1.0, 0.0])  # logits (1, 0)
    return model


def bag() -> list[torch.Tensor]:
    return [torch.tensor(FEATURES)[:, None]]


def pooled_by_hand() -> float:
    weights = [exp(tanh(h)) for h in FEATURES]  # 2 x tanh(h) x sigmoid(0)
    return sum(w * h for w, h in zip(weights, FEATURES, strict=True)) / sum(weights)


# Highest attention: 3 and 2.5; lowest: 1 and 0.5.
OWN_CE = (log1p(exp(-3)) + log1p(exp(-2.5)) + log1p(exp(1)) + log1p(exp(0.5))) / 4
SECOND_CE = (log1p(exp(-3)) + log1p(exp(-2.5))) / 2
THIRD_CE = log1p(exp(-1))


@pytest.mark.parametrize(
    ("subtyping", "instances"),
    [(False, OWN_CE), (True, (OWN_CE + SECOND_CE + THIRD_CE) / 3)],
)
def test_check_18_clam_loss_of_a_bag_of_six_by_hand(subtyping, instances):
    model = small_model(subtyping=subtyping)
    output = model(bag())
    pooled = pooled_by_hand()
    assert output.logits.tolist() == pytest.approx([pooled, -pooled, 0.0], rel=1e-5)
    bag_loss = log(exp(pooled) + exp(-pooled) + 1) - pooled
    assert model.loss(output, 0).item() == pytest.approx(0.6 * bag_loss + 0.4 * instances, rel=1e-5)


def test_check_18_clam_loss_with_smooth_svm_by_hand():
    model = small_model(subtyping=False, bag_loss="svm", instance_loss="svm")
    pooled = pooled_by_hand()
    bag_loss = log(exp(pooled) + exp(1 - pooled) + exp(1)) - pooled
    highest = [log(exp(1) + exp(h)) - h for h in (3.0, 2.5)]
    lowest = [log(exp(0) + exp(1 + h)) - 0 for h in (1.0, 0.5)]
    expected = 0.6 * bag_loss + 0.4 * (sum(highest) + sum(lowest)) / 4
    assert model.loss(model(bag()), 0).item() == pytest.approx(expected, rel=1e-5)


def test_another_label_takes_another_classifier():
    model = small_model()
    output = model(bag())
    pooled = pooled_by_hand()
    bag_loss = log(exp(pooled) + exp(-pooled) + 1) - 0.0
    third = (2 * (log1p(exp(-1)) + 1) + 2 * log1p(exp(-1))) / 4  # logits (1, 0), targets 1 1 0 0
    assert model.loss(output, 2).item() == pytest.approx(0.6 * bag_loss + 0.4 * third, rel=1e-5)


def test_class_weights_multiply_the_loss_of_the_bag_only():
    model = small_model()
    output = model(bag())
    pooled = pooled_by_hand()
    bag_loss = log(exp(pooled) + exp(-pooled) + 1) - pooled
    weighted = model.loss(output, 0, torch.tensor([3.0, 1.0, 1.0])).item()
    assert weighted == pytest.approx(0.6 * 3 * bag_loss + 0.4 * OWN_CE, rel=1e-5)


def test_mb_takes_the_attention_row_of_each_class():
    torch.manual_seed(0)
    model = ClamMB(4, 2, embed_dim=3, num_instances=1, subtyping=True)
    embeddings = torch.randn(4, 3)
    attention = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1]])
    own = model.instance_classifiers[0](embeddings[[0, 3]]).log_softmax(dim=1)
    other = model.instance_classifiers[1](embeddings[[2]]).log_softmax(dim=1)
    expected = -(own[0, 1] + own[1, 0]) / 2 - other[0, 0]
    loss = model.loss_of_instances(embeddings, attention, label=0)
    assert loss.item() == pytest.approx(expected.item() / 2, rel=1e-5)


@pytest.mark.parametrize("model_class", [ClamSB, ClamMB])
@pytest.mark.parametrize("num_patches", [1, 2, 3, 15])
def test_check_18_more_instances_than_patches_do_not_crash(model_class, num_patches):
    model = model_class(8, 3, num_instances=32, subtyping=True)
    loss = model.loss(model([torch.randn(num_patches, 8)]), 1)
    loss.backward()
    assert torch.isfinite(loss)


def test_the_instance_loss_reaches_the_projection_but_not_the_attention():
    model = ClamSB(8, 2, bag_weight=0.0)
    model.loss(model([torch.randn(20, 8)]), 1).backward()
    assert model.projection[0].weight.grad.abs().sum() > 0
    assert not model.attention.value.weight.grad.any()


@pytest.mark.parametrize(
    ("model_class", "num_classes", "expected"),
    [(ClamSB, 2, 790_791), (ClamSB, 3, 792_330), (ClamMB, 2, 791_048), (ClamMB, 3, 792_844)],
)
def test_check_13_number_of_parameters(model_class, num_classes, expected):
    assert num_parameters(model_class(1024, num_classes)) == expected


def test_smooth_svm_is_the_formula():
    logits = torch.tensor([[2.0, -1.0], [0.5, 0.25]])
    expected = (log(exp(2) + exp(0)) - 2 + log(exp(1.5) + exp(0.25)) - 0.25) / 2
    assert smooth_svm(logits, torch.tensor([0, 1])).item() == pytest.approx(expected, rel=1e-6)


def test_xavier_has_zero_biases_and_the_stated_spread():
    torch.manual_seed(0)
    model = ClamSB(1024, 2, init="xavier")
    weight = model.projection[0].weight
    assert weight.std().item() == pytest.approx((2 / (1024 + 512)) ** 0.5, rel=0.01)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


def test_mb_shows_the_attention_of_the_class_it_answers():
    torch.manual_seed(0)
    model = ClamMB(8, 3).eval()
    output = model([torch.randn(10, 8)])
    answered = output.extras["class_attention"][int(output.logits.argmax())]
    assert torch.equal(output.attention[0], answered)


@pytest.mark.parametrize(
    "settings",
    [
        {"bag_loss": "hinge"},
        {"instance_loss": ""},
        {"init": "zero"},
        {"num_instances": 0},
        {"bag_weight": 1.5},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(ModelError, match="expected"):
        ClamSB(8, 2, **settings)
