"""Row 16, bench budget: models and labelled slides in; accuracy against cost out, as a picture.

Slides are answered from their bags, which is the answer from their pixels at no cost of encoding;
what that would have cost is counted as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.benches.budget_chart import draw
from zoommil.benches.results import BenchResult, Table
from zoommil.benches.zoom_pays import PaysSpec, Say, encode_main, fold_artefacts
from zoommil.errors import CohortError, ConfigError, PredictionError
from zoommil.inference.limits import Limits

if TYPE_CHECKING:
    from zoommil.bags.bag import Bag
    from zoommil.bags.cohort import Cohort
    from zoommil.inference.prediction import Prediction
    from zoommil.inference.predictor import Predictor

MODEL = "the model itself"
NUM_BUDGETS = 7
MASSES = (0.1, 0.25, 0.5, 0.75, 0.9)
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
GIGA = 1e9


@dataclass(frozen=True, eq=False)
class Judged:
    """A labelled slide, and the model that has to answer for it."""

    slide_id: str
    label: str
    bag: Path
    predictor: Predictor


@dataclass(frozen=True)
class Point:
    """All slides answered under one limit: what it cost on average, and how many were right.

    Attributes:
        way: what limits, or "the model itself".
        value: of the limit.
        patches, gflops: of one slide, on average (2 FLOPs per MAC).
        share: of the operations of encoding everything at the highest magnification.
    """

    way: str
    value: float
    patches: float
    gflops: float
    share: float
    accuracy: float
    weighted_f1: float


def judged_study(
    work: Path, *, spec: PaysSpec | None = None, workers: int = 1, say: Say
) -> list[Judged]:
    """The slides of ``bench pays``, each with the model (first seed) that has not seen it."""
    from zoommil.engines.local import LocalEngine
    from zoommil.inference.predictor import Predictor

    spec = spec or PaysSpec()
    engine = LocalEngine(workers)
    encoded = encode_main(work, spec, engine, say)
    found = []
    for folder, slide_ids in fold_artefacts(work, encoded, spec, engine).items():
        predictor = Predictor.load(folder, "cpu")
        for slide_id in slide_ids:
            label = str(encoded.cohort.slide(slide_id).label)
            found.append(Judged(slide_id, label, encoded.bags / f"{slide_id}.h5", predictor))
    return found


def judged_by(artefact: Path, cohort: Cohort, bags: Path) -> list[Judged]:
    """The labelled slides of a cohort, all with one model."""
    from zoommil.inference.predictor import Predictor

    predictor = Predictor.load(artefact, "cpu")
    found = [
        Judged(row.slide_id, row.label, bags / f"{row.slide_id}.h5", predictor)
        for row in cohort.slides
        if row.label is not None
    ]
    if not found:
        raise CohortError("no slide of the cohort has a label. Add a 'label' column.")
    return found


def bench_budget(
    judged: Sequence[Judged],
    *,
    name: str = "budget",
    say: Say = lambda text: None,  # noqa: ARG005
) -> BenchResult:
    """Accuracy and cost under every limit, for the same slides.

    Raises:
        ConfigError: the model looks at one magnification only, so there is nothing to limit.
    """
    if judged[0].predictor.model.num_steps < 2:
        raise ConfigError("a model of one magnification cannot look at less; give one that zooms.")
    full = answers_of(judged, {MODEL: [Limits()]})[MODEL][0]
    say(f"{len(judged)} slides, {np.mean([one.cost.patches for one in full]):.0f} patches each")
    ways = ways_of(judged[0].predictor, full)
    found = answers_of(judged, ways)
    points = [_point(MODEL, 0.0, judged, full)]
    for way, limits in ways.items():
        for limit, answers in zip(limits, found[way], strict=True):
            points.append(_point(way, _value(limit), judged, answers))
            say(str(points[-1]))
    return _page(points, len(judged), name, full)


def ways_of(predictor: Predictor, full: Sequence[Prediction]) -> dict[str, list[Limits]]:
    """What to try: budgets between what all first steps need and what is spent without."""
    least = max(answer.cost.steps[0].patches for answer in full)
    most = max(answer.cost.patches for answer in full)
    amounts = dict.fromkeys(np.geomspace(least, most, NUM_BUDGETS).round().astype(int).tolist())
    ways = {
        "budget_patches": [Limits(budget_patches=amount) for amount in amounts],
        "attention_mass": [Limits(attention_mass=mass) for mass in MASSES],
        "exit_confidence": [Limits(exit_confidence=tau) for tau in CONFIDENCES],
    }
    return {way: limits for way, limits in ways.items() if _is_possible(predictor, limits[0])}


def answers_of(
    judged: Sequence[Judged], ways: Mapping[str, Sequence[Limits]]
) -> dict[str, list[list[Prediction]]]:
    """The answers for all slides under every limit; every bag is read once."""
    found: dict[str, list[list[Prediction]]] = {
        way: [[] for _ in limits] for way, limits in ways.items()
    }
    for one, bag in _with_bags(judged):
        for way, limits in ways.items():
            for place, limit in enumerate(limits):
                found[way][place].append(one.predictor.predict_bag(bag, limits=limit))
    return found


def _with_bags(judged: Sequence[Judged]) -> Iterator[tuple[Judged, Bag]]:
    from zoommil.bags.store import read_bag

    for one in judged:
        yield one, read_bag(one.bag)


def _is_possible(predictor: Predictor, limits: Limits) -> bool:
    """Whether the model was trained so that it can be held to this limit."""
    try:
        predictor.check_limits(limits)
    except PredictionError:
        return False
    return True


def _point(
    way: str, value: float, judged: Sequence[Judged], answers: Sequence[Prediction]
) -> Point:
    from zoommil.training.metrics import metric_values

    classes = list(answers[0].probabilities)
    labels = np.array([classes.index(one.label) for one in judged])
    probabilities = np.array([list(answer.probabilities.values()) for answer in answers])
    metrics = metric_values(labels, probabilities)
    shares = [answer.cost.flops / answer.exhaustive_cost.flops for answer in answers]
    return Point(
        way=way,
        value=value,
        patches=float(np.mean([answer.cost.patches for answer in answers])),
        gflops=float(np.mean([answer.cost.flops for answer in answers])) / GIGA,
        share=float(np.mean(shares)),
        accuracy=float(metrics["accuracy"][0]),
        weighted_f1=float(metrics["weighted_f1"][0]),
    )


def _value(limits: Limits) -> float:
    (value,) = limits.to_json().values()
    return float(value)


def _page(
    points: Sequence[Point], num_slides: int, name: str, full: Sequence[Prediction]
) -> BenchResult:
    everything = float(np.mean([answer.exhaustive_cost.flops for answer in full])) / GIGA
    rows = [
        (
            point.way,
            "" if point.way == MODEL else f"{point.value:g}",
            f"{point.patches:.0f}",
            f"{point.gflops:.1f}",
            f"{point.share:.1%}",
            f"{point.accuracy:.3f}",
            f"{point.weighted_f1:.3f}",
        )
        for point in points
    ]
    headers = ("limited by", "to", "patches", "GFLOP", "of everything", "accuracy", "weighted F1")
    data: dict[str, Any] = {
        "num_slides": num_slides,
        "exhaustive_gflops": everything,
        "points": [asdict(point) for point in points],
    }
    return BenchResult(
        name=name,
        title="Accuracy against cost",
        command="zoommil bench budget",
        tables=[Table(f"{num_slides} slides, means of one slide", headers, rows)],
        notes=(
            "GFLOP: encoder and model, 2 per multiply-accumulate. Of everything: encoding every "
            "patch of the highest magnification.",
            "budget_patches: the most patches of a slide; the least tried is what the first step "
            "of every slide needs. attention_mass: zooms into the fewest patches that hold this "
            "share. exit_confidence (models trained for it): stops once this sure.",
            f"One slide more or less right is {1 / num_slides:.3f} of accuracy.",
        ),
        data=data,
        pictures={f"{name}.svg": draw(data["points"], everything, num_slides)},
    )
