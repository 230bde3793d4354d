"""Budgets: kept to, deterministic, as large a zoom as they allow, and refused when too small."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil.errors import BudgetError, ConfigError
from zoommil.inference.limits import Budget, Limits, Price, choose_k
from zoommil.inference.predictor import Predictor


def patches(amount: float, num_steps: int = 3) -> Budget:
    return Budget("budget_patches", amount, "patches", (Price(0.0, 1.0),) * num_steps)


def test_what_is_affordable_is_not_shrunk():
    choice = choose_k(patches(60 + 48 + 192), 60, 0, 60, (12, 12), (2, 4))
    assert (choice.k, choice.by) == (12, None)


def test_shrunk_in_proportion():
    choice = choose_k(patches(60 + 24 + 96), 60, 0, 60, (12, 12), (2, 4))
    assert (choice.k, choice.by) == (6, "budget_patches")


def test_fewer_zooms_when_the_last_cannot_be_paid():
    assert choose_k(patches(60 + 19), 60, 0, 60, (12, 12), (2, 4)).k == 4
    assert choose_k(patches(60 + 20), 60, 0, 60, (12, 12), (2, 4)).k == 1


def test_stops_when_not_one_patch_can_be_zoomed_into():
    assert choose_k(patches(60 + 3), 60, 0, 60, (12, 12), (2, 4)).k == 0


def test_a_small_slide_does_not_pay_for_what_it_does_not_have():
    choice = choose_k(patches(5 + 20 + 12 * 16), 5, 0, 5, (12, 12), (2, 4))
    assert (choice.k, choice.by) == (12, None)


@given(
    amount=st.integers(0, 400),
    ks=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    num_rows=st.integers(1, 40),
)
def test_the_choice_is_the_largest_that_fits(amount, ks, num_rows):
    """Against trying every pair of the family that shrinking can give."""

    def price(k1: int, k2: int | None) -> int:
        first = min(k1, num_rows) * 4
        return first + (0 if k2 is None else min(k2, first) * 16)

    chosen = choose_k(patches(amount), 0, 0, num_rows, ks, (2, 4)).k
    shares = sorted({n / k for k in ks for n in range(1, k + 1)})
    pairs = [tuple(max(1, int(k * share + 1e-9)) for k in ks) for share in shares]
    both = [one for one, two in pairs if price(one, two) <= amount]
    one_zoom = [k for k in range(1, ks[0] + 1) if price(k, None) <= amount]
    assert chosen == (max(both) if both else max(one_zoom, default=0))


def test_budgets_are_kept_and_repeated_exactly(predictor, bags):
    full = predictor.predict_bag(bags[0])
    first = full.cost.steps[0].patches
    seen = set()
    for amount in range(first, full.cost.patches + 10, 3):
        limits = Limits(budget_patches=amount)
        answer = predictor.predict_bag(bags[0], limits=limits)
        assert answer.cost.patches <= amount
        assert answer.to_json() == predictor.predict_bag(bags[0], limits=limits).to_json()
        seen.add((answer.bound.by, len(answer.steps)))
    assert {("budget_patches", 1), ("budget_patches", 2), ("budget_patches", 3)} <= seen
    assert ("model", 3) in seen


def test_gflops_are_kept_and_count_encoder_and_head(predictor, bags):
    full = predictor.predict_bag(bags[0])
    for share in (0.3, 0.5, 0.8, 1.0):
        gflops = share * full.cost.flops / 1e9
        answer = predictor.predict_bag(bags[0], limits=Limits(budget_gflops=gflops))
        assert answer.cost.flops <= gflops * 1e9 + 1
        assert (answer.bound.by == "model") == (share == 1.0)


def test_seconds_stop_in_time(predictor, slides):
    answer = predictor.predict(slides[0], limits=Limits(budget_seconds=3600))
    assert answer.bound.by == "model"
    with pytest.raises(BudgetError, match=r"1\.25x alone needs about .* seconds here \(\d+ patch"):
        predictor.predict(slides[0], limits=Limits(budget_seconds=0))


def test_seconds_do_not_bound_a_bag(predictor, bags):
    with pytest.raises(ConfigError, match="a bag needs neither"):
        predictor.predict_bag(bags[0], limits=Limits(budget_seconds=1))


@pytest.mark.parametrize("limits", [Limits(budget_patches=0), Limits(budget_gflops=0.0)])
def test_too_small_a_budget_names_the_minimum_and_the_minimum_is_enough(predictor, bags, limits):
    with pytest.raises(BudgetError, match="give at least") as caught:
        predictor.predict_bag(bags[0], limits=limits)
    least = float(str(caught.value).rstrip(".").rsplit(" ", 1)[1])
    (name,) = limits.to_json()
    kind = int if name == "budget_patches" else float
    enough = Limits(**{name: kind(least)})
    assert len(predictor.predict_bag(bags[0], limits=enough).steps) == 1
    with pytest.raises(BudgetError):
        predictor.predict_bag(bags[0], limits=Limits(**{name: kind(least * 0.99)}))


def test_a_budget_of_a_model_of_one_magnification(make_artefact, encoder, bags):
    predictor = Predictor(make_artefact("abmil", at=1), encoders=encoder, device="cpu")
    needed = len(bags[0].features[1])
    answer = predictor.predict_bag(bags[0], limits=Limits(budget_patches=needed))
    assert answer.cost.patches == needed
    with pytest.raises(BudgetError, match=f"2.5x alone needs {needed} patches"):
        predictor.predict_bag(bags[0], limits=Limits(budget_patches=needed - 1))


def test_k_and_attention_mass(predictor, bags):
    wide = predictor.predict_bag(bags[0], limits=Limits(k=(5, 7)))
    assert (wide.bound.k, wide.bound.by) == ((5, 7), "k")
    counts = []
    for mass in (0.01, 0.1, 0.2, 1.0):
        answer = predictor.predict_bag(bags[0], limits=Limits(attention_mass=mass, k=(10,)))
        counts.append(answer.cost.patches)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert predictor.predict_bag(bags[0]).bound.k == (3, 3)  # the model itself is as it was
    with pytest.raises(ConfigError, match="one for each of 2 zooms"):
        predictor.predict_bag(bags[0], limits=Limits(k=(1, 2, 3)))


def test_stopping_where_the_model_was_not_trained_for_it_is_said(make_artefact, encoder, bags):
    predictor = Predictor(make_artefact("zoommil"), encoders=encoder, device="cpu")
    for max_steps, expected in product((1, 2), ["step_loss is 0"]):
        answer = predictor.predict_bag(bags[0], limits=Limits(max_steps=max_steps))
        assert len(answer.steps) == max_steps
        assert expected in answer.warnings[0]
    assert not predictor.predict_bag(bags[0], limits=Limits(max_steps=3)).warnings
