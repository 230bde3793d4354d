"""verify: confirmed when nothing changed, and told what when something did."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from zoommil.errors import ArtefactError, PredictionError
from zoommil.inference.limits import Limits
from zoommil.inference.prediction import Prediction
from zoommil.inference.predictor import Predictor
from zoommil.inference.verification import compare, verify


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(budget_patches=40), Limits(budget_seconds=600), Limits(k=(2,))]
)
def test_an_untouched_prediction_is_confirmed_bit_for_bit(predictor, slides, limits):
    answer = predictor.predict(slides[0], limits=limits)
    outcome = verify(Prediction.from_json(answer.to_json()), predictor, slides[0])
    assert outcome.is_confirmed, outcome.differences
    assert outcome.is_exact
    assert outcome.differences == outcome.conditions == ()


def test_a_changed_probability_or_patch_is_found(predictor, slides):
    value = json.loads(predictor.predict(slides[0]).to_json())
    value["logits"][0] += 1e-6
    outcome = verify(Prediction.from_json(value), predictor, slides[0])
    assert not outcome.is_confirmed
    assert any("logits differ" in text for text in outcome.differences)
    value = json.loads(predictor.predict(slides[0]).to_json())
    value["steps"][1]["rows"][0] += 4
    outcome = verify(Prediction.from_json(value), predictor, slides[0])
    assert not outcome.is_confirmed
    assert outcome.differences == ("step 1: 1 of 12 patches are others",)


def test_elsewhere_a_tolerance_holds_and_the_conditions_are_said(predictor, slides):
    answer = predictor.predict(slides[0])
    elsewhere = replace(
        answer,
        provenance={**answer.provenance, "machine": "another"},
        probabilities={k: v + 1e-5 for k, v in answer.probabilities.items()},
    )
    outcome = compare(elsewhere, answer)
    assert outcome.is_confirmed
    assert not outcome.is_exact
    assert outcome.tolerance == 1e-3
    assert outcome.conditions[0].startswith("machine: another -> ")
    far = {k: v + 0.01 for k, v in answer.probabilities.items()}
    assert not compare(replace(elsewhere, probabilities=far), answer).is_confirmed


def test_another_slide_artefact_or_source_is_refused(
    predictor, slides, bags, make_artefact, encoder
):
    answer = predictor.predict(slides[0])
    with pytest.raises(PredictionError, match="not the slide of this prediction"):
        verify(answer, predictor, slides[1])
    other = Predictor(make_artefact("zoommil", step_loss=0.1), encoders=encoder, device="cpu")
    with pytest.raises(ArtefactError, match=r"Pass the folder of that one \(--artefact\)"):
        verify(answer, other, slides[0])
    with pytest.raises(PredictionError, match="made from stored features"):
        verify(predictor.predict_bag(bags[0]), predictor, slides[0])


def test_a_moved_slide_is_still_the_slide(predictor, slides, tmp_path):
    answer = predictor.predict(slides[0])
    moved = shutil.copy(slides[0], tmp_path / "other name.svs")
    assert verify(answer, predictor, moved).is_exact


def test_given_mpp_and_mask_are_used_again(predictor, slides, tmp_path):
    from PIL import Image

    path = tmp_path / "mask.png"
    Image.fromarray(np.full((125, 128), 255, np.uint8)).save(path)
    answer = predictor.predict(slides[0], mpp=0.9, mask=path)
    assert verify(answer, predictor, slides[0], mask=path).is_exact
    with pytest.raises(PredictionError, match=r"Pass it \(--mask\)"):
        verify(answer, predictor, slides[0])
