"""ZoomMIL as a model: its parameters, its two modes, its ablations, masks, exits and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from zoommil.errors import ModelError
from zoommil.models.creation import create_model
from zoommil.models.model import is_confident

DIM = 6


def bag(num_rows=20, ratios=(2, 2), dim=DIM, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = [num_rows]
    for ratio in ratios:
        counts.append(counts[-1] * ratio**2)
    return [torch.randn(count, dim, generator=generator) for count in counts]


def zoommil(ratios=(2, 2), **settings):
    chosen = {"k": 4, "embed_dim": 8, "attention_dim": 5, "num_samples": 20, **settings}
    return create_model("zoommil", feature_dim=DIM, num_classes=3, ratios=ratios, seed=0, **chosen)


def num_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def full_size(ratios, num_classes=3, **settings):
    return create_model(
        "zoommil", feature_dim=1024, num_classes=num_classes, ratios=ratios, **settings
    )


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [((), 789_252), ((2,), 1_839_878), ((2, 4), 2_890_504), ((2, 4, 2), 3_941_130)],
)
def test_check_13_parameter_counts(ratios, expected):
    assert num_parameters(full_size(ratios)) == expected
    assert num_parameters(full_size(ratios, num_classes=2)) == expected - 513


def test_check_13_a_shared_projection_has_one_weight():
    shared = full_size((2, 4), projection="shared")
    assert num_parameters(shared) == 2_890_504 - 2 * 1024 * 512
    assert num_parameters(full_size((), projection="shared")) == 789_252


@pytest.mark.parametrize("score", ["softmax", "n_softmax", "zero_one", "zscore", "none"])
@pytest.mark.parametrize("sigma", [1e-7, 0.5])
def test_check_8_training_without_dropout_equals_evaluation(score, sigma):
    """Straight-through at any sigma, mixing where sigma is next to nothing."""
    for is_straight in (True, False) if sigma < 1e-6 else (True,):
        model = zoommil(score=score, sigma=sigma, dropout=0.0, straight_through=is_straight)
        trained, evaluated = model.train()(bag()), model.eval()(bag())
        assert torch.allclose(trained.logits, evaluated.logits, atol=1e-6)
        assert all(map(torch.equal, trained.rows, evaluated.rows))


def test_h8_evaluation_mode_is_respected():
    """Dropout and noise change answers in training, and never in evaluation."""
    model = zoommil(straight_through=False, sigma=0.5)
    model.train()
    assert not torch.equal(model(bag()).logits, model(bag()).logits)
    model.eval()
    before = model.noise.get_state()
    assert torch.equal(model(bag()).logits, model(bag()).logits)
    assert torch.equal(model.noise.get_state(), before)


@pytest.mark.parametrize("ratios", [(2,), (2, 4), (4, 4), (8,), (3,)])
@pytest.mark.parametrize("selection", ["diff", "random_low"])
def test_check_9_rows_seen_are_the_children_of_the_rows_selected(ratios, selection):
    model = zoommil(ratios, selection=selection, k=3)
    for is_training in (True, False):
        output = model.train(is_training)(bag(5, ratios))
        for step, ratio in enumerate(ratios):
            parents = output.rows[step + 1] // ratio**2
            assert torch.equal(parents, output.selected[step].repeat_interleave(ratio**2))
            assert len(output.selected[step]) == 3
            assert bool((output.selected[step].diff() > 0).all())
            assert bool(torch.isin(output.selected[step], output.rows[step]).all())


def test_check_11_the_order_of_the_lowest_rows_does_not_matter():
    features = bag(20, (2, 4))
    model = zoommil((2, 4)).eval()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    shuffled = [x.reshape(20, -1)[order].reshape(x.shape) for x in features]
    plain, other = model(features), model(shuffled)
    assert torch.allclose(plain.logits, other.logits, atol=1e-6)
    assert torch.allclose(plain.attention[0][order], other.attention[0], atol=1e-6)
    assert set(order[other.selected[0]].tolist()) == set(plain.selected[0].tolist())


def test_steps_one_by_one_with_only_the_rows_asked_for_equal_forward():
    """The loop that inference runs: features of a step are given when its rows are known."""
    features, model = bag(), zoommil().eval()
    whole = model(features)
    state, seen = model.start(), []
    for step in model.takes(3):
        rows = state.rows
        given = features[step] if rows is None else features[step][rows]
        output = model.step(given.numpy(), state)
        state, seen = output.state, [*seen, output]
    assert torch.equal(seen[-1].logits, whole.logits)
    assert [len(one.rows) for one in seen] == [20, 16, 16]
    for ours, theirs in zip(seen, whole.attention, strict=True):
        assert torch.equal(ours.attention, theirs)
    assert torch.equal(seen[0].selected, whole.selected[0])
    assert state.rows is None


def test_training_explores_where_there_is_dropout_and_never_evaluation():
    """One perturbed choice per bag: rows that the starting weights rank last are shown too."""
    settings = {"score": "n_softmax", "sigma": 1.0, "score_dropout": False}
    model = zoommil((2,), **settings).train()
    seen = torch.cat([model(bag(ratios=(2,))).selected[0] for _ in range(30)])
    assert len(torch.unique(seen)) == 20
    model.eval()
    seen = torch.cat([model(bag(ratios=(2,))).selected[0] for _ in range(30)])
    assert len(torch.unique(seen)) == 4
    shown = model.train()(bag(ratios=(2,)))
    assert torch.equal(shown.rows[1] // 4, shown.selected[0].repeat_interleave(4))
    for quiet in (zoommil((2,), explore=0.0, **settings), zoommil((2,), dropout=0.0, **settings)):
        chosen = torch.cat([quiet.train()(bag(ratios=(2,))).selected[0] for _ in range(30)])
        assert len(torch.unique(chosen)) == 4


def test_k_is_clamped_to_each_bag_and_can_be_lowered_by_the_caller():
    model = zoommil(k=(9, 4)).eval()
    assert [len(rows) for rows in model(bag(3)).selected] == [3, 4]
    assert [len(rows) for rows in model(bag(20)).selected] == [9, 4]
    assert [len(rows) for rows in model(bag(20), k=2).selected] == [2, 2]
    assert len(model.step(bag()[0], model.start(), k=5).selected) == 5


def test_a_bag_of_one_patch_trains():
    model = zoommil()
    output = model(bag(1))
    model.loss(output, 1).backward()
    assert [len(rows) for rows in output.rows] == [1, 4, 16]


# Masks


def test_rows_that_are_not_valid_get_no_attention_and_are_not_chosen():
    features, model = bag(), zoommil()
    valid = [None, torch.arange(80) % 4 != 1, np.arange(320) % 3 == 0]
    for is_training in (False, True):
        output = model.train(is_training)(features, valid=valid)
        for step in (1, 2):
            seen = torch.as_tensor(valid[step])[output.rows[step]]
            assert float(output.attention[step][~seen].detach().sum()) == 0
            assert float(output.attention[step].detach().sum()) == pytest.approx(1, abs=1e-5)
        assert bool(torch.as_tensor(valid[1])[output.selected[1]].all())


def test_what_stands_in_invalid_rows_changes_nothing():
    features, model = bag(), zoommil().eval()
    valid = [None, torch.arange(80) % 4 != 1, torch.arange(320) % 3 == 0]
    other = [features[0], *(x.clone() for x in features[1:])]
    other[1][~valid[1]], other[2][~valid[2]] = 9.0, -7.0
    assert torch.allclose(
        model(features, valid=valid).logits, model(other, valid=valid).logits, atol=1e-6
    )


@pytest.mark.parametrize("is_training", [False, True])
def test_fewer_valid_rows_than_k_are_all_chosen_and_no_others(is_training):
    features, model = bag(), zoommil().train(is_training)
    mask = torch.zeros(20, dtype=torch.bool)
    mask[[4, 11]] = True
    output = model(features, valid=[mask, None, None])
    assert output.selected[0].tolist() == [4, 11]
    assert bool(torch.isfinite(output.logits).all())


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("straight_through", [False, True])
def test_a_deeper_step_without_valid_rows_adds_nothing(is_training, straight_through):
    features = bag()
    model = zoommil(dropout=0.0, straight_through=straight_through).train(is_training)
    output = model(features, valid=[None, torch.zeros(80, dtype=torch.bool), np.zeros(320, bool)])
    assert float(output.attention[1].detach().sum()) == 0
    assert len(output.selected[1]) == 1
    assert torch.allclose(output.logits, output.step_logits[0])
    model.loss(output, 0).backward()


def test_no_valid_row_at_the_lowest_step_is_refused():
    with pytest.raises(ModelError, match="none of the 20 patches"):
        zoommil()(bag(), valid=[np.zeros(20, bool), None, None])


# Check 15: the paper's ablations are switches of one model


def gradient_is_none_or_zero(module):
    return all(p.grad is None or not bool(p.grad.any()) for p in module.parameters())


def test_check_15_single_attention_has_one_gated_attention_less():
    dual, single = full_size((2,)), full_size((2,), attention="single")
    assert num_parameters(dual) - num_parameters(single) == 262_913


def test_check_15_single_attention_selects_by_pooling_and_trains_through_it():
    model = zoommil((2,), attention="single", aggregation="last", sigma=0.1)
    output = model.eval()(bag(ratios=(2,)))
    assert torch.equal(output.scores[0], output.attention[0])
    model.train()
    model.loss(model(bag(ratios=(2,))), 0).backward()
    assert not gradient_is_none_or_zero(model.pools[0])


def test_check_15_last_step_alone_ignores_the_pooled_vectors_before():
    model = zoommil(aggregation="last")
    model.loss(model(bag()), 0).backward()
    assert gradient_is_none_or_zero(model.pools[0])
    assert gradient_is_none_or_zero(model.pools[1])
    assert not gradient_is_none_or_zero(model.pools[2])
    assert not gradient_is_none_or_zero(model.scorers[0])


def test_check_15_concatenation_widens_the_head_only():
    joined, summed = full_size((2,), aggregation="concat"), full_size((2,))
    assert num_parameters(joined) - num_parameters(summed) == 512 * 3


def test_check_15_nondiff_selects_hard_and_gives_the_selector_no_gradient():
    model = zoommil(selection="nondiff", dropout=0.0)
    output = model.train()(bag())
    model.loss(output, 0).backward()
    assert gradient_is_none_or_zero(model.scorers)
    assert num_parameters(model) == num_parameters(zoommil())
    assert all(map(torch.equal, output.selected, model.eval()(bag()).selected))
    by_pool = zoommil(selection="nondiff", nondiff_scores="pool").eval()
    output = by_pool(bag())
    assert len(by_pool.scorers) == 0
    assert torch.equal(output.selected[0], output.attention[0].topk(4).indices.sort().values)


@pytest.mark.parametrize("selection", ["random_low", "random_high"])
def test_check_15_random_draws_anew_in_training_and_the_same_in_evaluation(selection):
    model = zoommil((2,), selection=selection)
    features = bag(50, (2,))
    model.eval()
    assert all(map(torch.equal, model(features).rows, model(features).rows))
    other = zoommil((2,), selection=selection, eval_seed=1).eval()
    assert not torch.equal(model(features).rows[1], other(features).rows[1])
    model.train()
    draws = {tuple(model(features).rows[1].tolist()) for _ in range(5)}
    assert len(draws) == 5
    assert all(len(draw) == 16 == len(set(draw)) for draw in draws)
    assert len(model.scorers) == 0
    assert model(features).scores == ()


def test_check_15_random_high_ignores_parents():
    output = zoommil((2,), selection="random_high").eval()(bag(50, (2,)))
    assert len(output.rows[1]) == 4 * 4  # as many patches as k parents have children
    assert len(output.selected[0]) > 4  # of more parents than k
    assert torch.equal(torch.unique(output.rows[1] // 4), output.selected[0])


def test_ablations_start_from_the_same_other_weights():
    plain, other = zoommil().state_dict(), zoommil(selection="random_low").state_dict()
    shared = set(plain) & set(other) - {"_extra_state"}
    assert any("pools" in name for name in shared)
    assert all(torch.equal(plain[name], other[name]) for name in shared)


# Check 24: answers along the way


def test_check_24_the_last_prefix_is_the_answer_and_earlier_ones_are_prefixes():
    for aggregation in ("sum", "concat", "last"):
        model = zoommil(aggregation=aggregation).eval()
        output = model(bag())
        assert torch.equal(output.step_logits[-1], output.logits)
        assert len(output.step_logits) == 3
    single = model.step(bag()[0], model.start())
    assert torch.equal(single.logits, output.step_logits[0])


def test_check_24_a_lower_threshold_never_costs_more_and_one_never_exits():
    model = zoommil().eval()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(300)  # saturates: the highest probability rounds to 1
    bags = [bag(seed=seed) for seed in range(20)]
    costs = []
    for threshold in (1.0, 0.99, 0.9, 0.5, 0.0):
        outputs = [model(features, exit_at=threshold) for features in bags]
        costs.append(sum(len(rows) for output in outputs for rows in output.rows))
        assert all(len(one.selected) == len(one.attention) - 1 for one in outputs)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == 20 * (20 + 16 + 16)
    assert costs[-1] == 20 * 20
    whole = model(bags[0])
    assert torch.equal(model(bags[0], exit_at=1.0).logits, whole.logits)


def test_temperature_decides_with_the_calibrated_probability():
    logits = torch.tensor([2.0, 0.0])  # 0.88, and 0.73 at temperature 2
    assert is_confident(logits, 0.8)
    assert not is_confident(logits, 0.8, temperature=2.0)


def test_the_loss_of_the_steps_is_their_weighted_mean():
    model = zoommil(step_loss=0.3, dropout=0.0)
    output = model(bag())
    each = [float(model.cross_entropy(logits.detach(), 2)) for logits in output.step_logits]
    expected = (each[2] + 0.3 * (each[0] + each[1])) / 1.6
    assert model.loss(output, 2).item() == pytest.approx(expected, rel=1e-6)


def test_class_weights_multiply_the_loss():
    model = zoommil()
    output = model(bag())
    weighted = model.loss(output, 2, torch.tensor([1.0, 1.0, 3.0]))
    assert weighted.item() == pytest.approx(3 * model.loss(output, 2).item(), rel=1e-6)


# Options


def test_adaptive_mass_takes_the_fewest_rows_that_hold_it():
    features, model = bag(), zoommil(k=15, adaptive_mass=0.4, k_min=2).eval()
    output = model(features)
    raw = output.scores[0].detach().sort(descending=True).values
    k = len(output.selected[0])
    assert 2 < k < 15
    assert float(raw[:k].sum()) >= 0.4 > float(raw[: k - 1].sum())
    assert len(zoommil(k=3, adaptive_mass=1.0).eval()(features).selected[0]) == 3
    assert len(zoommil(k=9, adaptive_mass=1e-6, k_min=2).eval()(features).selected[0]) == 2
    assert len(model.train()(features).selected[0]) == 15  # training keeps its k


def test_sigma_falls_to_zero_with_a_linear_schedule():
    model = zoommil(preset="robust")
    assert model.selector.sigma_at(0.0) == 0.3
    assert model.selector.sigma_at(0.5) == 0.15
    model.set_progress(1.0)
    model.loss(model(bag()), 0).backward()
    assert gradient_is_none_or_zero(model.scorers)  # no noise: the hard selection
    assert zoommil().selector.sigma_at(0.9) == 0.002


def test_score_dropout_off_scores_as_in_evaluation():
    for attention in ("dual", "single"):
        settings = {"score_dropout": False, "attention": attention, "dropout": 0.5}
        model = zoommil((2,), **settings)
        features = bag(ratios=(2,))
        trained, evaluated = model.train()(features), model.eval()(features)
        assert torch.allclose(trained.scores[0], evaluated.scores[0], atol=1e-7)
        assert not torch.equal(trained.attention[0], evaluated.attention[0])


def test_widths_may_differ_between_steps():
    model = create_model("zoommil", feature_dim=(4, 7), num_classes=2, ratios=(2,), k=2)
    output = model([torch.randn(5, 4), torch.randn(20, 7)])
    assert output.logits.shape == (2,)
    with pytest.raises(ModelError, match="shared projection"):
        create_model("zoommil", feature_dim=(4, 7), num_classes=2, ratios=(2,), projection="shared")


def test_standardised_features_give_what_features_standardised_before_give():
    features = [x * 3 + 5 for x in bag()]
    plain, with_buffers = zoommil().eval(), zoommil(standardise=True).eval()
    with_buffers.load_state_dict(plain.state_dict(), strict=False)
    mean, std = [x.mean(0) for x in features], [x.std(0) for x in features]
    with_buffers.set_standardisation(mean, std)
    scaled = [(x - m) / s for x, m, s in zip(features, mean, std, strict=True)]
    assert torch.allclose(with_buffers(features).logits, plain(scaled).logits, atol=1e-5)
    with pytest.raises(ModelError, match="standardise=True"):
        plain.set_standardisation(mean, std)


def test_constant_features_are_not_blown_up_by_standardisation():
    model = zoommil((), standardise=True)
    model.set_standardisation([torch.full((DIM,), 7.0)], [torch.zeros(DIM)])
    assert model([torch.full((3, DIM), 7.5)]).logits.abs().max().item() < 10


def test_one_step_alone_is_abmil():
    zoom, abmil = zoommil(()), None
    abmil = create_model("abmil", feature_dim=DIM, num_classes=3, embed_dim=8, attention_dim=5)
    for ours, theirs in zip(zoom.parameters(), abmil.parameters(), strict=True):
        theirs.data.copy_(ours.data)
    features = bag(ratios=())
    zoom_output, abmil_output = zoom.eval()(features), abmil.eval()(features)
    assert torch.allclose(zoom_output.logits, abmil_output.logits, atol=1e-6)
    assert zoom_output.selected == zoom_output.scores == ()


def test_noise_continues_bit_identically_from_a_state_dict():
    """Check 22, the model's part: the state of the noise is part of what is stored."""
    model = zoommil(dropout=0.0, straight_through=False, sigma=0.5)
    model(bag())
    stored = {name: value.clone() for name, value in model.state_dict().items()}
    expected = [model(bag()).logits for _ in range(2)]
    other = zoommil(dropout=0.0, straight_through=False, sigma=0.5)
    other.load_state_dict(stored)
    assert all(torch.equal(other(bag()).logits, one) for one in expected)


