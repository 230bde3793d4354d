"""What holds for every baseline: order, validity, precision, storage, and that it can learn."""

from __future__ import annotations

import copy

import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.creation import create_model
from zoommil.models.model import Model

# Small enough to train in a second; drawing is off so that what must not matter can be tested.
SETTINGS = {
    "abmil": {"embed_dim": 32, "attention_dim": 16, "dropout": 0.0},
    "clam_sb": {"embed_dim": 32, "attention_dim": 16, "dropout": 0.0, "subtyping": True},
    "clam_mb": {"embed_dim": 32, "attention_dim": 16, "dropout": 0.0, "num_instances": 2},
    "transmil": {"embed_dim": 32, "num_heads": 2, "num_landmarks": 16, "dropout": 0.0},
    "sparseconvmil": {"num_patches": None, "cell_px": 256.0},
    "maxmil": {"num_patches": None},
    "meanmil": {"num_patches": None},
}
every_baseline = pytest.mark.parametrize("name", SETTINGS)


def make(name: str, feature_dim: int = 24, num_classes: int = 2) -> Model:
    return create_model(
        name, feature_dim=feature_dim, num_classes=num_classes, seed=0, **SETTINGS[name]
    )


def random_bag(num_patches: int, seed: int, feature_dim: int = 24):
    """Features and corners of patches scattered over a grid of twelve by twelve."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randperm(144, generator=generator)[:num_patches]
    coords = torch.stack([cells % 12, cells // 12], dim=1) * 1024
    return torch.randn(num_patches, feature_dim, generator=generator), coords


@every_baseline
def test_the_order_of_the_patches_does_not_matter(name):
    model = make(name).eval()
    features, coords = random_bag(40, seed=1)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    first = model([features], [coords])
    second = model([features[order]], [coords[order]])
    assert torch.allclose(first.logits, second.logits, atol=1e-6)
    assert torch.allclose(first.attention[0][order], second.attention[0], atol=1e-6)


@every_baseline
def test_evaluation_is_deterministic_with_the_published_settings(name):
    model = create_model(name, feature_dim=24, num_classes=3, seed=0).eval()
    features, coords = random_bag(120, seed=3)
    first = model([features], [coords])
    model.train()([features], [coords])
    second = model.eval()([features], [coords])
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(first.attention[0], second.attention[0])


@every_baseline
def test_invalid_patches_are_as_if_absent(name):
    model = make(name).eval()
    features, coords = random_bag(30, seed=4)
    valid = torch.arange(30) % 3 != 1
    junk = features.clone()
    junk[~valid] = 100.0
    masked = model([junk], [coords], [valid])
    absent = model([features[valid]], [coords[valid]])
    assert torch.allclose(masked.logits, absent.logits, atol=1e-6)
    assert not masked.attention[0][~valid].any()
    assert torch.allclose(masked.attention[0][valid], absent.attention[0], atol=1e-6)
    with pytest.raises(ModelError, match="valid"):
        model([features], [coords], [torch.zeros(30, dtype=torch.bool)])


@every_baseline
def test_attention_is_a_distribution_over_the_patches(name):
    for training in (True, False):
        model = create_model(name, feature_dim=24, num_classes=2, seed=0).train(training)
        features, coords = random_bag(50, seed=5)
        attention = model([features], [coords]).attention[0]
        assert attention.shape == (50,)
        assert attention.min() >= 0
        assert attention.sum().item() == pytest.approx(1.0, abs=1e-5)


@every_baseline
def test_it_overfits_eight_random_bags(name):
    model = make(name)
    bags = [(*random_bag(10, seed=seed), seed % 2) for seed in range(8)]
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        optimiser.zero_grad()
        losses = [model.loss(model([patches], [coords]), label) for patches, coords, label in bags]
        loss = torch.stack(losses).mean()
        if loss.item() < 0.02:
            break
        loss.backward()
        optimiser.step()
    model.eval()
    answers = [int(model([features], [coords]).logits.argmax()) for features, coords, _ in bags]
    assert answers == [label for _, _, label in bags]


@every_baseline
def test_every_parameter_gets_a_gradient(name):
    model = make(name)
    for label in range(2):  # CLAM's instance classifiers are trained by their own class only
        features, coords = random_bag(60, seed=6 + label)
        model.loss(model([features], [coords]), label).backward()
    missing = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A constant added to all scores cannot matter to a softmax.
    assert set(missing) <= {"attention.weight.bias"}


@every_baseline
def test_a_stored_model_draws_and_answers_as_the_original(name):
    model = create_model(name, feature_dim=24, num_classes=2, seed=0)
    features, coords = random_bag(60, seed=7)
    model([features], [coords])  # moves its generator on
    restored = create_model(name, feature_dim=24, num_classes=2, seed=9)
    restored.load_state_dict(copy.deepcopy(model.state_dict()))
    torch.manual_seed(1)
    expected = model([features], [coords]).logits
    torch.manual_seed(1)
    assert torch.equal(restored([features], [coords]).logits, expected)


@every_baseline
def test_half_precision_stays_close(name):
    model = make(name).eval()
    features, coords = random_bag(70, seed=8)
    exact = model([features], [coords]).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model([features], [coords])
        loss = model.loss(output, 1)
    assert loss.dtype == torch.float32
    assert torch.allclose(output.logits.float(), exact, atol=0.05)
    loss.backward()


@every_baseline
def test_a_single_patch_is_enough(name):
    model = make(name)
    features, coords = random_bag(1, seed=9)
    loss = model.loss(model([features], [coords]), 0)
    loss.backward()
    assert torch.isfinite(loss)
