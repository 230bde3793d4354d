"""The differentiable Top-K operator against its dense form, its formulas and its invariants."""

from __future__ import annotations

import math

import pytest
import torch

from zoommil.benches.dense_topk import dense_zoom_in
from zoommil.errors import ModelError
from zoommil.models.topk import hard_topk, perturbed_topk, zoom_in

FORMS = {
    "diagonal": {"jacobian": "diagonal"},
    "full": {"jacobian": "full", "baseline": False},
    "full + baseline": {"jacobian": "full", "baseline": True},
}


def gradient_of(scores, k, upstream, **options):
    """dLoss/ds where the loss's gradient in T is `upstream`."""
    leaf = scores.clone().requires_grad_()
    (perturbed_topk(leaf, k, **options) * upstream).sum().backward()
    return leaf.grad


def cosine(a, b):
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("num_rows", "k", "num_samples", "ratio", "width"),
    [(60, 12, 100, 4, 32), (199, 16, 100, 16, 32), (40, 8, 50, 64, 8)],
)
def test_check_1_lean_equals_dense(form, num_rows, k, num_samples, ratio, width):
    generator = torch.Generator().manual_seed(num_rows)
    double = {"dtype": torch.float64, "generator": generator}
    scores = torch.randn(num_rows, **double)
    finer = [torch.randn(num_rows * children, width, **double) for children in (ratio, 4 * ratio)]
    noise = torch.randn(num_samples, num_rows, **double)
    weights = [torch.randn(k * children, width, **double) for children in (ratio, 4 * ratio)]

    def run(zoom, **options):
        leaves = [scores.clone().requires_grad_(), *(x.clone().requires_grad_() for x in finer)]
        chosen = zoom(leaves[0], leaves[1:], k, sigma=0.5, noise=noise, **options)
        sum((x * w).sum() for x, w in zip(chosen, weights, strict=True)).backward()
        return chosen, [leaf.grad for leaf in leaves]

    lean, lean_gradients = run(zoom_in, **FORMS[form])
    dense, dense_gradients = run(dense_zoom_in, form=form)
    for ours, truth in zip(lean, dense, strict=True):
        assert (ours - truth).abs().max() < 1e-12
    assert (lean_gradients[0] - dense_gradients[0]).norm() < 1e-10 * dense_gradients[0].norm()
    for ours, truth in zip(lean_gradients[1:], dense_gradients[1:], strict=True):
        assert (ours - truth).abs().max() < 1e-12


def test_check_2_two_patches_have_the_analytic_probability_and_gradient():
    scores = torch.tensor([0.3, 0.0], dtype=torch.float64)
    options = {"num_samples": 200_000, "sigma": 0.5}
    weights = perturbed_topk(scores, 1, generator=torch.Generator().manual_seed(0), **options)
    assert float(weights[0, 0]) == pytest.approx(0.6643, abs=0.01)

    upstream = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    exact, published = (
        gradient_of(
            scores,
            1,
            upstream,
            generator=torch.Generator().manual_seed(0),
            **options,
            **FORMS[form],
        )
        for form in ("full + baseline", "diagonal")
    )
    assert exact.tolist() == pytest.approx([0.5156, -0.5156], abs=0.01)
    assert published.tolist() == pytest.approx([0.515, 0.0], abs=0.01)


@pytest.mark.parametrize("seed", range(10))
def test_check_3_full_gradient_is_that_of_finite_differences(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, dtype=torch.float64, generator=generator)
    upstream = torch.randn(2, 6, dtype=torch.float64, generator=generator)
    noise = torch.randn(200_000, 6, dtype=torch.float64, generator=generator)
    options = {"sigma": 0.5, "noise": noise}
    gradient = gradient_of(scores, 2, upstream, **options, **FORMS["full + baseline"])

    def smoothed(at):
        return float((perturbed_topk(at, 2, **options) * upstream).sum())

    steps = torch.eye(6, dtype=torch.float64) * 0.1
    differences = torch.tensor([smoothed(scores + h) - smoothed(scores - h) for h in steps])
    assert cosine(gradient, differences.double()) > 0.99


