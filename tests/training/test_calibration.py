"""Temperature scaling on validation logits."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.errors import TrainingError
from zoommil.training.calibration import cross_entropy, fit_temperature
from zoommil.training.predictions import softmax


def drawn(num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from exactly their softmax."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(num, 3)) * 2
    return logits, (softmax(logits).cumsum(1) < generator.random((num, 1))).sum(1)


def test_finds_the_factor_by_which_logits_are_too_sharp() -> None:
    logits, labels = drawn(20_000)
    assert fit_temperature(logits * 3.0, labels).temperature == pytest.approx(3.0, rel=0.05)
    assert fit_temperature(logits, labels).temperature == pytest.approx(1.0, rel=0.05)


def test_is_the_minimum_and_never_worse() -> None:
    logits, labels = drawn(200, seed=3)
    found = fit_temperature(logits * 2.0, labels)
    for factor in (0.9, 1.1):
        assert found.loss_after <= cross_entropy(logits * 2.0, labels, found.temperature * factor)
    assert found.loss_after <= found.loss_before


def test_slides_that_are_all_right_leave_the_temperature_alone_and_say_so() -> None:
    logits = np.eye(3)[[0, 1, 2, 0]] * 5
    found = fit_temperature(logits, np.array([0, 1, 2, 0]))
    assert found.is_separated
    assert found.temperature == 1.0
    assert not fit_temperature(logits, np.array([0, 1, 2, 1])).is_separated


def test_refuses_what_cannot_be_calibrated() -> None:
    with pytest.raises(TrainingError, match="0 validation slides"):
        fit_temperature(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    with pytest.raises(TrainingError, match="NaN or infinite"):
        fit_temperature(np.array([[np.nan, 0.0]]), np.array([0]))
