"""Which reader reads: by its real name in what is stored, that of training, told otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cases import CLASSES, GRID

from zoommil.artefact import Artefact, load_artefact, source_of
from zoommil.bags.bag import Bag
from zoommil.extraction import extract
from zoommil.files import hash_of
from zoommil.grid import PatchPyramid
from zoommil.inference.prediction import Prediction
from zoommil.inference.predictor import Predictor
from zoommil.inference.verification import verify
from zoommil.slides.opening import open_slide
from zoommil.tissue import find_tissue
from zoommil.training.data import BagSet, BagSource, Example


@pytest.fixture(scope="module")
def openslide_bag(slides, encoder) -> Bag:
    """The first slide's bag, read by OpenSlide."""
    with open_slide(slides[0], scale=GRID.scale, reader="openslide") as slide:
        return extract(slide, PatchPyramid.build(slide, find_tissue(slide), GRID), encoder)


@pytest.fixture(scope="module")
def predictors(make_artefact, openslide_bag, encoder):
    """Of artefacts that were trained on slides read by OpenSlide, by the other, by who knows."""
    by_openslide = make_artefact("zoommil", openslide_bag)
    unknown = replace(by_openslide, source=replace(by_openslide.source, readers=()))
    artefacts = {"openslide": by_openslide, "jpeg_tiles": make_artefact(), "": unknown}
    return {name: Predictor(one, encoders=encoder) for name, one in artefacts.items()}


def test_bags_name_the_reader_that_read_and_are_keyed_by_it(bags, openslide_bag):
    assert bags[0].provenance["slide"]["reader"] == "jpeg_tiles"
    assert openslide_bag.provenance["slide"]["reader"] == "openslide"
    assert bags[0].key != openslide_bag.key


@pytest.mark.parametrize(
    ("trained", "expected"), [("openslide", "openslide"), ("jpeg_tiles",) * 2, ("", "jpeg_tiles")]
)
def test_the_reader_of_training_is_taken(predictors, slides, trained, expected):
    answer = predictors[trained].predict(slides[0])
    assert answer.provenance["slide"]["reader"] == expected
    assert not any("were read by" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    ("trained", "reader"), [("openslide", "jpeg_tiles"), ("jpeg_tiles", "openslide")]
)
def test_another_reader_is_told_and_is_another_key(predictors, slides, encoder, trained, reader):
    artefact = predictors[trained].artefact
    answer = Predictor(artefact, encoders=encoder, reader=reader).predict(slides[0])
    text = f"slides in training were read by {trained}, this one by {reader}"
    assert text in answer.warnings
    as_trained = predictors[trained].predict(slides[0])
    assert hash_of(answer.provenance) != hash_of(as_trained.provenance)


@pytest.mark.parametrize("reader", ["openslide", "jpeg_tiles"])
def test_logits_are_those_of_the_bag_of_the_same_reader(predictors, slides, bags, reader, request):
    bag = bags[0] if reader == "jpeg_tiles" else request.getfixturevalue("openslide_bag")
    answer = predictors[reader].predict(slides[0])
    stored = predictors[reader].predict_bag(bag)
    np.testing.assert_allclose(answer.logits, stored.logits, atol=1e-5)


def test_verify_reads_with_the_reader_of_the_prediction(predictors, slides, encoder):
    artefact = predictors[""].artefact
    answer = Predictor(artefact, encoders=encoder, reader="openslide").predict(slides[0])
    outcome = verify(Prediction.from_json(answer.to_json()), predictors[""], slides[0])
    assert outcome.is_exact
    fast = Predictor(artefact, encoders=encoder, reader="jpeg_tiles")
    outcome = verify(Prediction.from_json(answer.to_json()), fast, slides[0])
    assert not outcome.is_exact
    assert any("reader: openslide -> jpeg_tiles" in text for text in outcome.conditions)


def test_training_remembers_every_reader(bags, openslide_bag, predictors):
    both = {"a": bags[0], "b": openslide_bag}
    bag_set = BagSet(BagSource(both), [Example(name, name, 0) for name in both])
    bag_set.prepare(predictors[""].model, bags[0], keep=True)
    assert bag_set.readers == {"jpeg_tiles", "openslide"}


def test_artefacts_keep_their_readers_and_old_ones_have_none(predictors, tmp_path: Path):
    import json

    source = predictors["openslide"].artefact.source
    assert source.readers == ("openslide",)
    saved = replace(predictors["openslide"].artefact, folder=None).save(tmp_path)
    assert load_artefact(tmp_path).source == source
    description = json.loads((tmp_path / "artefact.json").read_text())
    del description["source"]["readers"]
    (tmp_path / "artefact.json").write_text(json.dumps(description))
    assert isinstance(saved, Artefact)
    assert load_artefact(tmp_path).source.readers == ()
    assert source_of(Bag(features=(np.ones((2, 3), np.float32),))).readers == ()
    assert load_artefact(tmp_path).classes == CLASSES
