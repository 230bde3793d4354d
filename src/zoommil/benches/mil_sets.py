"""Row 16, benches: classic MIL data sets of plain vectors; a folder in, accuracies out.

MUSK1, elephant and fox as ``X`` (instances), ``Bag2`` (bag of each instance) and ``BagI`` (label of
each bag) in MATLAB files: the quickest check that a model learns from bags at all, and the example
of how bags of plain vectors are used through the Python API.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.benches.results import BenchResult, Table
from zoommil.errors import CohortError

if TYPE_CHECKING:
    from zoommil.bags.bag import Bag

BASELINES = {"musk1": 0.91, "elephant": 0.85, "fox": 0.62}
_WIDTHS: dict[str, dict[str, Any]] = {"abmil": {"embed_dim": 256, "attention_dim": 128}}
# A hundred bags are too few to choose an epoch by a tenth of them: the last one is kept, and the
# smallest possible validation part is only watched.
_RUN: dict[str, Any] = {
    "optimiser": {"name": "adam", "lr": 5e-4, "weight_decay": 5e-3},
    "schedule": {"name": "constant"},
    "training": {"batch_bags": 1, "weighted_sampler": False, "select": "last"},
    "stopping": {"patience": 0},
    "evaluation": {"resamples": 0, "calibrate": False},
    "data": {"val_fraction": 0.05, "allow_absent_classes": True},
    "threads": 1,
}


@dataclass(frozen=True)
class MilSet:
    """Bags of plain vectors and their labels."""

    name: str
    bags: dict[str, Bag]
    labels: dict[str, str]


@dataclass(frozen=True)
class MilScore:
    """Accuracy of one method on one set, one value per repetition of the cross-validation."""

    data_set: str
    method: str
    accuracies: tuple[float, ...]
    baseline: float

    @property
    def mean(self) -> float:
        """The mean over the repetitions."""
        return float(np.mean(self.accuracies))


def mil_folder(folder: Path | None) -> Path:
    """The folder of the sets: the given one, else ``bags`` in the folder $ZOOMMIL_DATA names.

    Raises:
        CohortError: neither is given.
    """
    if folder is not None:
        return folder
    data = os.environ.get("ZOOMMIL_DATA", "")
    if not data:
        raise CohortError(
            "no folder of MIL sets was given; pass the one that has musk1_scaled, elephant_scaled "
            "and fox_scaled, or set ZOOMMIL_DATA to the folder that has it as 'bags'."
        )
    return Path(data) / "bags"


def read_mil_set(folder: Path, name: str) -> MilSet:
    """One of the sets, from ``<folder>/<name>_scaled``.

    Raises:
        CohortError: its files are not there.
    """
    from zoommil.bags.bag import Bag

    vectors, bag_of, labels = (_matrix(folder, name, kind) for kind in ("X", "Bag2", "[bB]agI"))
    bag_of, labels = bag_of.ravel(), labels.ravel()
    indices = np.unique(bag_of)
    names = [f"{name}_{index}" for index in indices]
    bags = {
        bag: Bag(features=(vectors[bag_of == index].astype(np.float32),), slide_id=bag)
        for bag, index in zip(names, indices, strict=True)
    }
    classes = {
        bag: ("negative", "positive")[int(label > 0)]
        for bag, label in zip(names, labels, strict=True)
    }
    return MilSet(name, bags, classes)


def _matrix(folder: Path, name: str, kind: str) -> np.ndarray:
    """The one matrix of one of a set's files."""
    from scipy.io import loadmat

    place = folder / f"{name}_scaled"
    found = sorted(place.glob(f"{kind}*.mat"))
    if not found:
        raise CohortError(
            f"{str(place)!r} does not hold X, BagI and Bag2 as .mat files; give the folder that "
            "has musk1_scaled, elephant_scaled and fox_scaled."
        )
    table = loadmat(found[0])
    return np.asarray(next(value for key, value in table.items() if not key.startswith("__")))


def bench_mil_sets(
    folder: Path,
    work: Path,
    *,
    names: Sequence[str] = tuple(BASELINES),
    methods: Sequence[str] = ("abmil", "meanmil"),
    repetitions: int = 5,
    num_folds: int = 10,
    epochs: int = 40,
    workers: int = 1,
    progress: Callable[[MilScore], None] | None = None,
) -> BenchResult:
    """Repeated k-fold cross-validation by bag; every repetition draws its own folds."""
    scores = []
    for name in names:
        mil_set = read_mil_set(folder, name)
        for method in methods:
            accuracies = [
                cross_validate(
                    mil_set, method, work / name / method / str(repetition),
                    seed=repetition, num_folds=num_folds, epochs=epochs, workers=workers,
                )
                for repetition in range(repetitions)
            ]  # fmt: skip
            scores.append(MilScore(name, method, tuple(accuracies), BASELINES[name]))
            if progress is not None:
                progress(scores[-1])
    return _result(scores, repetitions, num_folds)


def cross_validate(
    mil_set: MilSet, method: str, out: Path, *, seed: int, num_folds: int, epochs: int, workers: int
) -> float:
    """Out-of-fold accuracy of one repetition."""
    from zoommil.bags.cohort import Cohort, SlideRow
    from zoommil.training.crossval import crossval
    from zoommil.training.run import RunSpec

    cohort = Cohort(
        tuple(SlideRow(bag, None, bag, mil_set.labels[bag]) for bag in mil_set.bags),
        ("negative", "positive"),
        mil_set.name,
    )
    run = RunSpec.from_recipe(method, _RUN).changed(
        data={"split_seed": seed},
        training={"epochs": epochs},
        model={"standardise": True, **_WIDTHS.get(method, {})},
    )
    found = crossval(
        run, cohort, mil_set.bags, num_folds=num_folds, seeds=(seed,), out=out, workers=workers
    )
    accuracy = found.per_seed[seed].slide.scalars["accuracy"].value
    assert accuracy is not None
    return accuracy


def _result(scores: Sequence[MilScore], repetitions: int, num_folds: int) -> BenchResult:
    rows = [
        [
            score.data_set,
            score.method,
            f"{score.mean:.3f}",
            f"{np.std(score.accuracies, ddof=1):.3f}" if len(score.accuracies) > 1 else "",
            f"{score.baseline:.2f}",
        ]
        for score in scores
    ]
    return BenchResult(
        name="mil_sets",
        title="Classic MIL data sets",
        command="zoommil bench mil-sets MIL_FOLDER",
        tables=[
            Table(
                f"Accuracy in {repetitions} x {num_folds}-fold cross-validation by bag",
                ["data set", "method", "mean", "sd over repetitions (ddof 1)", "baseline"],
                rows,
            )
        ],
        notes=[
            "Baseline: mean, max and min pooling with a support vector machine, 10-fold.",
            "The last epoch is kept: nothing is chosen on so few bags. A twentieth of each "
            "training part is only watched, the SVM trains on all of it.",
            "Vectors are standardised by the training part; Adam 5e-4, weight decay 5e-3, one bag "
            "a step.",
        ],
        data={"scores": [asdict(score) for score in scores]},
    )
