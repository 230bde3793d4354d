"""Bootstrap over cases: what is drawn, how wide, and paired."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.errors import CohortError, UnknownNameError
from zoommil.training.intervals import paired_difference, report
from zoommil.training.predictions import (
    Predictions,
    join_predictions,
    read_predictions,
    softmax,
)


def make(num_cases: int, slides: int = 1, *, seed: int = 0, skill: float = 1.0) -> Predictions:
    """Slides of one case say the same, so they carry no more information than one."""
    generator = np.random.default_rng(seed)
    labels = np.arange(num_cases) % 2
    logits = generator.normal(size=(num_cases, 2))
    logits[np.arange(num_cases), labels] += skill
    rows = np.repeat(np.arange(num_cases), slides)
    return Predictions(
        tuple(f"s{i}" for i in range(len(rows))),
        tuple(f"c{case}" for case in rows),
        labels[rows],
        softmax(logits)[rows],
        ("a", "b"),
    )


def width(predictions: Predictions, level: str = "slide") -> float:
    found = report(
        predictions, level=level, resamples=400, generator=np.random.default_rng(1)
    ).scalars["accuracy"]
    assert found.low is not None
    assert found.high is not None
    assert found.low <= (found.value or 0) <= found.high
    return found.high - found.low


def test_repeating_every_case_does_not_narrow_the_interval() -> None:
    alone, repeated = width(make(60)), width(make(60, slides=5))
    assert repeated == pytest.approx(alone, abs=0.03)
    assert width(make(240)) < 0.7 * alone  # but four times the cases do


def test_interval_covers_what_it_says() -> None:
    truth = np.mean([_accuracy(make(4000, seed=s)) for s in range(5)])
    covered = 0
    for seed in range(100):
        estimate = report(
            make(80, seed=seed + 100), resamples=200, generator=np.random.default_rng(seed)
        ).scalars["accuracy"]
        covered += (estimate.low or 0) <= truth <= (estimate.high or 0)
    assert 87 <= covered <= 100


def _accuracy(predictions: Predictions) -> float:
    return float((predictions.predicted() == predictions.labels).mean())


def test_case_level_is_the_mean_probability_over_slides() -> None:
    predictions = Predictions(
        ("s1", "s2", "s3"),
        ("c", "c", "d"),
        np.array([1, 1, 0]),
        np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]),
        ("a", "b"),
    )
    cases = predictions.by_case()
    assert cases.case_ids == ("c", "d")
    assert cases.probabilities == pytest.approx(np.array([[0.55, 0.45], [0.6, 0.4]]))
    found = report(predictions, level="case", resamples=5, generator=np.random.default_rng(0))
    assert "mean probability" in found.to_json()["notes"][0]
    assert found.scalars["accuracy"].value == 0.5


def test_case_of_two_classes_has_no_label() -> None:
    predictions = make(4)
    mixed = Predictions(
        predictions.slide_ids,
        ("c0", "c0", "c1", "c2"),
        predictions.labels,
        predictions.probabilities,
        predictions.classes,
    )
    with pytest.raises(CohortError, match="'c0' has slides of different classes"):
        mixed.by_case()


def test_paired_difference_is_narrower_than_unpaired() -> None:
    base = make(80, skill=0.5)
    better_logits = np.log(base.probabilities)
    flip = np.arange(80) % 8 == 0
    better_logits[flip, base.labels[flip]] += 10
    better = Predictions(
        base.slide_ids, base.case_ids, base.labels, softmax(better_logits), base.classes
    )
    generator = np.random.default_rng(0)
    paired = paired_difference(better, base, "accuracy", resamples=400, generator=generator)
    assert paired.value == pytest.approx(_accuracy(better) - _accuracy(base))
    assert paired.low is not None
    assert paired.high is not None
    assert paired.low >= 0  # never worse on any slide, hence in no resample
    assert paired.high - paired.low < width(base)


def test_paired_difference_takes_seeds_and_any_order_of_slides() -> None:
    first, second = make(40, seed=1), make(40, seed=2)
    mixed = second.take(np.random.default_rng(0).permutation(40))
    found = paired_difference(
        [first, second], [mixed], "weighted_f1", resamples=50, generator=np.random.default_rng(0)
    )
    alone = paired_difference(
        first, second, "weighted_f1", resamples=50, generator=np.random.default_rng(0)
    )
    assert found.value == pytest.approx((alone.value or 0) / 2)
    with pytest.raises(CohortError, match="same slides"):
        paired_difference(first, make(20), generator=np.random.default_rng(0))
    with pytest.raises(UnknownNameError, match="weighted_f1"):
        paired_difference(first, second, "wighted_f1", generator=np.random.default_rng(0))


def test_predictions_survive_their_file_bit_for_bit(tmp_path) -> None:
    predictions = make(10)
    predictions.write(tmp_path / "p.csv")
    again = read_predictions(tmp_path / "p.csv")
    assert again.slide_ids == predictions.slide_ids
    assert (again.probabilities == predictions.probabilities).all()
    assert (again.labels == predictions.labels).all()
    header = (tmp_path / "p.csv").read_text().splitlines()[0]
    assert header == "slide_id,case_id,label,pred,prob_a,prob_b"


def test_out_of_fold_tables_join_once() -> None:
    predictions = make(10)
    halves = [predictions.take(np.arange(5)), predictions.take(np.arange(5, 10))]
    assert join_predictions(halves).slide_ids == predictions.slide_ids
    with pytest.raises(CohortError, match="twice"):
        join_predictions([halves[0], halves[0]])
