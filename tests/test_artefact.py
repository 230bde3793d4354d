"""The artefact folder: what it holds, what it refuses."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zoommil.artefact import Artefact, load_artefact, source_of
from zoommil.bags.bag import Bag, StepInfo
from zoommil.errors import ArtefactError
from zoommil.models.creation import create_model

ENCODER = {"name": "tiny", "dim": 8, "weights_hash": "aa", "precision": "fp32", "runtime": "torch"}
GRID = {
    "magnifications": [1.25, 2.5, 5.0],
    "patch_px": 64,
    "tissue_threshold": 0.1,
    "order": "morton",
}


def make_bag(*, encoder: dict | None = None, grid: dict | None = None, **changes: Any) -> Bag:
    """A bag of 2 patches at 1.25x and their children at 2.5x and 5x."""
    generator = np.random.default_rng(0)
    steps, features = [], []
    for power, magnification in enumerate((1.25, 2.5, 5.0)):
        count, side = 2 * 4**power, 512.0 / 2**power
        steps.append(
            StepInfo(magnification, 10 / magnification, 8 / 2**power, 64, 0, 0, side, None)
        )
        features.append(generator.normal(size=(count, 8)).astype(np.float32))
    return Bag(
        features=features,
        coords=[np.zeros((len(rows), 2), np.int64) for rows in features],
        slide_id="a",
        steps=steps,
        provenance={
            "grid": GRID | (grid or {}),
            "tissue": {"method": "otsu"},
            "encoders": [ENCODER | (encoder or {})],
            "storage": changes.get("dtype", "float16"),
        },
        dtype=changes.get("dtype", "float16"),
    )


@pytest.fixture
def artefact() -> Artefact:
    bag = make_bag()
    model = create_model(
        "zoommil", feature_dim=8, num_classes=2, ratios=bag.ratios, k=2, embed_dim=8,
        attention_dim=4, standardise=True, seed=0,
    )  # fmt: skip
    model.set_standardisation([np.full(8, 0.5)] * 3, [np.full(8, 2.0)] * 3)
    settings = json.loads(json.dumps(model.settings))
    return Artefact(
        settings,
        model.state_dict(),
        ("benign", "malignant"),
        source_of(bag),
        temperature=1.5,
        versions={"zoommil": "0.0.9"},
    )


def logits(artefact: Artefact) -> torch.Tensor:
    with torch.no_grad():
        return artefact.build_model()(make_bag().features).logits


def test_survives_its_folder(artefact: Artefact, tmp_path: Path) -> None:
    saved = artefact.save(tmp_path / "a")
    loaded = Artefact.load(tmp_path / "a")
    assert torch.equal(logits(artefact), logits(loaded))
    assert not loaded.build_model().training
    assert loaded.source == artefact.source
    assert loaded.classes == ("benign", "malignant")
    assert loaded.temperature == 1.5
    assert loaded.magnifications == (1.25, 2.5, 5.0)
    assert [step.mpp for step in loaded.source.steps] == [8.0, 4.0, 2.0]
    assert saved.hash == loaded.hash != ""
    assert loaded.build_model().standardise
    assert json.loads((tmp_path / "a" / "artefact.json").read_text())["standardisation"]


def test_hash_is_of_the_content(artefact: Artefact, tmp_path: Path) -> None:
    first, second = artefact.save(tmp_path / "a"), artefact.save(tmp_path / "b")
    assert first.hash == second.hash
    other = replace(artefact, temperature=2.0).save(tmp_path / "c")
    assert other.hash != first.hash


def test_bag_like_the_training_bags_fits(artefact: Artefact) -> None:
    artefact.check_bag(make_bag())
    artefact.check_bag(make_bag(encoder={"runtime": "openvino"}))  # recorded, not refused
    artefact.check_bag(make_bag(grid={"order": "row_major"}))  # answers do not depend on it


@pytest.mark.parametrize(
    ("bag", "says"),
    [
        (make_bag(encoder={"name": "uni"}), "encoder at 1.25x: expected tiny, got uni"),
        (make_bag(encoder={"weights_hash": "bb"}), "weights_hash: expected aa, got bb"),
        (make_bag(encoder={"precision": "bf16"}), "precision: expected fp32, got bf16"),
        (make_bag(grid={"tissue_threshold": 0.5}), "tissue_threshold: expected 0.1, got 0.5"),
        (make_bag(dtype="float32"), "precision: expected float16, got float32"),
        (make_bag().select([1, 2]), "steps: expected 1.25x, 2.5x, 5x, got 2.5x, 5x"),
        (Bag(features=make_bag().features, slide_id="v"), "got 3 of unknown magnification"),
    ],
)
def test_bag_of_another_source_is_refused_by_what_differs(artefact, bag: Bag, says: str) -> None:
    with pytest.raises(ArtefactError) as error:
        artefact.check_bag(bag)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_bag_with_more_magnifications_is_cut_to_the_artefacts(artefact: Artefact) -> None:
    bag = make_bag()
    two = replace(artefact, source=source_of(bag.select([0, 1])))
    assert two.matching(bag).magnifications == (1.25, 2.5)
    with pytest.raises(ArtefactError, match="steps"):
        artefact.matching(bag.select([0, 2]))


def test_bags_of_plain_vectors_fit_each_other() -> None:
    bag = Bag(features=(np.zeros((3, 8), np.float32),))
    source = source_of(bag)
    artefact = Artefact({}, {}, ("a", "b"), source)
    artefact.check_bag(Bag(features=(np.ones((5, 8), np.float32),)))
    assert artefact.magnifications is None
    with pytest.raises(ArtefactError, match="feature_dim"):
        artefact.check_bag(Bag(features=(np.ones((5, 9), np.float32),)))


def test_tampered_weights_are_refused(artefact: Artefact, tmp_path: Path) -> None:
    artefact.save(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ArtefactError, match=r"not the file that artefact\.json was written with"):
        load_artefact(tmp_path)
    path.unlink()
    with pytest.raises(ArtefactError, match="is missing"):
        load_artefact(tmp_path)


def test_artefact_of_another_version_is_refused(artefact: Artefact, tmp_path: Path) -> None:
    artefact.save(tmp_path)
    path = tmp_path / "artefact.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(ArtefactError, match=r"format 2; this zoommil reads format 1.*0\.0\.9"):
        load_artefact(tmp_path)


def test_h15_pickled_artefact_is_refused_unopened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    for name in ("artefact.json", "model.safetensors"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ArtefactError, match="is not an artefact"):
        load_artefact(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_folder_that_is_no_artefact_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="zoommil train"):
        load_artefact(tmp_path / "nothing")
    (tmp_path / "artefact.json").write_text("{}")
    with pytest.raises(ArtefactError, match="not the description"):
        load_artefact(tmp_path)


def test_weights_that_do_not_fit_the_model_are_one_line(artefact: Artefact) -> None:
    wrong = replace(artefact, settings={**artefact.settings, "embed_dim": 16})
    with pytest.raises(ArtefactError, match="does not fit this version's model 'zoommil'") as error:
        wrong.build_model()
    assert "\n" not in str(error.value)
