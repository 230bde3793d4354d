"""Int8 with an artefact: calibrated on the cohort, stored, found again, never mixed up."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_cases import bag_of

from zoommil.artefact import Artefact, load_artefact, source_of
from zoommil.bags.cohort import read_cohort
from zoommil.encoders.quantisation import find_quantised, is_installed
from zoommil.errors import ArtefactError, WeightsError
from zoommil.inference.calibrating import prepare_int8
from zoommil.inference.predictor import Predictor
from zoommil.inference.verification import verify

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'int8' is not installed")
WEIGHTS = "random:0"


@pytest.fixture(scope="module")
def stored(artefact, slides, tmp_path_factory) -> Artefact:
    """The artefact with int8 networks, in a folder of its own."""
    folder = shutil.copytree(artefact.folder, tmp_path_factory.mktemp("int8") / "artefact")
    found = load_artefact(folder)
    rows = read_cohort(str(slides[0].parent)).slides
    (made,) = prepare_int8(found, rows, weights=WEIGHTS, num_patches=64)
    assert made.calibration["patches"] == 64
    assert len(made.calibration["slides"]) == 3
    assert prepare_int8(found, rows, weights=WEIGHTS) == ()
    return found


@pytest.fixture(scope="module")
def predictor_int8(stored) -> Predictor:
    return Predictor.load(stored, "cpu", precision="int8")


def work_of(answer) -> list[tuple]:
    steps = answer.cost.steps
    return [(step.patches, step.pixels, step.encoder_macs, step.head_macs) for step in steps]


def test_the_answer_says_what_computed_it(predictor_int8, predictor, slides, stored):
    answer, exact = predictor_int8.predict(slides[0]), predictor.predict(slides[0])
    (network,) = find_quantised(stored.folder)
    for encoder in answer.provenance["encoders"]:
        assert (encoder["precision"], encoder["quantised"]) == ("int8", network.hash)
    assert any("precision fp32, here with int8" in text for text in answer.warnings)
    assert work_of(answer) == work_of(exact)  # on other patches, perhaps
    assert answer.logits != exact.logits
    assert np.abs(np.subtract(answer.logits, exact.logits)).max() < 0.5


def test_the_same_answer_again_and_verified(predictor_int8, slides):
    answer = predictor_int8.predict(slides[1])
    outcome = verify(answer, predictor_int8, slides[1])
    assert outcome.is_exact
    assert outcome.conditions == ()


def test_lazy_equals_full_in_int8(stored, predictor_int8, slides, tmp_path):
    encoder = next(iter(predictor_int8.encoders.values()))
    bag = bag_of(slides[0], encoder)
    with pytest.raises(ArtefactError, match=r"precision: expected fp32, got int8") as told:
        stored.check_bag(bag)
    assert "quantised" not in str(told.value)
    trained = _trained_on(stored, bag, tmp_path)
    predictor = Predictor.load(trained, "cpu")  # int8, as in training, without being told
    from_pixels, from_bag = predictor.predict(slides[0]), predictor.predict_bag(bag)
    assert np.abs(np.subtract(from_pixels.logits, from_bag.logits)).max() < 1e-5
    for one, other in zip(from_pixels.steps, from_bag.steps, strict=True):
        assert np.array_equal(one.rows, other.rows)
    assert not any("int8" in text for text in from_pixels.warnings)


def test_features_of_another_int8_network_do_not_fit(stored, predictor_int8, slides, tmp_path):
    bag = bag_of(slides[0], next(iter(predictor_int8.encoders.values())))
    trained = _trained_on(stored, bag, tmp_path)
    other = _with_network(bag, "f" * 64)
    with pytest.raises(ArtefactError, match=r"quantised: expected [0-9a-f]+, got ffff"):
        trained.check_bag(other)
    elsewhere = _trained_on(stored, other, tmp_path / "other")
    with pytest.raises(ArtefactError, match=r"of the int8 network ffffffffffff; stored with it"):
        _ = Predictor.load(elsewhere, "cpu").encoders


def test_a_changed_or_missing_network_is_refused(stored, artefact, tmp_path):
    with pytest.raises(ArtefactError, match="no int8 network is stored"):
        _ = Predictor.load(artefact, "cpu", precision="int8").encoders
    folder = shutil.copytree(stored.folder, tmp_path / "artefact")
    (place,) = (folder / "int8").iterdir()
    (place / "network.bin").write_bytes(b"spoilt")
    with pytest.raises(WeightsError, match="is not the file"):
        _ = Predictor.load(folder, "cpu", precision="int8").encoders


def test_other_weights_are_no_int8_form_of_this_encoder(artefact, slides, tmp_path):
    folder = shutil.copytree(artefact.folder, tmp_path / "artefact")
    rows = read_cohort(str(slides[0])).slides
    with pytest.raises(WeightsError, match="Pass the weights it was trained with"):
        prepare_int8(load_artefact(folder), rows, weights="random:1", num_patches=40)
    assert not (folder / "int8").exists()


@pytest.mark.slow
def test_commands_calibrate_once_and_carry_it_along(slides, tmp_path, capsys, monkeypatch):
    """Extract in int8, train, predict: the artefact has the network that the bags were made by."""
    table = tmp_path / "cohort.csv"
    classes = ("low", "high")
    rows = [f"c{i},s{i},{classes[i % 2]},{slides[i % 3]}" for i in range(6)]
    table.write_text("\n".join(["case_id,slide_id,label,path", *rows]) + "\n")
    grid = ["--magnifications", "2.5,5", "--patch-px", "32", "--device", "cpu"]
    encoder = ["--encoder", "resnet18", "--weights", WEIGHTS, "--precision", "int8"]
    bags, run = tmp_path / "bags", tmp_path / "run"
    extract = ["extract", table, "-o", bags, *grid, *encoder]
    assert _run(capsys, monkeypatch, *extract)[0] == 0
    assert _run(capsys, monkeypatch, *extract)[1].count("kept") == 6
    small = ["--set", "training.epochs=1", "--set", "model.k=2"]
    words = ["train", "zoommil", "--cohort", table, "--bags", bags, "-o", run, *small]
    code, _, err = _run(capsys, monkeypatch, *words)
    assert code == 0, err
    made, carried = find_quantised(bags), find_quantised(run / "artefact")
    assert [one.hash for one in carried] == [one.hash for one in made]
    code, out, err = _run(capsys, monkeypatch, "predict", run / "artefact", slides[0])
    assert code == 0, err
    used = {one["quantised"] for one in json.loads(out)["provenance"]["encoders"]}
    assert used == {made[0].hash}


def test_predict_makes_it_of_its_slides_and_says_so(stored, slides, tmp_path, capsys, monkeypatch):
    folder = shutil.copytree(stored.folder, tmp_path / "artefact")
    words = ["predict", folder, slides[0], "--precision", "int8", "--device", "cpu"]
    code, out, err = _run(capsys, monkeypatch, *words)
    assert (code, err) == (0, "")  # it was there: nothing is made, no weights are asked for
    shutil.rmtree(folder / "int8")
    code, again, err = _run(capsys, monkeypatch, *words, "--weights", WEIGHTS)
    assert code == 0, err
    assert "patches of 1 slides, stored in" in err
    hashes = [json.loads(text)["provenance"]["encoders"][0]["quantised"] for text in (out, again)]
    assert hashes[0] != hashes[1]


def _trained_on(artefact: Artefact, bag, folder) -> Artefact:
    """The artefact as if it had been trained on bags like this one, its int8 folder with it."""
    found = replace(artefact, source=source_of(bag)).save(folder)
    shutil.copytree(artefact.folder / "int8", folder / "int8")
    return found


def _with_network(bag, quantised: str):
    """The bag as if its features were made by another int8 network."""
    encoders = [{**one, "quantised": quantised} for one in bag.provenance["encoders"]]
    return replace(bag, provenance={**bag.provenance, "encoders": encoders})


def _run(capsys, monkeypatch, *words) -> tuple[int, str, str]:
    from zoommil.cli.app import main

    package = logging.getLogger("zoommil")
    before = (package.handlers[:], package.level, package.propagate)
    monkeypatch.setattr(sys, "argv", ["zoommil", *map(str, words)])
    capsys.readouterr()
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        package.handlers[:], package.level, package.propagate = before
    output = capsys.readouterr()
    return code, output.out, output.err