def test_half_precision_arrays_are_taken_as_they_come():
    features = [x.numpy().astype(np.float16) for x in bag()]
    for array in features:
        array.setflags(write=False)
    output = zoommil().eval()(features)
    assert output.logits.dtype == torch.float32


def test_overfits_one_batch():
    torch.manual_seed(0)
    model, bags = zoommil(dropout=0.0), [bag(seed=seed) for seed in range(3)]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimiser.zero_grad()
        loss = sum(model.loss(model(one), label) for label, one in enumerate(bags))
        loss.backward()
        optimiser.step()
    model.eval()
    assert [int(model(one).logits.argmax()) for one in bags] == [0, 1, 2]


# Bad input


def broken(step, change):
    features = bag()
    features[step] = change(features[step])
    return features


def with_value(value):
    def change(matrix):
        matrix = matrix.clone()
        matrix[7, 2] = value
        return matrix

    return change


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (broken(1, lambda x: x[:, :4]), r"shape \(80, 4\); expected \(patches, 6\)"),
        (broken(0, lambda x: x[0]), r"shape \(6,\)"),
        (broken(0, lambda x: x[:0]), "step 0 of the bag has no patches"),
        (broken(2, lambda x: x[:-4]), "step 2 has 316 rows; expected 320"),
        (broken(1, with_value(math.nan)), "step 1 hold NaN or infinity in 1 of 80 rows.* row 7"),
        (broken(2, with_value(math.inf)), "step 2 hold NaN or infinity"),
        (bag()[:2], "2 steps; this model takes 3"),
        ([], "0 steps"),
    ],
)
@pytest.mark.parametrize("is_training", [True, False])
def test_features_that_do_not_fit_are_refused(features, said, is_training):
    with pytest.raises(ModelError, match=said):
        zoommil().train(is_training)(features)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": (3,)}, "one per zoom"),
        ({"score": "sofmax"}, "score is 'sofmax'"),
        ({"selection": "hard"}, "selection is 'hard'"),
        ({"aggregation": "mean"}, "aggregation"),
        ({"attention": "triple"}, "attention"),
        ({"head": "deep"}, "head"),
        ({"dropout": 1.0}, "dropout"),
        ({"sigma": -1.0}, "sigma"),
        ({"explore": 2.0}, "explore"),
        ({"adaptive_mass": 0.0}, "adaptive_mass"),
        ({"ratios": (1,)}, "ratios"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, said):
    with pytest.raises(ModelError, match=said):
        zoommil(**settings)


def test_a_step_given_other_rows_than_asked_for_is_refused():
    model = zoommil().eval()
    output = model.step(bag()[0], model.start())
    with pytest.raises(ModelError, match="given 15 rows of features; expected the 16"):
        model.step(torch.randn(15, DIM), output.state)
    with pytest.raises(ModelError, match="k is 0"):
        model.step(bag()[0], model.start(), k=0)