def test_check_4_a_constant_in_the_upstream_gradient_changes_only_the_diagonal_form():
    generator = torch.Generator().manual_seed(0)
    scores, upstream = (
        torch.randn(n, dtype=torch.float64, generator=generator) for n in ((30,), (5, 30))
    )
    noise = torch.randn(100, 30, dtype=torch.float64, generator=generator)
    change = {}
    for form in ("full + baseline", "diagonal"):
        options = {"sigma": 0.5, "noise": noise, **FORMS[form]}
        gradients = [gradient_of(scores, 5, upstream + shift, **options) for shift in (0.0, 5.0)]
        change[form] = float((gradients[0] - gradients[1]).abs().max())
    assert change["full + baseline"] < 1e-9
    assert change["diagonal"] > 0.1


def test_check_5_the_baseline_makes_a_hundred_samples_enough():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(8, dtype=torch.float64, generator=generator)
    upstream = torch.randn(3, 8, dtype=torch.float64, generator=generator) + 5
    options = {"sigma": 0.3, "generator": generator}
    truth = gradient_of(
        scores, 3, upstream, num_samples=400_000, **options, **FORMS["full + baseline"]
    )
    mean = {
        form: sum(
            cosine(truth, gradient_of(scores, 3, upstream, **options, **FORMS[form]))
            for _ in range(100)
        )
        / 100
        for form in ("full + baseline", "full")
    }
    assert mean["full + baseline"] > 0.8
    assert mean["full"] < 0.4


@pytest.mark.parametrize(("num_rows", "k"), [(1, 1), (2, 1), (50, 7), (50, 49), (50_000, 300)])
@pytest.mark.parametrize("score_dtype", [torch.float32, torch.bfloat16])
def test_check_6_rows_columns_and_order_of_the_weights(num_rows, k, score_dtype):
    scores = torch.randn(num_rows, generator=torch.Generator().manual_seed(0)).to(score_dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, again = (
            perturbed_topk(scores, k, sigma=0.5, generator=torch.Generator().manual_seed(1))
            for _ in range(2)
        )
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert (first.sum(dim=1) - 1).abs().max() < 1e-6
    assert float(first.min()) >= 0
    assert float(first.sum(dim=0).max()) <= 1 + 1e-6
    assert float(first.sum()) == pytest.approx(k, rel=1e-6)
    position = first.double() @ torch.arange(num_rows, dtype=torch.float64)
    assert bool((position.diff() > 0).all())
    is_identity = len(first) == num_rows and torch.equal(first, torch.eye(num_rows))
    assert is_identity == (k == num_rows)


@pytest.mark.parametrize("k", [5, 8])
@pytest.mark.parametrize("straight_through", [False, True])
def test_check_7_all_rows_are_given_as_they_are_and_without_a_gradient(k, straight_through):
    scores = torch.randn(5, requires_grad=True)
    finer = [torch.randn(20, 3), torch.randn(80, 2)]
    chosen = zoom_in(scores, finer, k, straight_through=straight_through)
    assert all(torch.equal(a, b) for a, b in zip(chosen, finer, strict=True))
    weights = perturbed_topk(scores, k)
    assert torch.equal(weights, torch.eye(5))
    assert not weights.requires_grad
    assert not chosen[0].requires_grad


def test_check_8_without_noise_the_selection_is_the_hard_one():
    scores = torch.randperm(50, generator=torch.Generator().manual_seed(0)).double()
    hard = torch.zeros(7, 50, dtype=torch.float64)
    hard[torch.arange(7), hard_topk(scores, 7)] = 1
    for sigma in (0.001, 1e-6, 0.0):
        weights = perturbed_topk(scores, 7, num_samples=500, sigma=sigma)
        assert (weights - hard).abs().max() < 1e-10


def test_check_10_the_kronecker_product_is_a_product_of_blocks():
    generator = torch.Generator().manual_seed(0)
    scores = torch.arange(9.0, dtype=torch.float64)
    finer = torch.randint(-9, 9, (9 * 4, 5), generator=generator).double()
    noise = torch.randn(8, 9, dtype=torch.float64, generator=generator)
    weights = perturbed_topk(scores, 3, sigma=5.0, noise=noise) * 8  # whole numbers
    (chosen,) = zoom_in(scores, [finer], 3, sigma=5.0, noise=noise)
    assert torch.equal(chosen * 8, torch.kron(weights, torch.eye(4).double()) @ finer)


def test_straight_through_gives_real_rows_and_the_gradient_of_the_mixture():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, dtype=torch.float64, generator=generator)
    finer = torch.randn(80, 6, dtype=torch.float64, generator=generator)
    noise = torch.randn(50, 20, dtype=torch.float64, generator=generator)
    upstream = torch.randn(16, 6, dtype=torch.float64, generator=generator)
    gradients = {}
    for is_straight in (False, True):
        leaf = scores.clone().requires_grad_()
        (chosen,) = zoom_in(leaf, [finer], 4, sigma=0.5, noise=noise, straight_through=is_straight)
        (chosen * upstream).sum().backward()
        gradients[is_straight] = leaf.grad
    blocks = finer.reshape(20, 4, 6)[hard_topk(scores, 4)]
    assert torch.equal(chosen, blocks.reshape(16, 6))
    assert torch.allclose(gradients[True], gradients[False], rtol=1e-12)
    assert float(gradients[True].abs().max()) > 0


