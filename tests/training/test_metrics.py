"""Metrics against scikit-learn, published numbers and hand-made cases."""

from __future__ import annotations

import time

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from zoommil.training.intervals import over_seeds, report
from zoommil.training.metrics import metric_values, row_percent
from zoommil.training.predictions import Predictions, softmax


def from_confusion(matrix) -> tuple[np.ndarray, np.ndarray]:
    """Labels and one-hot probabilities with this confusion matrix."""
    labels, guesses = [], []
    for truth, row in enumerate(matrix):
        for guess, count in enumerate(row):
            labels += [truth] * count
            guesses += [guess] * count
    return np.array(labels), np.eye(len(matrix))[guesses]


def random_case(seed: int, rows: int = 120, classes: int = 3):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(rows) % classes)
    logits = generator.normal(size=(rows, classes)).round(1)  # rounded, so that ranks tie
    logits[np.arange(rows), labels] += 1
    return labels, softmax(logits)


def test_check_17_published_confusion_gives_the_published_numbers() -> None:
    labels, probabilities = from_confusion([[235, 5], [56, 91]])
    values = metric_values(labels, probabilities)
    assert round(100 * values["accuracy"][0], 2) == 84.24
    assert (100 * values["class_f1"][0]).round(2).tolist() == [88.51, 74.90]
    assert round(100 * values["weighted_f1"][0], 2) == 83.34
    percent = row_percent(values["confusion"])[0]
    assert np.diag(percent).round(2).tolist() == [97.92, 61.90]


def test_check_17_deviation_over_seeds_names_its_ddof() -> None:
    accuracies = [100 * hits / 227 for hits in (207, 209, 211)]
    summary = over_seeds(accuracies, ddof=0)
    assert (round(summary.mean, 2), round(summary.sd or 0, 2), summary.ddof) == (92.07, 0.72, 0)
    assert over_seeds(accuracies).ddof == 1
    assert over_seeds([0.5]).sd is None


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_agrees_with_scikit_learn(seed: int, classes: int) -> None:
    labels, probabilities = random_case(seed, 60, classes)
    guesses = probabilities.argmax(axis=1)
    values = {name: value[0] for name, value in metric_values(labels, probabilities).items()}
    sk = sklearn.metrics
    assert values["weighted_f1"] == pytest.approx(sk.f1_score(labels, guesses, average="weighted"))
    assert values["accuracy"] == pytest.approx(sk.accuracy_score(labels, guesses))
    assert values["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, guesses))
    assert values["quadratic_kappa"] == pytest.approx(
        sk.cohen_kappa_score(labels, guesses, weights="quadratic")
    )
    assert values["class_f1"] == pytest.approx(sk.f1_score(labels, guesses, average=None))
    for index in range(classes):
        truth, scores = labels == index, probabilities[:, index]
        assert values["class_auroc"][index] == pytest.approx(sk.roc_auc_score(truth, scores))
        assert values["class_auprc"][index] == pytest.approx(
            sk.average_precision_score(truth, scores)
        )
    assert (values["confusion"] == sk.confusion_matrix(labels, guesses)).all()


def test_weights_count_rows_several_times() -> None:
    labels, probabilities = random_case(3)
    times = np.random.default_rng(0).integers(0, 4, len(labels))
    weighted = metric_values(labels, probabilities, times[None].astype(float))
    repeated = metric_values(np.repeat(labels, times), np.repeat(probabilities, times, axis=0))
    for name, values in repeated.items():
        assert weighted[name][0] == pytest.approx(values[0], abs=1e-12), name


def test_brier_and_ece_by_hand() -> None:
    labels = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.3, 0.7]])
    values = metric_values(labels, probabilities)
    assert values["brier"][0] == pytest.approx((0.02 + 0.02 + 1.62 + 0.18) / 4)
    assert values["ece"][0] == pytest.approx((3 * abs(2 / 3 - 0.9) + abs(1 - 0.7)) / 4)


def test_class_that_nobody_has_is_null_with_a_reason_and_not_a_crash() -> None:
    labels, probabilities = random_case(0, 40, 3)
    labels = labels % 2  # class c has no row
    ids = tuple(map(str, range(40)))
    found = report(
        Predictions(ids, ids, labels, probabilities, ("a", "b", "c")),
        resamples=20,
        generator=np.random.default_rng(0),
    )
    json = found.to_json()
    assert json["metrics"]["auroc"]["value"] is None
    assert "'c'" in json["metrics"]["auroc"]["reason"]
    assert json["per_class"]["c"]["auroc"]["value"] is None
    assert json["metrics"]["accuracy"]["value"] is not None
    assert json["confusion"][2] == [0, 0, 0]
    assert json["confusion_percent"][2][0]["value"] is None


def test_a_thousand_resamples_are_quick() -> None:
    labels, probabilities = random_case(0, 600)
    ids = tuple(map(str, range(600)))
    predictions = Predictions(ids, ids, labels, probabilities, ("a", "b", "c"))
    start = time.perf_counter()
    report(predictions, resamples=1000, generator=np.random.default_rng(0))
    assert time.perf_counter() - start < 2.0  # seen: 0.1
