"""One slide to one bag: rows in the grid's order, encoders per step, what is left out."""

from __future__ import annotations

import numpy as np
import pytest

import zoommil as zm
from zoommil.encoding import encode_boxes
from zoommil.errors import ConfigError, SlideReadError
from zoommil.extraction import EncoderChoice, ExtractionSpec, differences

PATCH_PX = 64


@pytest.fixture(scope="module")
def encoder():
    return zm.load_encoder("resnet18", weights="random:0", precision="fp32", runtime="torch")


@pytest.fixture(scope="module")
def slide(slide_folder):
    with zm.open_slide(slide_folder / "s0.svs") as opened:
        yield opened


def pyramid_of(slide, **settings):
    spec = zm.GridSpec(magnifications=(1.25, 5), patch_px=PATCH_PX, **settings)
    return zm.PatchPyramid.build(slide, zm.find_tissue(slide), spec)


def test_rows_are_the_boxes_in_order(slide, encoder):
    pyramid = pyramid_of(slide)
    bag = zm.extract(slide, pyramid, encoder, dtype="float32")
    step = pyramid.steps[1]
    for row in (0, 7, len(step) - 1):
        x, y = step.boxes[row, :2]
        alone = encoder.encode(slide.read(x, y, PATCH_PX, PATCH_PX, step.mpp)[None])
        assert np.array_equal(alone[0], bag.features[1][row])
    assert np.array_equal(bag.coords[1], step.coords)
    assert np.array_equal(bag.boxes(1), step.boxes)


@pytest.mark.parametrize(("readers", "batch_size"), [(1, 1), (3, 8), (2, 100)])
def test_h10_order_does_not_depend_on_readers(slide, encoder, readers, batch_size):
    step = pyramid_of(slide).steps[1]
    boxes = step.boxes[:20]
    expected = encoder.encode(slide.read_boxes(boxes[:, :2], PATCH_PX, PATCH_PX, step.mpp))
    rows = encode_boxes(
        slide, boxes, step.mpp, PATCH_PX, encoder, readers=readers, batch_size=batch_size
    )
    assert np.array_equal(rows, expected)


def test_features_are_rounded_to_the_storage_type(slide, encoder):
    bag = zm.extract(slide, pyramid_of(slide), encoder)
    assert np.array_equal(bag.features[0], bag.features[0].astype(np.float16).astype(np.float32))
    assert bag.provenance["storage"] == "float16"


def test_children_without_tissue_are_not_encoded(slide, encoder):
    pyramid = pyramid_of(slide, child_tissue=0.5)
    valid = pyramid.steps[1].valid
    assert 0 < valid.sum() < len(valid)
    counted = []
    bag = zm.extract(slide, pyramid, encoder, progress=counted.append)
    assert sum(counted) == sum(int(step.valid.sum()) for step in pyramid.steps)
    assert not bag.features[1][~valid].any()
    assert bag.features[1][valid].any(axis=1).all()
    assert np.array_equal(bag.valid[1], valid)


def test_an_encoder_per_step(slide, encoder):
    other = zm.load_encoder("resnet50", weights="random:1", precision="fp32", runtime="torch")
    bag = zm.extract(slide, pyramid_of(slide), (other, encoder))
    assert [rows.shape[1] for rows in bag.features] == [1024, 512]
    assert [step.encoder for step in bag.steps] == ["resnet50", "resnet18"]


def test_three_encoders_for_two_steps_are_refused():
    choice = EncoderChoice(name="resnet18", weights="random:0")
    spec = ExtractionSpec(grid=zm.GridSpec(magnifications=(1.25, 5)), encoders=(choice,) * 3)
    with pytest.raises(ConfigError, match="3 encoders were given for 2"):
        spec.load_encoders()


def test_h2_an_unreadable_patch_is_an_error_not_a_feature(slide, encoder, monkeypatch):
    def broken(*arguments):
        raise SlideReadError("'s0.svs': level 0, box (0, 0, 64, 64) cannot be decoded")

    monkeypatch.setattr(slide, "read_boxes", broken)
    with pytest.raises(SlideReadError, match="level 0"):
        zm.extract(slide, pyramid_of(slide), encoder)


def test_the_key_names_what_changed(slide, encoder):
    bags = [
        zm.extract(slide, pyramid_of(slide, tissue_threshold=threshold), encoder)
        for threshold in (0.1, 0.3)
    ]
    assert bags[0].key != bags[1].key
    changes = differences(bags[0].provenance, bags[1].provenance)
    assert changes == ["grid.tissue_threshold: 0.1 -> 0.3"]
