"""Row 11, predictions: logits of many slides come in, tables per slide and per case go out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from zoommil.errors import CohortError
from zoommil.files import write_text

CASE_RULE = "mean probability over the case's slides"


@dataclass(frozen=True)
class Predictions:
    """What a model said about a list of slides (or cases), beside the truth."""

    slide_ids: tuple[str, ...]
    case_ids: tuple[str, ...]
    labels: Int[np.ndarray, " row"]
    probabilities: Float[np.ndarray, "row klass"]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.slide_ids), len(self.case_ids), len(self.labels)}
        assert lengths == {len(self.probabilities)}, "one row per slide everywhere"
        assert self.probabilities.shape[1] == len(self.classes), "one column per class"

    def __len__(self) -> int:
        return len(self.slide_ids)

    def predicted(self) -> Int[np.ndarray, " row"]:
        """The most probable class of each row, the lowest index on ties."""
        return self.probabilities.argmax(axis=1)

    def by_case(self) -> Predictions:
        """One row per case: the mean probability over its slides.

        Raises:
            CohortError: a case's slides have different labels, so the case has none.
        """
        cases, first, inverse = np.unique(self.case_ids, return_index=True, return_inverse=True)
        mixed = np.flatnonzero(self.labels[first][inverse] != self.labels)
        if len(mixed):
            raise CohortError(
                f"case {self.case_ids[mixed[0]]!r} has slides of different classes, so it has no "
                "label of its own; read the numbers per slide, or give the case one label."
            )
        sums = np.zeros((len(cases), len(self.classes)))
        np.add.at(sums, inverse, self.probabilities)
        names = tuple(str(case) for case in cases)
        means = sums / np.bincount(inverse)[:, None]
        return Predictions(names, names, self.labels[first], means, self.classes)

    def take(self, rows: Int[np.ndarray, " some"]) -> Predictions:
        """The rows of these indices, in this order."""
        return Predictions(
            tuple(self.slide_ids[row] for row in rows),
            tuple(self.case_ids[row] for row in rows),
            self.labels[rows],
            self.probabilities[rows],
            self.classes,
        )

    def write(self, path: Path | str) -> None:
        """Write the CSV that others read: slide_id, case_id, label, pred, prob_<class>..."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ["slide_id", "case_id", "label", "pred", *(f"prob_{name}" for name in self.classes)]
        )
        for row, guess in enumerate(self.predicted()):
            writer.writerow(
                [
                    self.slide_ids[row],
                    self.case_ids[row],
                    self.classes[self.labels[row]],
                    self.classes[guess],
                    *(repr(float(value)) for value in self.probabilities[row]),
                ]
            )
        write_text(path, stream.getvalue())


def read_predictions(path: Path | str) -> Predictions:
    """The table that :meth:`Predictions.write` wrote, bit for bit."""
    with Path(path).open(encoding="utf-8", newline="") as stream:
        header, *rows = list(csv.reader(stream))
    if header[:4] != ["slide_id", "case_id", "label", "pred"]:
        raise CohortError(
            f"{str(path)!r} has the columns {header}; expected slide_id, case_id, label, pred and "
            "one prob_<class> per class. Write it with 'zoommil evaluate'."
        )
    classes = tuple(name.removeprefix("prob_") for name in header[4:])
    return Predictions(
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        np.array([classes.index(row[2]) for row in rows], dtype=np.int64),
        np.array([[float(cell) for cell in row[4:]] for row in rows]).reshape(-1, len(classes)),
        classes,
    )


def join_predictions(parts: Sequence[Predictions]) -> Predictions:
    """The rows of several tables in one, as the out-of-fold predictions of a cross-validation.

    Raises:
        CohortError: the classes differ, or a slide was predicted twice.
    """
    if len({part.classes for part in parts}) != 1:
        raise CohortError("these predictions have different classes; they cannot be joined.")
    slide_ids = tuple(name for part in parts for name in part.slide_ids)
    if len(set(slide_ids)) != len(slide_ids):
        raise CohortError("a slide was predicted twice; test folds that overlap cannot be joined.")
    return Predictions(
        slide_ids,
        tuple(name for part in parts for name in part.case_ids),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.probabilities for part in parts]),
        parts[0].classes,
    )


def softmax(
    logits: Float[np.ndarray, "row klass"], temperature: float = 1.0
) -> Float[np.ndarray, "row klass"]:
    """Probabilities of logits divided by a temperature, in float64."""
    scaled = logits.astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
