"""The Prediction: canonical JSON, GeoJSON for QuPath, and a ledger that was counted."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from small_cases import GRID

from zoommil.errors import PredictionError
from zoommil.inference.cost import HeadMacs, counted
from zoommil.inference.prediction import Prediction, read_predictions
from zoommil.models.creation import create_model
from zoommil.models.model import State


@pytest.fixture(scope="module")
def answer(predictor, slides):
    return predictor.predict(slides[0])


def test_json_goes_there_and_back(answer):
    for measured in (False, True):
        text = answer.to_json(measured=measured)
        assert "\n" not in text
        assert Prediction.from_json(text).to_json(measured=measured) == text
    assert "seconds" not in answer.to_json()
    assert answer.measured.seconds["total"] > 0
    assert answer.measured.peak_memory_bytes > 1e7


def test_json_is_the_same_on_a_second_run_and_for_any_batch_size(predictor, slides, answer):
    for batch_size in (1, 8, 64):
        again = predictor.predict(slides[0], batch_size=batch_size)
        assert again.to_json() == answer.to_json()


def test_json_does_not_depend_on_threads(predictor, slides, answer):
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        assert predictor.predict(slides[0]).to_json() == answer.to_json()
        changed = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert changed != before  # given back as it was


def test_a_prediction_says_what_it_follows_from(answer):
    made_from = answer.provenance
    assert len(made_from["slide"]["fingerprint"]) == 64
    assert made_from["slide"]["reader"] == "jpeg_tiles"
    assert len(made_from["artefact"]) == 64
    assert {one["runtime"] for one in made_from["encoders"]} == {"torch"}
    assert {one["precision"] for one in made_from["encoders"]} == {"fp32"}
    assert set(made_from["versions"]) == {"zoommil", "torch", "numpy"}


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"format": "zoommil-prediction"}'])
def test_what_is_no_prediction_is_refused(text, tmp_path):
    with pytest.raises(PredictionError, match="this is not a prediction"):
        Prediction.from_json(text)
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(PredictionError):
        read_predictions(path)


def test_files_of_one_and_of_many(answer, tmp_path):
    path = tmp_path / "a.json"
    for number in (1, 3):
        path.write_text((answer.to_json(measured=True) + "\n") * number)
        assert len(read_predictions(path)) == number
    path.write_text(json.dumps(json.loads(answer.to_json()), indent=2))
    assert read_predictions(path)[0].to_json() == answer.to_json()


def test_geojson_is_what_qupath_takes(answer):
    collection = json.loads(json.dumps(answer.to_geojson()))
    assert collection["type"] == "FeatureCollection"
    features = collection["features"]
    assert len(features) == answer.cost.patches
    assert len({feature["id"] for feature in features}) == len(features)
    for feature, box in zip(features, np.concatenate([s.boxes for s in answer.steps]), strict=True):
        assert feature["type"] == "Feature"
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        low, high = np.min(ring, axis=0), np.max(ring, axis=0)
        np.testing.assert_allclose([*low, *(high - low)], box, atol=0.02)
        properties = feature["properties"]
        assert properties["objectType"] == "tile"
        assert set(properties["classification"]) == {"name", "color"}
        assert all(isinstance(value, float) for value in properties["measurements"].values())
        assert properties["isLocked"] is True
    zoomed = sum("Zoomed" in one["properties"]["classification"]["name"] for one in features)
    assert zoomed == sum(len(step.selected) for step in answer.steps if step.selected is not None)


def test_geojson_in_the_frame_of_the_bounds(answer):
    provenance = {**answer.provenance, "slide": {**answer.provenance["slide"]}}
    provenance["slide"]["bounds"] = [100, 30, 900, 900]
    moved = Prediction.from_json({**json.loads(answer.to_json()), "provenance": provenance})
    corners = [
        np.array(one.to_geojson(frame)["features"][0]["geometry"]["coordinates"][0])
        for one, frame in ((moved, "slide"), (moved, "bounds"))
    ]
    np.testing.assert_allclose(corners[0] - corners[1], np.tile([100, 30], (5, 1)))


def test_costs_are_counted(answer, predictor, encoder, bags):
    macs = encoder.macs_per_patch(GRID.patch_px)
    cost, all_of_it = answer.cost, answer.exhaustive_cost
    for step, seen in zip(cost.steps, answer.steps, strict=True):
        assert step.patches == len(seen.rows)
        assert step.pixels == step.patches * GRID.patch_px**2
        assert step.encoder_macs == step.patches * macs
    assert cost.flops == 2 * cost.macs == 2 * sum(s.encoder_macs + s.head_macs for s in cost.steps)
    assert all_of_it.patches == len(bags[0].features[-1])
    assert all_of_it.all_steps.patches == sum(len(rows) for rows in bags[0].features)
    assert all_of_it.flops > 8 * cost.flops
    stored = predictor.predict_bag(bags[0])
    assert stored.cost.macs == cost.macs
    assert stored.cost.pixels_read is None


def test_head_macs_for_any_number_of_patches_are_what_running_counts():
    for settings in ({}, {"head": "mlp", "aggregation": "concat"}, {"attention": "single"}):
        model = create_model(
            "zoommil", feature_dim=24, num_classes=3, ratios=(2, 4), seed=0, k=3, **settings
        ).eval()
        head = HeadMacs(model)
        pooled = ()
        for position in range(3):
            rows = torch.zeros(37, 24)
            state = State(position, None, pooled)
            output, macs = counted(partial(model.step, rows, state))
            assert head.of(position, 37) == macs > 0
            pooled = output.state.pooled


def test_head_macs_by_hand():
    """Projection, gated attention, pooling, classifier of a plain single step."""
    model = create_model(
        "zoommil", feature_dim=10, num_classes=2, ratios=(), embed_dim=8, attention_dim=4
    ).eval()
    n = 5
    expected = n * 10 * 8 + n * (2 * 8 * 4 + 4) + n * 8 + 8 * 2
    assert HeadMacs(model).of(0, n) == expected
