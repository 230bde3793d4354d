"""Row 11, evaluation: an artefact, a cohort and bags come in; metrics with intervals go out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from zoommil.artefact import Artefact, load_artefact
from zoommil.bags.cohort import Cohort, read_cohort
from zoommil.errors import CohortError
from zoommil.files import write_json
from zoommil.training.calibration import cross_entropy
from zoommil.training.data import Bags, BagSet, BagSource, Example
from zoommil.training.intervals import MetricReport, report
from zoommil.training.metrics import metric_values
from zoommil.training.plan import examples_of, refuse_missing_bags
from zoommil.training.predictions import Predictions, softmax
from zoommil.training.specs import EvaluationSpec


@dataclass(frozen=True)
class Evaluation:
    """What is known about a model on a set of slides."""

    predictions: Predictions
    slide: MetricReport
    case: MetricReport | None  # None: a case's slides have different classes
    case_reason: str | None
    calibration: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Both levels and the calibration; the predictions are a table of their own."""
        case = {"value": None, "reason": self.case_reason}
        return {
            "slide": self.slide.to_json(),
            "case": case if self.case is None else self.case.to_json(),
            "calibration": self.calibration,
        }

    def write(self, folder: Path | str, name: str) -> None:
        """Write ``metrics_<name>.json`` and ``predictions_<name>.csv``."""
        self.predictions.write(Path(folder) / f"predictions_{name}.csv")
        write_json(Path(folder) / f"metrics_{name}.json", self.to_json())


def evaluate(
    artefact: Artefact | Path | str,
    cohort: Cohort | Path | str,
    bags: Bags,
    *,
    slide_ids: Sequence[str] | None = None,
    spec: EvaluationSpec | None = None,
    device: str = "auto",
    report: Callable[[int], None] | None = None,
) -> Evaluation:
    """What an artefact is worth on the labelled slides of a cohort.

    Args:
        artefact: trained model, or its folder.
        cohort: labelled slides, or their table.
        bags: their bags.
        slide_ids: only these slides of the cohort, as the test part of a split.
        spec: number of resamples and their seed.
        device: where to compute.
        report: called with the number of slides done.

    Raises:
        CohortError: a slide without a label, or with one the artefact does not know.
        ArtefactError: a bag of another encoder, grid or precision.
        TrainingError: a slide without a bag.
    """
    from zoommil.training.loop import logits_of, pick_device

    if not isinstance(artefact, Artefact):
        artefact = load_artefact(artefact)
    found = cohort if isinstance(cohort, Cohort) else read_cohort(cohort)
    rows = (found if slide_ids is None else found.subset(slide_ids)).slides
    if not rows:
        raise CohortError("no slide to evaluate; the cohort or the chosen part of it is empty.")
    examples = examples_of(rows, artefact.classes)
    source = BagSource(bags, artefact.magnifications or ())
    refuse_missing_bags(source, examples)
    place = pick_device(device)
    model = artefact.build_model(place)
    bag_set = BagSet(source, examples)
    bag_set.prepare_for(artefact, model)
    logits = logits_of(model, bag_set, place, report)
    return judge(logits, examples, artefact.classes, artefact.temperature, spec)


def judge(
    logits: Float[np.ndarray, "row klass"],
    examples: Sequence[Example],
    classes: Sequence[str],
    temperature: float = 1.0,
    spec: EvaluationSpec | None = None,
) -> Evaluation:
    """The evaluation of logits that a model gave for some slides."""
    labels = np.array([example.label for example in examples], dtype=np.int64)
    predictions = Predictions(
        tuple(example.slide_id for example in examples),
        tuple(example.case_id for example in examples),
        labels,
        softmax(logits, temperature),
        tuple(classes),
    )
    return describe(predictions, spec, _calibration(logits, labels, temperature))


def describe(
    predictions: Predictions,
    spec: EvaluationSpec | None = None,
    calibration: dict[str, float] | None = None,
) -> Evaluation:
    """The evaluation of predictions per slide and per case; every level draws the same cases."""
    spec = spec or EvaluationSpec()

    def at(level: str) -> MetricReport:
        generator = np.random.default_rng(spec.seed)
        return report(predictions, level=level, resamples=spec.resamples, generator=generator)

    case, reason = None, None
    try:
        case = at("case")
    except CohortError as error:
        reason = str(error)
    return Evaluation(predictions, at("slide"), case, reason, calibration or {})


def _calibration(logits: np.ndarray, labels: np.ndarray, temperature: float) -> dict[str, float]:
    """Loss and calibration error with and without the temperature."""
    numbers = {"temperature": temperature}
    for name, value in (("before", 1.0), ("after", temperature)):
        numbers[f"loss_{name}"] = cross_entropy(logits, labels, value)
        numbers[f"ece_{name}"] = float(metric_values(labels, softmax(logits, value))["ece"][0])
    return numbers
