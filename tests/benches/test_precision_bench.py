"""Bench precision: how features and choices are held against those of fp32."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.benches.precision import feature_error, selections_changed


def test_feature_error_is_a_share_of_the_spread():
    exact = np.random.default_rng(0).normal(size=(200, 16))
    assert feature_error(exact, exact) == 0
    assert feature_error(exact + 0.1, exact) == pytest.approx(0.1, rel=0.05)
    assert feature_error(10 * exact, 10 * (exact - 0.1)) == pytest.approx(0.1, rel=0.05)


def test_selections_are_held_against_those_of_fp32():
    class Step:
        def __init__(self, selected):
            self.selected = None if selected is None else np.array(selected)

    class Answer:
        def __init__(self, *selected):
            self.steps = tuple(Step(one) for one in selected)

    exact = {"a": Answer([1, 2], [8, 9], None), "b": Answer([3, 4], [5, 6], None)}
    other = {"a": Answer([1, 2], [8, 9], None), "b": Answer([3, 7], [0, 1], None)}
    assert selections_changed(exact, exact) == (0.0, 0.0)  # pyright: ignore
    assert selections_changed(other, exact) == (0.25, 0.5)  # pyright: ignore
