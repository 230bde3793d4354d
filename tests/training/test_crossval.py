"""Cross-validation: every slide judged once, by a model that never saw it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_bags import make_bags, make_cohort, make_split

from zoommil.bags.bag import Bag
from zoommil.bags.split import Split
from zoommil.bags.store import write_bag
from zoommil.errors import ConfigError, TrainingError
from zoommil.training.crossval import crossval
from zoommil.training.run import RunSpec


@pytest.fixture
def quick_run(small_run: RunSpec) -> RunSpec:
    return small_run.changed(training={"epochs": 2})


def test_every_slide_is_predicted_once_per_seed(bags, quick_run, tmp_path: Path) -> None:
    found = crossval(quick_run, make_cohort(bags), bags, num_folds=2, seeds=(0, 1), out=tmp_path)
    assert len(found.folders) == 4
    for evaluation in found.per_seed.values():
        assert sorted(evaluation.predictions.slide_ids) == sorted(bags)
    summary = found.summaries["slide"]["accuracy"]
    assert (summary.num, summary.ddof) == (2, 1)
    written = json.loads((tmp_path / "crossval.json").read_text())
    assert written["over_seeds"]["case"]["accuracy"]["ddof"] == 1
    assert (tmp_path / "predictions_seed_1.csv").is_file()


def test_processes_give_the_same_numbers_as_one(bags, quick_run, tmp_path: Path) -> None:
    for name, bag in bags.items():
        write_bag(bag, tmp_path / "bags" / f"{name}.h5")
    run = quick_run.changed(threads=1, training={"epochs": 1})
    arguments = {"cohort": make_cohort(bags), "bags": tmp_path / "bags", "num_folds": 2}
    for workers in (1, 2):
        crossval(run, workers=workers, out=tmp_path / str(workers), **arguments)
    tables = [(tmp_path / name / "predictions_seed_0.csv").read_text() for name in ("1", "2")]
    assert tables[0] == tables[1]


def test_what_was_finished_is_not_done_again(bags, quick_run, tmp_path: Path) -> None:
    arguments = {"cohort": make_cohort(bags), "bags": bags, "num_folds": 2, "out": tmp_path}
    crossval(quick_run, **arguments)
    stages = []
    crossval(quick_run, seeds=(0, 1), report=lambda p: stages.append(p.stage), **arguments)
    assert stages.count("epoch") == 2 * 2  # the new seed only
    assert stages.count("fold") == 4


def test_failing_fold_does_not_end_the_others_and_is_named(quick_run, tmp_path: Path) -> None:
    bags = make_bags(12)
    wide = make_bags(12, dim=9)
    names = list(bags)
    good = make_split(bags)
    splits = [Split(**{p: tuple(ids) for p, ids in good.items()}, name="good")]
    mixed = bags | {names[-1]: wide[names[-1]]}
    bad = {**good, "test": good["test"][:-1]}
    splits = [
        Split(**{p: tuple(ids) for p, ids in good.items()}, name="with"),
        Split(**{p: tuple(ids) for p, ids in bad.items()}, name="without"),
    ]
    run = quick_run.changed(data={"allow_absent_classes": True})
    found = crossval(run, make_cohort(bags), mixed, splits=splits, out=tmp_path)
    assert list(found.folders) == [("without", 0)]
    assert names[-1] in found.failures["with", 0]
    assert found.per_seed == {}  # the pooled numbers would lack a fold
    with pytest.raises(TrainingError, match="none of 1 runs ended well"):
        crossval(run, make_cohort(bags), mixed, splits=splits[:1], out=tmp_path / "x")


def test_case_level_metrics_are_there(quick_run, tmp_path: Path) -> None:
    bags = make_bags(16)
    found = crossval(quick_run, make_cohort(bags), bags, num_folds=2, out=tmp_path)
    case = found.per_seed[0].case
    assert case is not None
    assert case.num_rows == 16


def test_seeds_must_be_different(bags, quick_run) -> None:
    with pytest.raises(ConfigError, match="different"):
        crossval(quick_run, make_cohort(bags), bags, seeds=(0, 0))
    assert isinstance(bags["s000"], Bag)