def test_straight_through_gradient_reaches_the_real_rows_only():
    scores, finer = torch.arange(5.0, requires_grad=True), torch.randn(10, 3, requires_grad=True)
    (chosen,) = zoom_in(scores, [finer], 2, sigma=1.0, straight_through=True)
    chosen.sum().backward()
    assert torch.equal(finer.grad, torch.cat([torch.zeros(6, 3), torch.ones(4, 3)]))


def test_hard_topk_is_ascending_and_the_lowest_index_wins_a_tie():
    assert hard_topk(torch.tensor([1.0, 3.0, 2.0, 3.0, 3.0]), 2).tolist() == [1, 3]
    assert hard_topk(torch.zeros(1000), 4).tolist() == [0, 1, 2, 3]
    assert hard_topk(torch.tensor([0.0, 9.0, 5.0]), 2).tolist() == [1, 2]
    assert hard_topk(torch.tensor([2.0, 1.0]), 9).tolist() == [0, 1]


def test_features_are_mixed_in_float32_under_autocast():
    scores, finer = torch.randn(30, requires_grad=True), torch.randn(120, 8)
    noise = torch.randn(100, 30)
    (plain,) = zoom_in(scores, [finer], 5, sigma=0.5, noise=noise)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (cast,) = zoom_in(scores, [finer], 5, sigma=0.5, noise=noise)
    assert torch.equal(plain, cast)


@pytest.mark.parametrize(
    ("scores", "finer", "k", "options", "said"),
    [
        (torch.zeros(4), torch.zeros(8, 2), 0, {}, "k is 0"),
        (torch.zeros(4), torch.zeros(9, 2), 2, {}, "whole multiple"),
        (torch.zeros(0), torch.zeros(0, 2), 1, {}, "at least one"),
        (torch.full((4,), math.nan), torch.zeros(8, 2), 1, {}, "NaN"),
        (torch.zeros(4), torch.zeros(8, 2), 1, {"jacobian": "fulll"}, "jacobian"),
        (torch.zeros(4), torch.zeros(8, 2), 1, {"sigma": -1.0}, "sigma"),
        (torch.zeros(4), torch.zeros(8, 2), 1, {"noise": torch.zeros(3, 5)}, "noise"),
    ],
)
def test_what_cannot_be_selected_from_is_refused(scores, finer, k, options, said):
    with pytest.raises(ModelError, match=said):
        zoom_in(scores, [finer], k, **options)
