"""What a training step costs, lean against dense, each measured in a process of its own."""

from __future__ import annotations

import pytest

from zoommil.benches.step import CHECK_21, SIZES, StepSize, bench_step, measure


def test_both_forms_compute_the_same_and_the_page_says_so():
    tiny = StepSize(40, 5, (2, 2), num_samples=20, feature_dim=16)
    result = bench_step(sizes=[tiny], operator_sizes=[tiny], repeats=1)
    dense, lean, straight, operator = result.data["costs"]
    assert dense["logits"] == pytest.approx(lean["logits"], abs=1e-6)
    assert straight["logits"] != dense["logits"]
    assert operator["seconds"] > 0
    assert result.to_markdown().count("| 40, 5, 2-2 |") == 4


def test_check_21_memory_and_time_of_the_operator():
    cost = measure(CHECK_21, "operator", repeats=1)
    assert cost.peak_growth_bytes < 0.5e9
    assert cost.seconds < 3


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lean", "lean, straight-through"])
def test_a_step_at_camelyon_size_is_five_times_cheaper_than_dense(form):
    size = SIZES[-1]
    dense, lean = measure(size, "dense", repeats=1), measure(size, form)
    assert dense.seconds >= 5 * lean.seconds
    assert dense.peak_growth_bytes >= 5 * lean.peak_growth_bytes
