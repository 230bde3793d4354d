"""Row 12, tables: predictions of a cohort come in; a row per slide and one per case go out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoommil.bags.cohort import SlideRow
from zoommil.files import write_text
from zoommil.inference.prediction import Prediction


@dataclass(frozen=True)
class SlideAnswer:
    """What the tables need of one prediction; the rest stays in its JSON line."""

    row: SlideRow
    label: str
    probabilities: dict[str, float]
    patches: int
    flops: int
    exhaustive_patches: int
    exhaustive_flops: int

    @classmethod
    def of(cls, row: SlideRow, prediction: Prediction) -> SlideAnswer:
        """The answer of one slide of a cohort."""
        return cls(
            row=row,
            label=prediction.label,
            probabilities=dict(prediction.probabilities),
            patches=prediction.cost.patches,
            flops=prediction.cost.flops,
            exhaustive_patches=prediction.exhaustive_cost.patches,
            exhaustive_flops=prediction.exhaustive_cost.flops,
        )


def write_slides(path: Path, answers: Sequence[SlideAnswer], classes: Sequence[str]) -> None:
    """Write one row per slide: slide_id, case_id, label, pred, prob_<class>..."""
    rows = (
        [
            one.row.slide_id,
            one.row.case_id,
            one.row.label or "",
            one.label,
            *(repr(value) for value in one.probabilities.values()),
        ]
        for one in answers
    )
    _write(path, ["slide_id", "case_id", "label", "pred", *_names(classes)], rows)


def write_cases(path: Path, answers: Sequence[SlideAnswer], classes: Sequence[str]) -> None:
    """Write one row per case: the mean probability over its slides that were answered.

    A case whose slides have different labels has none.
    """
    by_case: dict[str, list[SlideAnswer]] = {}
    for one in answers:
        by_case.setdefault(one.row.case_id, []).append(one)
    rows = []
    for case, members in by_case.items():
        labels = {one.row.label for one in members}
        means = np.mean([list(one.probabilities.values()) for one in members], axis=0)
        label = labels.pop() if len(labels) == 1 else None
        guess = classes[int(means.argmax())]
        values = [repr(float(value)) for value in means]
        rows.append([case, label or "", guess, *values, len(members)])
    _write(path, ["case_id", "label", "pred", *_names(classes), "num_slides"], rows)


def total_cost(answers: Sequence[SlideAnswer]) -> dict[str, float | int | str]:
    """What a cohort took and what encoding everything would have; FLOPs are 2 per MAC."""
    flops = sum(one.flops for one in answers)
    exhaustive = sum(one.exhaustive_flops for one in answers)
    return {
        "slides": len(answers),
        "patches": sum(one.patches for one in answers),
        "flops": flops,
        "exhaustive_patches": sum(one.exhaustive_patches for one in answers),
        "exhaustive_flops": exhaustive,
        "exhaustive_over_this": exhaustive / flops if flops else 0.0,
        "exhaustive_is": "every patch of the highest magnification",
        "flops_are": "2 per multiply-accumulate of encoder and model",
    }


def _names(classes: Iterable[str]) -> list[str]:
    return [f"prob_{name}" for name in classes]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())
