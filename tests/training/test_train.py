"""train(): from bags to an artefact, what it refuses before it starts, going on after Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
import logging
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bags import make_bags, make_cohort, make_split

import zoommil as zm
from commands import room_for
from zoommil.artefact import load_artefact
from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.errors import (
    ArtefactError,
    BagError,
    CohortError,
    ConfigError,
    DiskFullError,
    LockError,
    MissingExtraError,
    SplitError,
    TrainingError,
)
from zoommil.files import exclusive_lock
from zoommil.training.evaluate import evaluate
from zoommil.training.predictions import read_predictions


def weights_of(folder: Path) -> bytes:
    return (folder / "artefact" / "model.safetensors").read_bytes()


def test_from_bag_files_to_an_artefact(bags, small_run, tmp_path: Path) -> None:
    for name, bag in bags.items():
        zm.write_bag(bag, tmp_path / "bags" / f"{name}.h5")
    changes = {"training": {"epochs": 15}, "optimiser": {"lr": 1e-2}}
    run = small_run.changed(**changes, model={"standardise": True})
    artefact = zm.train(
        run,
        make_cohort(bags),
        bags=str(tmp_path / "bags"),
        split=make_split(bags),
        out=tmp_path / "run",
    )
    folder = tmp_path / "run" / "artefact"
    assert {path.name for path in folder.iterdir()} == {
        "artefact.json", "model.safetensors", "run.toml", "curves.csv", "metrics_val.json",
        "metrics_test.json", "predictions_val.csv", "predictions_test.csv",
    }  # fmt: skip
    assert artefact.classes == ("no", "yes")
    assert artefact.metrics["test"]["slide"]["metrics"]["accuracy"]["value"] == 1.0
    assert len((folder / "curves.csv").read_text().splitlines()) == 1 + 15
    assert zm.RunSpec.load(folder / "run.toml") == run.changed(out=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    json.loads((folder / "metrics_test.json").read_text())

    # what was written is what the artefact says on the same bags
    table = read_predictions(folder / "predictions_test.csv")
    names = make_split(bags)["test"]
    again = evaluate(folder, make_cohort(bags), tmp_path / "bags", slide_ids=names)
    assert again.predictions.slide_ids == table.slide_ids
    assert (again.predictions.probabilities == table.probabilities).all()


@pytest.mark.parametrize("memory", ["memory", "mapped"])
def test_mapped_bags_train_to_the_same_weights(small_run, tmp_path: Path, memory: str) -> None:
    bags = make_bags(12)
    for name, bag in bags.items():
        zm.write_bag(bag, tmp_path / f"{name}.h5", dtype="float16")
    arguments = {"cohort": make_cohort(bags), "split": make_split(bags)}
    run = small_run.changed(data={"memory": memory})
    zm.train(run, bags=tmp_path, out=tmp_path / memory, **arguments)
    halved = {
        name: Bag(features=[rows.astype(np.float16) for rows in bag.features], slide_id=name)
        for name, bag in bags.items()
    }
    zm.train(small_run, bags=halved, out=tmp_path / "at_hand", **arguments)
    assert weights_of(tmp_path / memory) == weights_of(tmp_path / "at_hand")


def test_only_chosen_magnifications_are_used(small_run, tmp_path: Path) -> None:
    steps = [zm_step(1.25), zm_step(2.5), zm_step(5.0)]
    bags = {
        name: Bag(features=bag.features, slide_id=name, steps=steps)
        for name, bag in make_bags(12, counts=(4, 16, 64)).items()
    }
    run = small_run.changed(data={"magnifications": [1.25, 5.0]}, training={"epochs": 1})
    arguments = {"split": make_split(bags), "out": tmp_path}
    artefact = zm.train(run, make_cohort(bags), bags, **arguments)
    assert artefact.magnifications == (1.25, 5.0)
    assert artefact.settings["ratios"] == [4]
    artefact.matching(next(iter(bags.values())))


def zm_step(magnification: float):
    from zoommil.bags.bag import StepInfo

    return StepInfo(magnification, 10 / magnification, 8.0, 64, 0, 0, 640 / magnification)


def test_check_22_same_seed_gives_the_same_artefact(bags, small_run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        zm.train(small_run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path / name)
    for path in (tmp_path / "a" / "artefact").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / "artefact" / path.name).read_bytes()


def test_check_22_interrupted_run_goes_on_bit_identically(bags, small_run, tmp_path: Path) -> None:
    arguments = {"cohort": make_cohort(bags), "bags": bags, "split": make_split(bags)}
    zm.train(small_run, out=tmp_path / "straight", **arguments)

    def interrupt(progress) -> None:
        if progress.stage == "training" and (progress.epoch, progress.done) == (3, 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zm.train(small_run, out=tmp_path / "halting", report=interrupt, **arguments)
    assert (tmp_path / "halting" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "halting" / ".lock").exists()
    epochs = []
    zm.train(
        small_run,
        out=tmp_path / "halting",
        report=lambda p: epochs.append(p.epoch) if p.stage == "epoch" else None,
        **arguments,
    )
    assert epochs == [3, 4]
    assert weights_of(tmp_path / "straight") == weights_of(tmp_path / "halting")
    curves = [tmp_path / name / "curves.csv" for name in ("straight", "halting")]
    assert curves[0].read_text() == curves[1].read_text()


def test_a_full_disk_loses_no_finished_epoch(bags, small_run, tmp_path: Path) -> None:
    arguments = {"cohort": make_cohort(bags), "bags": bags, "split": make_split(bags)}
    zm.train(small_run, out=tmp_path / "straight", **arguments)
    with ExitStack() as stack:

        def fill(progress) -> None:
            if (progress.stage, progress.epoch) == ("epoch", 3):
                stack.enter_context(room_for(1000))

        with pytest.raises(DiskFullError, match=r"checkpoint\.safetensors"):
            zm.train(small_run, out=tmp_path / "full", report=fill, **arguments)
    epochs = []
    zm.train(
        small_run,
        out=tmp_path / "full",
        report=lambda p: epochs.append(p.epoch) if p.stage == "epoch" else None,
        **arguments,
    )
    assert epochs == [3, 4]
    assert weights_of(tmp_path / "straight") == weights_of(tmp_path / "full")


def test_finished_run_is_given_back_and_another_is_refused(bags, small_run, tmp_path) -> None:
    arguments = {"cohort": make_cohort(bags), "split": make_split(bags), "out": tmp_path}
    first = zm.train(small_run, bags=bags, **arguments)
    again = zm.train(
        small_run, bags=bags, report=lambda p: pytest.fail(str(p)) if p.epoch else None, **arguments
    )
    assert again.hash == first.hash
    with pytest.raises(TrainingError, match="artefact of another run"):
        zm.train(small_run.changed(seed=1), bags=bags, **arguments)
    with pytest.raises(TrainingError, match="artefact of another run"):
        zm.train(small_run, bags=make_bags(24, seed=9), **arguments)


def test_h7_test_slides_choose_nothing(bags, small_run, tmp_path: Path) -> None:
    """Other features and labels of the reported slides leave weights, epoch and temperature."""
    split = make_split(bags)
    run = small_run.changed(stopping={"patience": 2})
    first = zm.train(run, make_cohort(bags), bags, split=split, out=tmp_path / "a")
    other = make_bags(24, seed=5)
    mixed = {name: other[name] if name in split["test"] else bag for name, bag in bags.items()}
    labels = {name: ("yes", "no")[int(name[1:]) % 2] for name in split["test"]}
    second = zm.train(run, make_cohort(bags, **labels), mixed, split=split, out=tmp_path / "b")
    assert weights_of(tmp_path / "a") == weights_of(tmp_path / "b")
    assert first.temperature == second.temperature
    assert first.provenance["best_epoch"] == second.provenance["best_epoch"]
    accuracies = [a.metrics["test"]["slide"]["metrics"]["accuracy"] for a in (first, second)]
    assert accuracies[0] != accuracies[1]


def test_h7_case_on_two_sides_is_refused(bags, small_run, tmp_path: Path) -> None:
    cohort = make_cohort(bags)
    shared = tuple(
        SlideRow(row.slide_id, None, "one" if row.slide_id in ("s000", "s023") else row.case_id,
                 row.label) for row in cohort.slides
    )  # fmt: skip
    with pytest.raises(SplitError, match="'one'"):
        zm.train(small_run, Cohort(shared, cohort.classes), bags, split=make_split(bags))


def test_split_is_drawn_by_case_when_none_is_given(bags, small_run, tmp_path: Path) -> None:
    artefact = zm.train(
        small_run.changed(training={"epochs": 1}), make_cohort(bags), bags, out=tmp_path
    )
    numbers = artefact.provenance["num_slides"]
    assert sum(numbers.values()) == 24
    assert min(numbers.values()) >= 2


def test_class_names_and_order_come_from_the_run(bags, small_run, tmp_path: Path) -> None:
    run = small_run.changed(data={"classes": ["yes", "no"]}, training={"epochs": 1})
    artefact = zm.train(run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path)
    assert artefact.classes == ("yes", "no")


# ---- bad input: each is one clear line, before training starts


def refused(error: type[Exception], match: str, run, cohort, bags, split=None) -> None:
    with pytest.raises(error, match=match) as caught:
        zm.train(
            run, cohort, bags, split=split or make_split(bags),
            report=lambda p: pytest.fail("training started") if p.stage == "training" else None,
        )  # fmt: skip
    assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_missing_label(bags, small_run) -> None:
    refused(CohortError, "no label.*s003", small_run, make_cohort(bags, s003=None), bags)


def test_label_outside_the_named_classes(bags, small_run) -> None:
    run = small_run.changed(data={"classes": ["no", "maybe"]})
    refused(CohortError, "'yes'.*not among the classes no, maybe", run, make_cohort(bags), bags)


def test_one_class_only(bags, small_run) -> None:
    cohort = make_cohort(bags, **dict.fromkeys(bags, "no"))
    refused(CohortError, "at least two", small_run, cohort, bags)


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_class_absent_from_a_part(bags, small_run, part: str, tmp_path: Path) -> None:
    split = make_split(bags)
    split[part] = [name for name in split[part] if int(name[1:]) % 2 == 0]
    refused(SplitError, f"{part} has no slide of class 'yes'", small_run, make_cohort(bags), bags,
            split)  # fmt: skip


def test_class_absent_from_test_can_be_allowed_and_gives_nulls(bags, small_run, tmp_path) -> None:
    split = make_split(bags)
    split["test"] = [name for name in split["test"] if int(name[1:]) % 2 == 0]
    run = small_run.changed(data={"allow_absent_classes": True}, training={"epochs": 1})
    artefact = zm.train(run, make_cohort(bags), bags, split=split, out=tmp_path / "x")
    found = artefact.metrics["test"]["slide"]["metrics"]["auroc"]
    assert found["value"] is None
    assert "'yes'" in found["reason"]


def test_empty_part(bags, small_run) -> None:
    refused(
        SplitError, "train", small_run, make_cohort(bags), bags, make_split(bags) | {"train": []}
    )


def test_missing_bag_names_the_extract_command(bags, small_run) -> None:
    fewer = {name: bag for name, bag in bags.items() if name != "s004"}
    refused(TrainingError, r"1 of 24 slides have no bag: 's004'.*'zoommil extract",
            small_run, make_cohort(bags), fewer, make_split(bags))  # fmt: skip


def test_bag_of_another_width(bags, small_run) -> None:
    wide = Bag(features=[np.zeros((6, 9)), np.zeros((24, 9))], slide_id="s020")
    refused(BagError, r"'s020' has features of widths \(9, 9\), that of 's000' \(8, 8\)",
            small_run, make_cohort(bags), bags | {"s020": wide})  # fmt: skip


def test_bag_of_another_number_of_steps(bags, small_run) -> None:
    flat = Bag(features=[np.zeros((6, 8))], slide_id="s020")
    refused(BagError, "'s020'", small_run, make_cohort(bags), bags | {"s020": flat})


def test_bag_of_another_ratio(bags, small_run) -> None:
    finer = Bag(features=[np.zeros((6, 8)), np.zeros((96, 8))], slide_id="s020")
    refused(
        BagError, r"'s020' zooms by \(4,\)", small_run, make_cohort(bags), bags | {"s020": finer}
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bag_that_is_not_finite(bags, small_run, value: float) -> None:
    bad = bags["s007"]
    bad.features[1][3, 2] = value
    refused(BagError, "'s007' holds NaN or infinity in 1 of 24 rows of step 1",
            small_run, make_cohort(bags), bags)  # fmt: skip


def test_empty_bag(bags, small_run) -> None:
    object.__setattr__(bags["s007"], "features", (np.zeros((0, 8), np.float32),) * 2)
    refused(BagError, "'s007' is empty at step 0", small_run, make_cohort(bags), bags)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"encoders": [{"name": "uni", "weights_hash": "a"}]}, "expected tiny, got uni"),
        ({"encoders": [{"name": "tiny", "weights_hash": "b"}]}, "weights_hash"),
        ({"grid": {"patch_px": 64, "tissue_threshold": 0.5}}, "tissue_threshold"),
    ],
)
def test_bags_of_mixed_origin(bags, small_run, change: dict, says: str) -> None:
    origin = {
        "encoders": [{"name": "tiny", "weights_hash": "a"}],
        "grid": {"patch_px": 64, "tissue_threshold": 0.1},
    }
    made = {
        name: Bag(
            features=bag.features, slide_id=name,
            provenance=origin | (change if name == "s020" else {}),
        )
        for name, bag in bags.items()
    }  # fmt: skip
    refused(TrainingError, f"'s000' and 's020' do not belong together: .*{says}",
            small_run, make_cohort(bags), made)  # fmt: skip


def test_k_larger_than_every_bag(bags, small_run) -> None:
    refused(TrainingError, "model.k is 7, but the largest training bag has 6 patches",
            small_run.changed(model={"k": 7}), make_cohort(bags), bags)  # fmt: skip


def test_k_larger_than_some_bags_is_allowed_and_said(small_run, tmp_path, caplog) -> None:
    bags = make_bags(24) | {"s001": make_bags(2, counts=(2, 8))["s001"]}
    run = small_run.changed(training={"epochs": 1})
    with caplog.at_level(logging.WARNING, "zoommil"):
        zm.train(run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path / "x")
    assert "1 of 12 training bags have no more than k = 3 patches" in caplog.text


def test_model_settings_that_cannot_be(bags, small_run) -> None:
    run = small_run.changed(model={"dropout": 2})
    refused(ConfigError, r"\[model\] of the run: .*dropout", run, make_cohort(bags), bags)


def test_no_bags_and_no_cohort(bags, small_run) -> None:
    with pytest.raises(ConfigError, match=r"data\.bags"):
        zm.train(small_run, make_cohort(bags))
    with pytest.raises(ConfigError, match=r"data\.cohort"):
        zm.train(small_run, bags=bags)


def test_unknown_device(bags, small_run) -> None:
    refused(
        TrainingError, "'cuda:99'", small_run.changed(device="cuda:99"), make_cohort(bags), bags
    )


def test_checkpoint_of_another_run_is_refused(bags, small_run, tmp_path: Path) -> None:
    def interrupt(progress) -> None:
        if progress.stage == "epoch":
            raise KeyboardInterrupt

    arguments = {"cohort": make_cohort(bags), "bags": bags, "split": make_split(bags)}
    run = small_run.changed(out=str(tmp_path / "x"))
    with pytest.raises(KeyboardInterrupt):
        zm.train(run, report=interrupt, **arguments)
    zm.train(run.changed(training={"epochs": 2}), **arguments | {"out": tmp_path / "y"})
    (tmp_path / "y2").mkdir()
    (tmp_path / "y2" / "checkpoint.safetensors").write_bytes(b"not one")
    with pytest.raises(TrainingError, match="not a checkpoint"):
        zm.train(run, **arguments | {"out": tmp_path / "y2"})


def test_two_processes_do_not_train_into_one_folder(bags, small_run, tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "x" / ".lock"), pytest.raises(LockError):
        zm.train(small_run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path / "x")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_logger_is_there_or_says_how_to_get_it(bags, small_run, tmp_path, name: str) -> None:
    run = small_run.changed(log={"loggers": [name]}, training={"epochs": 2})
    arguments = {"split": make_split(bags), "out": tmp_path / "x"}
    package = {"tensorboard": "tensorboard", "mlflow": "mlflow"}[name]
    if importlib.util.find_spec(package) is None:
        with pytest.raises(MissingExtraError, match=r"zoommil\[loggers\]"):
            zm.train(run, make_cohort(bags), bags, **arguments)
        return
    zm.train(run, make_cohort(bags), bags, **arguments)
    assert any((tmp_path / "x").rglob("*tfevents*" if name == "tensorboard" else "meta.yaml"))


def test_training_gives_torchs_switches_back(bags, small_run, tmp_path: Path) -> None:
    before = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    run = small_run.changed(threads=1, training={"epochs": 1})
    zm.train(run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path / "x")
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_evaluation_refuses_bags_of_another_source(bags, small_run, tmp_path: Path) -> None:
    run = small_run.changed(training={"epochs": 1})
    zm.train(run, make_cohort(bags), bags, split=make_split(bags), out=tmp_path / "x")
    wide = make_bags(4, dim=9)
    with pytest.raises(ArtefactError, match="feature_dim at step 0: expected 8, got 9"):
        evaluate(tmp_path / "x" / "artefact", make_cohort(wide), wide)
    with pytest.raises(CohortError, match="'perhaps'"):
        evaluate(tmp_path / "x" / "artefact", make_cohort(bags, s000="perhaps"), bags)
    assert load_artefact(tmp_path / "x" / "artefact").classes == ("no", "yes")
