"""Row 12, evaluating: an artefact and labelled slides come in; metrics from their pixels go out.

The same figures that bags give, without bags: each slide is zoomed into as a prediction does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from zoommil.artefact import Artefact
from zoommil.bags.cohort import SlideRow
from zoommil.inference.cohort import predict_row
from zoommil.inference.prediction import Prediction
from zoommil.inference.predictor import Predictor
from zoommil.training.evaluate import Evaluation, judge
from zoommil.training.plan import examples_of
from zoommil.training.specs import EvaluationSpec


def answers_of(
    predictor: Predictor,
    rows: Sequence[SlideRow],
    report: Callable[[int], None] | None = None,
) -> dict[str, Prediction]:
    """The prediction of every slide, by its id; ``report`` is told the number done.

    Raises:
        CohortError: a slide without a label or a file; nothing was read before.
        SlideError: a slide that cannot be read. Figures without it would be of other slides.
    """
    examples_of(rows, predictor.artefact.classes)
    answers: dict[str, Prediction] = {}
    for row in rows:
        answer = predict_row(predictor, row)
        assert answer is not None
        answers[row.slide_id] = answer
        if report is not None:
            report(len(answers))
    return answers


def evaluate_answers(
    artefact: Artefact,
    rows: Sequence[SlideRow],
    answers: dict[str, Prediction],
    spec: EvaluationSpec | None = None,
) -> Evaluation:
    """What those predictions are worth, per slide and per case, as :func:`evaluate` says it."""
    examples = examples_of(rows, artefact.classes)
    logits = np.array([answers[row.slide_id].logits for row in rows], dtype=np.float32)
    return judge(logits, examples, artefact.classes, artefact.temperature, spec)
