"""Bench budget in its short form: limits hold, the model itself is reached, the picture is one."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from zoommil.artefact import Artefact, source_of
from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.bags.store import write_bag
from zoommil.benches.budget import MODEL, bench_budget, judged_by, ways_of
from zoommil.errors import CohortError, ConfigError
from zoommil.models.creation import create_model

CLASSES = ("low", "high")


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Six bags of three steps, 6 to 11 patches at the first."""
    folder = tmp_path_factory.mktemp("bags")
    rng = np.random.default_rng(0)
    for number in range(6):
        counts = [(6 + number) * ratio for ratio in (1, 4, 16)]
        rows = tuple(rng.normal(size=(count, 8)).astype(np.float32) for count in counts)
        write_bag(Bag(rows, slide_id=f"s{number}"), folder / f"s{number}.h5")
    return folder


@pytest.fixture(scope="module")
def cohort():
    rows = (SlideRow(f"s{n}", None, f"c{n}", CLASSES[n % 2]) for n in range(6))
    return Cohort(tuple(rows), CLASSES)


def _artefact(bags, folder, **settings) -> Artefact:
    from zoommil.bags.store import read_bag

    source = source_of(read_bag(bags / "s0.h5"))
    model = create_model(
        feature_dim=8, num_classes=2, seed=0, embed_dim=8, attention_dim=4, **settings
    )
    return Artefact(dict(model.settings), dict(model.state_dict()), CLASSES, source).save(folder)


@pytest.mark.parametrize("step_loss", [0.0, 0.3])
def test_the_curve(bags, cohort, tmp_path, step_loss):
    zoom = {"name": "zoommil", "ratios": (2, 2), "k": 4, "step_loss": step_loss}
    folder = _artefact(bags, tmp_path / "artefact", **zoom).folder
    found = bench_budget(judged_by(folder, cohort, bags), name="budget-own")
    page = found.write(tmp_path).read_text()
    value = json.loads((tmp_path / "budget-own.json").read_text())
    model, *points = value["points"]
    assert model["way"] == MODEL
    ways = {way: [p for p in points if p["way"] == way] for way in {p["way"] for p in points}}
    assert ("exit_confidence" in ways) == (step_loss > 0)
    budgets = ways["budget_patches"]
    assert [point["value"] for point in budgets][::6] == [11, 11 + 16 + 16]
    for point in budgets:
        assert point["patches"] <= point["value"]
    assert budgets[-1]["patches"] == model["patches"]
    assert budgets[-1]["weighted_f1"] == model["weighted_f1"]
    costs = [point["patches"] for point in ways["attention_mass"]]
    assert costs == sorted(costs)
    assert costs[-1] <= model["patches"]
    assert ElementTree.parse(tmp_path / "budget-own.svg").getroot().tag.endswith("svg")
    assert "![Accuracy against cost](budget-own.svg)" in page
    again = bench_budget(judged_by(folder, cohort, bags), name="budget-own")
    assert again.pictures == found.pictures


def test_what_cannot_be_drawn_is_refused(bags, cohort, tmp_path):
    folder = _artefact(bags, tmp_path / "a", name="abmil", ratios=(2, 2), at=0).folder
    with pytest.raises(ConfigError, match="give one that zooms"):
        bench_budget(judged_by(folder, cohort, bags))
    nobody = Cohort(tuple(SlideRow(f"s{n}", None, f"c{n}") for n in range(6)))
    with pytest.raises(CohortError, match="Add a 'label' column"):
        judged_by(folder, nobody, bags)


def test_budgets_reach_from_the_first_step_to_the_model(bags, cohort, tmp_path):
    zoom = {"name": "zoommil", "ratios": (2, 2), "k": 4}
    judged = judged_by(_artefact(bags, tmp_path / "a", **zoom).folder, cohort, bags)
    from zoommil.bags.store import read_bag

    full = [one.predictor.predict_bag(read_bag(one.bag)) for one in judged]
    amounts = [one.budget_patches for one in ways_of(judged[0].predictor, full)["budget_patches"]]
    assert amounts == sorted(set(amounts))
    assert (amounts[0], amounts[-1]) == (11, 43)
