"""Otsu's threshold against hand-made histograms and another implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil.tissue.thresholds import otsu_of_histogram, otsu_of_integers, otsu_of_values


def test_two_heaps_are_parted_between_them():
    values = np.array([10] * 50 + [12] * 50 + [200] * 30)
    assert otsu_of_integers(values, 256) == 12


def test_one_value_is_its_own_threshold():
    assert otsu_of_integers(np.full(9, 77), 256) == 77
    assert otsu_of_values(np.full(9, 1.5)) == 1.5


def test_no_values_give_zero():
    assert otsu_of_histogram(np.zeros(4, dtype=np.int64), np.arange(4.0)) == 0


@given(st.lists(st.integers(0, 255), min_size=2, max_size=300))
def test_no_other_threshold_parts_better(values):
    values = np.array(values)
    if values.min() == values.max():
        return

    def between(threshold):
        low, high = values[values <= threshold], values[values > threshold]
        if not (len(low) and len(high)):
            return 0.0
        return len(low) * len(high) * (low.mean() - high.mean()) ** 2

    best = max(between(threshold) for threshold in range(256))
    assert between(otsu_of_integers(values, 256)) == pytest.approx(best)


def test_real_values_as_scikit_image_does():
    from skimage.filters import threshold_otsu

    rng = np.random.default_rng(0)
    for _ in range(5):
        values = np.concatenate([rng.normal(20, 5, 800), rng.normal(90, 20, 300)])
        assert otsu_of_values(values) == pytest.approx(threshold_otsu(values))
