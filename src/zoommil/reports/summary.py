"""Row 13, summary: predictions of one or more models come in; what a report says of them goes out.

Every sentence follows from the numbers of this run: nothing is claimed that they do not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoommil.bags.cohort import Cohort
from zoommil.inference.prediction import Prediction
from zoommil.training.evaluate import Evaluation, describe
from zoommil.training.predictions import Predictions


@dataclass(frozen=True)
class Contender:
    """One model on the slides of a report.

    Attributes:
        name: of the model.
        num_slides: answered.
        right: answers that agree with the labels; None where there are no labels.
        num_labelled: slides with a label.
        patches, gflops, seconds: of one slide, mean; seconds None where not measured.
    """

    name: str
    num_slides: int
    right: int | None
    num_labelled: int
    patches: float
    gflops: float
    seconds: float | None


@dataclass(frozen=True)
class Summary:
    """What a report opens with.

    Attributes:
        headline: one line.
        sentence: what stands behind it.
        first: the model the report is about.
        rivals: models it is compared with.
        exhaustive_patches, exhaustive_gflops: encoding all of the highest step, mean of a slide.
        agreement: slides on which the costliest rival gives the same answer; None without one.
    """

    headline: str
    sentence: str
    first: Contender
    rivals: tuple[Contender, ...]
    exhaustive_patches: float
    exhaustive_gflops: float
    agreement: int | None = None

    @property
    def patch_share(self) -> float:
        """Patches encoded, as a part of encoding all of the highest step."""
        return self.first.patches / self.exhaustive_patches if self.exhaustive_patches else 1.0

    @property
    def flop_ratio(self) -> float | None:
        """How many times the operations of encoding everything are those of zooming."""
        return self.exhaustive_gflops / self.first.gflops if self.first.gflops else None


def summarise(
    name: str,
    predictions: Sequence[Prediction],
    labels: Mapping[str, str],
    rivals: Mapping[str, Sequence[Prediction]] | None = None,
) -> Summary:
    """The summary of a model's predictions beside those of others on the same slides.

    Args:
        name: of the model.
        predictions: its answers, at least one.
        labels: true classes by slide; empty where none are known.
        rivals: answers of other models by name.
    """
    first = contender(name, predictions, labels)
    others = tuple(contender(key, found, labels) for key, found in (rivals or {}).items())
    costly = max(others, key=lambda one: one.gflops, default=None)
    agreement = None
    if costly is not None:
        theirs = {one.slide_id: one.label for one in (rivals or {})[costly.name]}
        agreement = sum(theirs.get(one.slide_id) == one.label for one in predictions)
    patches = _mean([one.exhaustive_cost.patches for one in predictions])
    gflops = _mean([one.exhaustive_cost.flops / 1e9 for one in predictions])
    summary = Summary("", "", first, others, patches, gflops, agreement)
    return Summary(
        headline_of(summary, costly),
        sentence_of(summary, costly),
        first,
        others,
        patches,
        gflops,
        agreement,
    )


def contender(name: str, predictions: Sequence[Prediction], labels: Mapping[str, str]) -> Contender:
    """One model's answers and means of its costs."""
    known = [one for one in predictions if one.slide_id in labels]
    seconds = [one.measured.seconds.get("total") for one in predictions]
    measured = [value for value in seconds if value is not None]
    return Contender(
        name=name,
        num_slides=len(predictions),
        right=sum(one.label == labels[one.slide_id] for one in known) if known else None,
        num_labelled=len(known),
        patches=_mean([one.cost.patches for one in predictions]),
        gflops=_mean([one.cost.flops / 1e9 for one in predictions]),
        seconds=_mean(measured) if len(measured) == len(predictions) else None,
    )


def headline_of(summary: Summary, costly: Contender | None) -> str:
    """The report's first line."""
    part = f"{percent(summary.patch_share)} of the patches"
    first = summary.first
    if costly is not None and summary.agreement == first.num_slides == costly.num_slides:
        return f"The same answers from {part}"
    if first.right is None:
        return f"{counted(first.num_slides, 'slide')} answered from {part}"
    if (
        costly is not None
        and costly.right == first.right
        and first.num_labelled == costly.num_labelled
    ):
        return f"As many slides right from {part}"
    return f"{first.right} of {counted(first.num_labelled, 'slide')} right from {part}"


def sentence_of(summary: Summary, costly: Contender | None) -> str:
    """What was done and what it took, in words."""
    first = summary.first
    text = (
        f"{first.name} looked at each slide at low magnification, chose where to look closer, and "
        f"encoded {number(first.patches)} patches a slide; the highest magnification alone has "
        f"{number(summary.exhaustive_patches)}."
    )
    if costly is not None:
        text += (
            f" {costly.name}, which encodes {number(costly.patches)} a slide, gives the same "
            f"answer on {summary.agreement} of {counted(first.num_slides, 'slide')}"
        )
        rights = (first.right, costly.right)
        if None not in rights:
            text += f" ({first.right} right here, {costly.right} there)"
        text += "."
    return text


def evaluation_of(predictions: Sequence[Prediction], cohort: Cohort | None) -> Evaluation | None:
    """Every metric with its interval; None where not one slide has a label of the model's."""
    if cohort is None or not predictions:
        return None
    classes = tuple(predictions[0].probabilities)
    rows = {row.slide_id: row for row in cohort.slides if row.label in classes}
    known = [one for one in predictions if one.slide_id in rows]
    if not known:
        return None
    labels = [classes.index(rows[one.slide_id].label or "") for one in known]
    table = Predictions(
        tuple(one.slide_id for one in known),
        tuple(rows[one.slide_id].case_id for one in known),
        np.array(labels, np.int64),
        np.array([list(one.probabilities.values()) for one in known], np.float64),
        classes,
    )
    return describe(table)


def labels_of(cohort: Cohort | None) -> dict[str, str]:
    """The true class of every slide that has one."""
    return {} if cohort is None else {r.slide_id: r.label for r in cohort.slides if r.label}


def percent(share: float) -> str:
    """A share as people say it: 6%, 0.4%."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def number(value: float) -> str:
    """A count or mean with thin spaces between thousands."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10 else f"{value:.3g}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: 1 slide, 2 slides."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
