"""What every registered model must do; a new row in the registry is picked up by itself."""

from __future__ import annotations

import copy
import inspect
import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from zoommil.errors import ModelError, UnknownNameError
from zoommil.models.creation import create_model, list_models, list_presets
from zoommil.models.model import MILOutput, Model

DIM, RATIOS = 12, (2, 2)


@pytest.fixture(params=list_models())
def name(request):
    return request.param


def make(name, **settings):
    return create_model(name, feature_dim=DIM, num_classes=3, ratios=RATIOS, seed=0, **settings)


def make_bag(num_rows=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = [num_rows * r for r in (1, 4, 16)]
    return [torch.randn(count, DIM, generator=generator) for count in counts]


def make_coords(num_rows=10):
    """A row of neighbouring parents, children inside them, as level-0 corners."""
    coords, side = [torch.tensor([[1024 * i, 512] for i in range(num_rows)])], 1024
    for _ in RATIOS:
        side //= 2
        slots = torch.tensor([[0, 0], [0, side], [side, 0], [side, side]])
        coords.append((coords[-1][:, None] + slots).flatten(0, 1))
    return coords


def answer(model, features, **given):
    with torch.no_grad():
        return model(features, coords=make_coords(len(features[0])), **given)


def test_registered_by_name_and_a_model(name):
    assert isinstance(make(name), Model)
    assert name in list_models()
    assert "default" in list_presets(name)


def test_output_has_the_shapes_of_the_contract(name):
    model = make(name).eval()
    output = answer(model, make_bag())
    assert isinstance(output, MILOutput)
    assert output.logits.shape == (3,)
    assert output.steps == model.takes(3)
    assert len(output.attention) == len(output.rows) == len(output.step_logits) == model.num_steps
    assert len(output.selected) == model.num_steps - 1
    assert torch.equal(output.step_logits[-1], output.logits)
    for attention, rows in zip(output.attention, output.rows, strict=True):
        assert attention.shape == rows.shape
        assert bool((attention >= 0).all())
        assert attention.sum().item() == pytest.approx(1, abs=1e-5)
        assert bool((rows.diff() > 0).all())


def test_h8_evaluation_is_deterministic_and_draws_nothing(name):
    model = make(name).eval()
    noise, outside = model.noise.get_state(), torch.get_rng_state()
    first, second = answer(model, make_bag()), answer(model, make_bag())
    assert torch.equal(first.logits, second.logits)
    assert all(map(torch.equal, first.attention, second.attention))
    assert torch.equal(model.noise.get_state(), noise)
    assert torch.equal(torch.get_rng_state(), outside)


def test_h8_no_submodule_stays_in_training_mode(name):
    model = make(name).train()
    model.eval()
    assert not any(module.training for module in model.modules())


def test_the_loop_of_inference_gives_what_forward_gives(name):
    features, coords, model = make_bag(), make_coords(), make(name).eval()
    state = model.start()
    with torch.no_grad():
        for step in model.takes(3):
            rows = state.rows if state.rows is not None else torch.arange(len(features[step]))
            output = model.step(features[step][rows], state, coords=coords[step][rows])
            state = output.state
    whole = answer(model, features)
    assert torch.equal(output.logits, whole.logits)
    assert torch.equal(output.attention, whole.attention[-1])
    assert state.position == model.num_steps
    assert state.rows is None


@pytest.mark.parametrize("num_rows", [1, 2, 40])
def test_bags_of_any_size_train(name, num_rows):
    model = make(name).train()
    output = model(make_bag(num_rows), coords=make_coords(num_rows))
    loss = model.loss(output, 2)
    loss.backward()
    assert loss.shape == ()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_rows_that_are_not_valid_get_no_attention_and_change_nothing(name):
    features, model = make_bag(), make(name).eval()
    valid = [torch.ones(10, dtype=torch.bool), np.arange(40) % 4 != 2, np.arange(160) % 3 != 1]
    changed = [features[0], *(x.clone() for x in features[1:])]
    for step in (1, 2):
        changed[step][~torch.as_tensor(valid[step])] = 5.0
    one, other = (answer(model, bag, valid=valid) for bag in (features, changed))
    assert torch.allclose(one.logits, other.logits, atol=1e-5)
    for step, rows, attention in zip(one.steps, one.rows, one.attention, strict=True):
        assert not bool(attention[~torch.as_tensor(valid[step])[rows]].any())


def test_class_weights_multiply_the_loss_of_the_bag(name):
    model = make(name).eval()
    output = answer(model, make_bag())
    plain = model.loss(output, 1).item()
    weighted = model.loss(output, 1, torch.tensor([1.0, 2.0, 1.0])).item()
    assert plain < weighted <= 2 * plain + 1e-6


def test_stored_safely_and_rebuilt_from_its_settings(name):
    """Through safetensors and JSON, nothing pickled: the same answer, the same next draws."""
    model = make(name)
    settings = json.loads(json.dumps(model.settings))
    rebuilt = create_model(**settings)
    rebuilt.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(
        answer(rebuilt.eval(), make_bag()).logits, answer(model.eval(), make_bag()).logits
    )
    draws = [torch.rand(3, generator=one.noise.generator()) for one in (model, rebuilt)]
    assert torch.equal(*draws)


def test_a_copy_draws_on_its_own(name):
    model = make(name)
    copied = copy.deepcopy(model)
    draws = [torch.rand(3, generator=one.noise.generator()) for one in (model, copied)]
    assert torch.equal(*draws)


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone(name):
    before = torch.get_rng_state()
    first, second = make(name), make(name)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_features_may_be_arrays_of_half_precision(name):
    model = make(name).eval()
    half = [x.numpy().astype(np.float16) for x in make_bag()]
    as_float = [torch.from_numpy(x.astype(np.float32)) for x in half]
    assert torch.equal(answer(model, half).logits, answer(model, as_float).logits)


@pytest.mark.parametrize("change", ["width", "empty", "nan", "inf", "flat"])
def test_features_that_do_not_fit_are_refused(name, change):
    model, features = make(name), make_bag()
    for step in model.takes(3):
        matrix = features[step].clone()
        if change == "width":
            matrix = matrix[:, :-1]
        elif change == "empty":
            matrix = matrix[:0]
        elif change == "flat":
            matrix = matrix.flatten()
        else:
            matrix[3, 2] = math.nan if change == "nan" else -math.inf
        broken = [*features[:step], matrix, *features[step + 1 :]]
        with pytest.raises(ModelError, match=r"expected|needs at least one"):
            model(broken)


def test_an_unknown_setting_is_refused_with_the_nearest(name):
    known = next(iter(inspect.signature(type(make(name))).parameters.values()))
    assert known.name == "feature_dim"
    with pytest.raises(ModelError, match="Did you mean 'standardise'"):
        make(name, standardize=True)
    with pytest.raises(UnknownNameError, match="Known: default"):
        make(name, preset="defautl")


def test_standardisation_is_part_of_the_state(name):
    model = make(name, standardise=True)
    widths = model.feature_dims
    model.set_standardisation(
        [torch.full((w,), 3.0) for w in widths], [torch.full((w,), 2.0) for w in widths]
    )
    plain = make(name)
    weights = {n: v for n, v in model.state_dict().items() if n in plain.state_dict()}
    plain.load_state_dict(weights)
    scaled = [(x - 3.0) / 2.0 for x in make_bag()]
    assert torch.allclose(
        answer(model.eval(), make_bag()).logits, answer(plain.eval(), scaled).logits, atol=1e-5
    )


def test_a_bag_without_the_step_it_takes_is_refused(name):
    with pytest.raises(ModelError, match="steps"):
        create_model(name, feature_dim=DIM, num_classes=2, ratios=RATIOS).takes(0)


def test_one_class_alone_is_refused(name):
    with pytest.raises(ModelError, match="num_classes is 1"):
        create_model(name, feature_dim=DIM, num_classes=1, ratios=RATIOS)
