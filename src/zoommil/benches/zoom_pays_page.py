"""Row 16, benches: the rows and contrasts of "zooming pays" go in; its page and JSON come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.benches.results import BenchResult, Table
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.training.predictions import Predictions

METRIC = "weighted_f1"
RESAMPLES = 2000


@dataclass(frozen=True)
class MethodRow:
    """One method on one set of slides or bags."""

    method: str
    scores: tuple[float, ...]  # weighted F1 of each seed
    accuracies: tuple[float, ...]
    patches: float  # read and encoded per slide, mean
    share: float  # of all patches at the highest magnification
    epochs: int

    @property
    def mean(self) -> float:
        """Mean weighted F1 over seeds."""
        return float(np.mean(self.scores))


@dataclass(frozen=True)
class Contrast:
    """One method minus another, in weighted F1, with its paired 95% interval and what was asked."""

    first: str
    second: str
    value: float
    low: float
    high: float
    expected: str
    holds: bool


@dataclass(frozen=True)
class Section:
    """One set of slides or bags: its methods and what was asked of them."""

    title: str
    num_slides: int
    rows: tuple[MethodRow, ...]
    contrasts: tuple[Contrast, ...]

    def row(self, method: str) -> MethodRow:
        """The row of a method."""
        return next(row for row in self.rows if row.method == method)


def method_row(
    method: str, predictions: Sequence[Predictions], patches: float, share: float, epochs: int
) -> MethodRow:
    """A method's scores, from its predictions of every seed."""
    from zoommil.training.metrics import metric_values

    values = [metric_values(p.labels, p.probabilities) for p in predictions]
    return MethodRow(
        method,
        tuple(float(value[METRIC][0]) for value in values),
        tuple(float(value["accuracy"][0]) for value in values),
        patches,
        share,
        epochs,
    )


def contrast(
    predictions: Mapping[str, Sequence[Predictions]],
    first: str,
    second: str,
    *,
    expected: str,
    least: float = -np.inf,
    most: float = np.inf,
    above_zero: bool = False,
) -> Contrast:
    """A paired difference of two methods and whether it is as expected.

    Args:
        least, most: what the difference itself must lie within.
        above_zero: the whole interval must lie above zero as well.
    """
    from zoommil.training.intervals import paired_difference

    found = paired_difference(
        predictions[first],
        predictions[second],
        METRIC,
        resamples=RESAMPLES,
        generator=np.random.default_rng(0),
    )
    value, low, high = (float(v) for v in (found.value, found.low, found.high) if v is not None)
    holds = least <= value <= most and (low > 0 or not above_zero)
    return Contrast(first, second, value, low, high, expected, holds)


def page(sections: Sequence[Section], spec: Mapping[str, Any], notes: Sequence[str]) -> BenchResult:
    """The study as a page."""
    tables = []
    for section in sections:
        tables.append(_method_table(section))
        tables.append(_contrast_table(section))
    steps = ", ".join(magnification_label(value) for value in spec["magnifications"])
    sizes = (
        f"Steps {steps}, patches of {spec['patch_px']} px, {spec['encoder']} features; slides of "
        f"{spec['side_px']} x {spec['side_px']} px whose level 0 is the highest step."
    )
    return BenchResult(
        name="zoom_pays",
        title="Zooming pays on slides",
        command="zoommil bench pays",
        tables=tables,
        notes=[sizes, *notes],
        data={"spec": dict(spec), "sections": [asdict(section) for section in sections]},
    )


def _method_table(section: Section) -> Table:
    rows = [
        [
            row.method,
            f"{100 * row.mean:.1f}",
            _deviation(row.scores),
            f"{100 * float(np.mean(row.accuracies)):.1f}",
            str(len(row.scores)),
            str(row.epochs),
            f"{row.patches:.0f}",
            f"{100 * row.share:.1f}%",
        ]
        for row in section.rows
    ]
    headers = ["method", "weighted F1", "sd over seeds (ddof 1)", "accuracy", "seeds", "epochs",
               "patches", "of all at the highest"]  # fmt: skip
    return Table(f"{section.title} ({section.num_slides})", headers, rows)


def _contrast_table(section: Section) -> Table:
    rows = [
        [
            f"{one.first} - {one.second}",
            f"{100 * one.value:+.1f}",
            f"{100 * one.low:+.1f} to {100 * one.high:+.1f}",
            one.expected,
            "yes" if one.holds else "**no**",
        ]
        for one in section.contrasts
    ]
    headers = ["difference", "points of weighted F1", "paired 95% interval", "expected", "holds"]
    return Table(f"{section.title}: differences", headers, rows)


def _deviation(values: Sequence[float]) -> str:
    return f"{100 * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else "-"
