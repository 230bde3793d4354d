"""Row 11, intervals: predictions come in, metrics with 95% bootstrap intervals over cases go out.

Cases are drawn, never slides: the slides of one patient are not independent. The intervals are
percentiles of the resamples in which a metric is defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from zoommil.errors import CohortError, ConfigError
from zoommil.registry import unknown_name
from zoommil.training.metrics import (
    PER_CLASS,
    SCALARS,
    Values,
    metric_values,
    row_percent,
)
from zoommil.training.predictions import CASE_RULE, Predictions

RESAMPLES = 1000
_LEVELS = (0.025, 0.975)
_CHUNK = 128


@dataclass(frozen=True)
class Estimate:
    """One number with its 95% interval; None and a reason where it is undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON, without the reason when there is none to give."""
        fields = {"value": self.value, "low": self.low, "high": self.high}
        return fields | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class MetricReport:
    """Every metric of one set of predictions, per slide or per case."""

    level: str
    classes: tuple[str, ...]
    num_rows: int
    num_cases: int
    resamples: int
    scalars: dict[str, Estimate]
    per_class: dict[str, dict[str, Estimate]]
    confusion: list[list[int]]
    confusion_percent: list[list[Estimate]]
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The report as JSON; undefined numbers are null beside their reason."""
        return {
            "level": self.level,
            "classes": list(self.classes),
            "num_rows": self.num_rows,
            "num_cases": self.num_cases,
            "interval": f"95%, bootstrap over cases, {self.resamples} resamples",
            "metrics": {name: value.to_json() for name, value in self.scalars.items()},
            "per_class": {
                name: {metric: value.to_json() for metric, value in row.items()}
                for name, row in self.per_class.items()
            },
            "confusion": self.confusion,
            "confusion_percent": [
                [cell.to_json() for cell in row] for row in self.confusion_percent
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of one metric over seeds; ``ddof`` says which deviation."""

    mean: float
    sd: float | None
    ddof: int
    num: int


def report(
    predictions: Predictions,
    *,
    level: str = "slide",
    resamples: int = RESAMPLES,
    generator: np.random.Generator,
) -> MetricReport:
    """Every metric of these predictions with its interval.

    Args:
        predictions: one row per slide.
        level: "slide", or "case" for the mean probability over a case's slides.
        resamples: bootstrap resamples; 0 gives the numbers alone.
        generator: draws the cases.
    """
    if level == "case":
        predictions = predictions.by_case()
    point = metric_values(predictions.labels, predictions.probabilities)
    drawn = _resampled(predictions, resamples, generator)
    classes = predictions.classes
    point["percent"], drawn["percent"] = (row_percent(v["confusion"]) for v in (point, drawn))
    supports = point["confusion"][0].sum(axis=1)
    return MetricReport(
        level=level,
        classes=classes,
        num_rows=len(predictions),
        num_cases=len(set(predictions.case_ids)),
        resamples=resamples,
        scalars={
            name: _estimate(point[name][0], drawn[name], _reason(name, supports, classes))
            for name in SCALARS
        },
        per_class={
            label: {
                name: _estimate(
                    point[f"class_{name}"][0, index],
                    drawn[f"class_{name}"][:, index],
                    _reason(name, supports, classes, index),
                )
                for name in PER_CLASS
            }
            for index, label in enumerate(classes)
        },
        confusion=point["confusion"][0].astype(int).tolist(),
        confusion_percent=[
            [
                _estimate(
                    point["percent"][0, i, j],
                    drawn["percent"][:, i, j],
                    _reason("recall", supports, classes, i),
                )
                for j in range(len(classes))
            ]
            for i in range(len(classes))
        ],
        notes=(CASE_RULE,) if level == "case" else (),
    )


def paired_difference(
    first: Predictions | Sequence[Predictions],
    second: Predictions | Sequence[Predictions],
    metric: str = "weighted_f1",
    *,
    resamples: int = RESAMPLES,
    generator: np.random.Generator,
) -> Estimate:
    """First minus second in one metric on the same slides, with its paired 95% interval.

    With several predictions a side (one per seed) it is the difference of the means over them.
    Every resample draws the same cases for all of them.

    Raises:
        CohortError: they are not predictions of the same slides.
        UnknownNameError: no such metric.
    """
    if metric not in SCALARS:
        raise unknown_name("metric", metric, SCALARS)
    sides = [[side] if isinstance(side, Predictions) else list(side) for side in (first, second)]
    if not all(sides):
        raise ConfigError("a paired difference needs predictions on both sides; one is empty.")
    reference, aligned = sides[0][0], []
    for side in sides:
        aligned.append([_align(predictions, reference) for predictions in side])
    ones = np.ones((1, len(reference)))
    point = float(_difference(aligned, metric, ones)[0])
    drawn = [_difference(aligned, metric, w) for w in _weights(reference, resamples, generator)]
    return _estimate(point, np.concatenate([np.empty(0), *drawn]), "one side is undefined")


def over_seeds(values: Sequence[float], ddof: int = 1) -> Summary:
    """Mean and standard deviation over seeds; ddof 1 (sample) unless a table wants 0.

    The deviation is None where there are too few values for it.
    """
    numbers = np.asarray(values, dtype=np.float64)
    sd = float(numbers.std(ddof=ddof)) if len(numbers) > ddof else None
    return Summary(float(numbers.mean()), sd, ddof, len(numbers))


def _difference(
    sides: list[list[Predictions]], metric: str, weights: Float[np.ndarray, "resample row"]
) -> Float[np.ndarray, " resample"]:
    means = [
        np.mean([metric_values(p.labels, p.probabilities, weights)[metric] for p in side], axis=0)
        for side in sides
    ]
    return means[0] - means[1]


def _align(predictions: Predictions, reference: Predictions) -> Predictions:
    """The same predictions in the reference's order of slides."""
    rows = {name: row for row, name in enumerate(predictions.slide_ids)}
    if set(rows) != set(reference.slide_ids) or predictions.classes != reference.classes:
        raise CohortError(
            "a paired difference needs predictions of the same slides and classes on both sides; "
            f"{len(set(rows) ^ set(reference.slide_ids))} slides are on one side only."
        )
    return predictions.take(np.array([rows[name] for name in reference.slide_ids], dtype=np.int64))


def _weights(
    predictions: Predictions, resamples: int, generator: np.random.Generator
) -> Iterator[Float[np.ndarray, "resample row"]]:
    """How often each row is drawn when cases are drawn with replacement, some resamples a time."""
    cases, inverse = np.unique(predictions.case_ids, return_inverse=True)
    chances = np.full(len(cases), 1.0 / len(cases))
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        counts = generator.multinomial(len(cases), chances, size=size)
        yield counts[:, inverse].astype(np.float64)


def _resampled(predictions: Predictions, resamples: int, generator: np.random.Generator) -> Values:
    parts = [
        metric_values(predictions.labels, predictions.probabilities, weights)
        for weights in _weights(predictions, resamples, generator)
    ]
    if not parts:
        parts = [
            metric_values(
                predictions.labels, predictions.probabilities, np.ones((0, len(predictions)))
            )
        ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _estimate(point: float, drawn: np.ndarray, reason: str) -> Estimate:
    if not np.isfinite(point):
        return Estimate(None, reason=reason)
    defined = drawn[np.isfinite(drawn)]
    if len(defined) == 0:
        return Estimate(float(point))
    low, high = np.quantile(defined, _LEVELS)
    return Estimate(float(point), float(low), float(high))


def _reason(
    name: str, supports: np.ndarray, classes: tuple[str, ...], index: int | None = None
) -> str:
    """Why a metric would be undefined, in words."""
    absent = [label for label, support in zip(classes, supports, strict=True) if support == 0]
    if not supports.sum():
        return "there are no rows"
    if index is not None and supports[index] == supports.sum() and name == "auroc":
        return f"every row is of class {classes[index]!r}"
    if index is not None and name == "precision":
        return f"no row was predicted as class {classes[index]!r}"
    if index is not None:
        return f"no row is of class {classes[index]!r}"
    return (
        f"no row is of class {', '.join(repr(label) for label in absent)}"
        if absent
        else ("all rows and predictions are of one class")
    )
