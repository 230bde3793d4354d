"""Row 13, quality: an evaluation comes in; tables and charts of how often a model is right out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoommil.reports.charts import (
    Axes,
    Series,
    line_chart,
    reliability_chart,
    reliability_points,
)
from zoommil.training.evaluate import Evaluation
from zoommil.training.intervals import Estimate, MetricReport
from zoommil.training.predictions import Predictions

_NAMES = {
    "weighted_f1": "F1, weighted",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "area under ROC",
    "auprc": "average precision",
    "quadratic_kappa": "quadratic kappa",
    "brier": "Brier score (0 is best)",
    "ece": "calibration error (0 is best)",
    "f1": "F1",
    "recall": "recall",
    "precision": "precision",
}


@dataclass(frozen=True)
class Cell:
    """One cell of a confusion matrix."""

    count: int
    share: float
    text: str


@dataclass(frozen=True)
class Row:
    """The slides of one true class."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Quality:
    """How often a model is right, ready to be written."""

    note: str
    classes: tuple[str, ...]
    scalars: tuple[tuple[str, Estimate], ...]
    of_cases: dict[str, Estimate]
    per_class_names: tuple[str, ...]
    per_class: tuple[tuple[str, tuple[Estimate, ...]], ...]
    confusion: tuple[Row, ...]
    reliability: str
    roc: str | None
    roc_key: tuple[str, ...]


def quality_of(evaluation: Evaluation | None) -> Quality | None:
    """The quality of predictions with labels; None without."""
    if evaluation is None:
        return None
    from markupsafe import Markup

    report, rows = evaluation.slide, evaluation.predictions
    confidence = rows.probabilities.max(axis=1)
    points = reliability_points(confidence, rows.predicted() == rows.labels)
    roc, names = _roc(rows, report)
    metrics = tuple(next(iter(report.per_class.values())))
    return Quality(
        note=_note(report),
        classes=report.classes,
        scalars=tuple((_NAMES.get(key, key), value) for key, value in report.scalars.items()),
        of_cases=_of_cases(evaluation),
        per_class_names=tuple(_NAMES.get(name, name) for name in metrics),
        per_class=tuple(
            (name, tuple(row[metric] for metric in metrics))
            for name, row in report.per_class.items()
        ),
        confusion=tuple(_confusion(report)),
        reliability=Markup(reliability_chart(points, "Share right by confidence")),
        roc=None if roc is None else Markup(roc),
        roc_key=names,
    )


def _of_cases(evaluation: Evaluation) -> dict[str, Estimate]:
    """Every metric by case, where cases have several slides and one label."""
    report = evaluation.case
    if report is None or report.num_rows == evaluation.slide.num_rows:
        return {}
    return {_NAMES.get(key, key): value for key, value in report.scalars.items()}


def _note(report: MetricReport) -> str:
    cases = f" of {report.num_cases} cases" if report.num_cases != report.num_rows else ""
    return (
        f"{report.num_rows} labelled slides{cases}. Ranges are 95% intervals: "
        f"{report.resamples:,} bootstrap resamples of cases, never of slides. With few slides they "
        "say little, and perfect figures have intervals of no width: that is the bootstrap, not "
        "certainty."
    )


def _confusion(report: MetricReport) -> list[Row]:
    rows = []
    for name, counts in zip(report.classes, report.confusion, strict=True):
        total = sum(counts)
        shares = [count / total if total else 0.0 for count in counts]
        cells = (
            Cell(count, share, f"{share:.0%}" if total else "")
            for count, share in zip(counts, shares, strict=True)
        )
        rows.append(Row(name, tuple(cells)))
    return rows


def _roc(rows: Predictions, report: MetricReport) -> tuple[str | None, tuple[str, ...]]:
    """The curve of each class that some slides have and others have not."""
    series = []
    for index, name in enumerate(rows.classes):
        is_class = rows.labels == index
        area = report.per_class[name]["auroc"].value
        if area is None:
            continue
        order = np.argsort(-rows.probabilities[:, index], kind="stable")
        score = rows.probabilities[order, index]
        ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
        true = np.append(0, np.cumsum(is_class[order])[ends]) / is_class.sum()
        false = np.append(0, np.cumsum(~is_class[order])[ends]) / (~is_class).sum()
        series.append(Series(f"{name}, area {area:.2f}", false.tolist(), true.tolist()))
    if not series:
        return None, ()
    axes = Axes((0, 1), (0, 1.02), "false alarms", "found")
    chart = line_chart(series, axes, "ROC curve of each class", diagonal=True)
    return chart, tuple(one.name for one in series)
