"""Wrong input to training commands: one line before anything is trained, and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_bad_input import assert_refused

from zoommil.bags.bag import Bag
from zoommil.bags.store import write_bag


@pytest.fixture
def study(vectors, tmp_path) -> Path:
    """A copy of the vectors and their table, to spoil."""
    return Path(shutil.copytree(vectors, tmp_path / "study"))


def no_label(study: Path) -> None:
    relabel(study, lambda number, label: "" if number == 3 else label)


def one_class(study: Path) -> None:
    relabel(study, lambda number, label: "yes")


def absent_from_a_part(study: Path) -> None:
    relabel(study, lambda number, label: "rare" if number == 5 else label)


def not_finite(study: Path) -> None:
    """As another program might leave it: our own refuses to write such a bag."""
    with h5py.File(study / "bags" / "s7.h5", "r+") as file:
        (group,) = [one for one in file.values() if "features" in one]
        group["features"][3, 2] = np.nan


def another_width(study: Path) -> None:
    rows = np.ones((40, 8), np.float32)
    write_bag(Bag(features=(rows,), slide_id="s7"), study / "bags" / "s7.h5")


def missing(study: Path) -> None:
    (study / "bags" / "s7.h5").unlink()


def truncated(study: Path) -> None:
    path = study / "bags" / "s7.h5"
    path.write_bytes(path.read_bytes()[:2000])


def relabel(study: Path, change) -> None:
    head, *lines = (study / "cohort.csv").read_text().splitlines()
    changed = []
    for number, line in enumerate(lines):
        case, slide, label = line.split(",")
        changed.append(f"{case},{slide},{change(number, label)}")
    (study / "cohort.csv").write_text("\n".join([head, *changed]) + "\n")


SPOILT = {
    no_label: ("CohortError", "no label for slides s3"),
    one_class: ("CohortError", "at least two classes"),
    absent_from_a_part: ("SplitError", "1 case"),
    not_finite: ("BagError", "s7"),
    another_width: ("BagError", "'s7'", "8"),
    missing: ("TrainingError", "'s7'", "zoommil extract"),
    truncated: ("BagError", "s7"),
}


def words_of(study: Path, *more: str) -> list[str | Path]:
    places = ["--cohort", study / "cohort.csv", "--bags", study / "bags", "-o", study / "out"]
    return ["abmil", *places, *more]


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda function: function.__name__)
def test_train_on_spoilt_input(zoommil, study, spoil):
    spoil(study)
    assert_refused(zoommil("train", *words_of(study)), *SPOILT[spoil])
    assert not list((study / "out").glob("*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.epoch=3", ("ConfigError", "Did you mean 'training.epochs'")),
        ("training.epochs=many", ("ConfigError", "training.epochs = 'many'")),
        ("model.at=4", ("ConfigError", "takes step 4 of a bag")),
        ("epochs", ("ConfigError", "key=value")),
    ],
)
def test_train_with_a_wrong_key(zoommil, study, change, words):
    assert_refused(zoommil("train", *words_of(study, "--set", change)), *words)
    assert not list((study / "out").glob("*"))


def test_train_with_a_run_file_that_is_not_there(zoommil, study):
    ended = zoommil("train", "nowhere.toml", *words_of(study)[1:])
    assert_refused(ended, "cannot read the run file", "No such file or directory. Check its path")


def test_train_without_bags_or_cohort(zoommil, study):
    assert_refused(zoommil("train", "abmil", "--cohort", study / "cohort.csv"), "(--bags)")
    assert_refused(zoommil("train", "abmil", "--bags", study / "bags"), "(--cohort)")


def test_train_from_a_checkpoint_of_another_version(zoommil, study, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("zoommil.training.train.conclude", stop)
        ended = zoommil("train", *words_of(study, "--set", "training.epochs=1"))
    assert ended.code == 130
    monkeypatch.setattr("zoommil.training.checkpoint.FORMAT_VERSION", 99)
    ended = zoommil("train", *words_of(study, "--set", "training.epochs=1"))
    assert_refused(ended, "TrainingError", "checkpoint of format 1")


def test_crossval_says_once_which_bags_are_missing(zoommil, study):
    missing(study)
    assert_refused(zoommil("crossval", *words_of(study)), "TrainingError", "1 of 24", "'s7'")
    assert not (study / "out").exists()
