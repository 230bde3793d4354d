"""What a synthetic slide hides and shows: truth, class, hint and stain."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from synthetic_slides import SEED, read_level, small_spec
from zoommil.synthetic.cohort import CohortSpec, slide_labels, write_cohort
from zoommil.synthetic.drawing import draw_plan, stream_of
from zoommil.synthetic.mixing import hinted_maps
from zoommil.synthetic.slide import truth_path, write_slide
from zoommil.synthetic.stains import sample_stain


def mask_of(polygons, shape, scale=1.0, grow_px=0) -> np.ndarray:
    mask = np.zeros(shape[:2], np.uint8)
    for polygon in polygons:
        cv2.fillPoly(mask, [np.round(polygon.corners * scale).astype(np.int32)], (1,))
    if grow_px:
        mask = cv2.dilate(mask, np.ones((2 * grow_px + 1, 2 * grow_px + 1), np.uint8))
    return mask.astype(bool)


def test_classes_differ_inside_the_true_polygons_only(written):
    normal = read_level(written["normal"][0], 0).astype(int)
    path, truth = written["high_grade"]
    difference = np.abs(read_level(path, 0).astype(int) - normal).max(-1)
    inside = mask_of(truth.lesions, normal.shape)
    near = mask_of(truth.lesions, normal.shape, grow_px=60)  # whole glands, 120 um
    assert (difference[~near] > 0).mean() < 0.01  # JPEG blocks that touch
    assert (difference[inside] > 12).mean() > 0.1


def test_low_magnification_shows_nothing_of_the_class(written):
    truth = written["high_grade"][1]
    for label in ("low_grade", "high_grade"):
        differences = []
        for level, scale in ((0, 1.0), (2, 1 / 16)):
            normal = read_level(written["normal"][0], level).astype(float)
            own = read_level(written[label][0], level).astype(float)
            inside = mask_of(truth.foci, normal.shape, scale)
            differences.append(np.sqrt(((own - normal)[inside] ** 2).mean()))
            assert abs((own - normal)[inside].mean()) < 1.0
        assert differences[1] < 0.25 * differences[0]
        assert differences[1] < 4.0


def test_truth_is_the_same_place_under_every_label(written):
    for label, name in (("normal", "look_alike"), ("low_grade", "low_grade")):
        truth = written[label][1]
        assert [p.name for p in truth.polygons] == [name, name, "decoy"]
        assert len(truth.lesions) == (0 if label == "normal" else 2)
        assert len(truth.foci) == 2
        for polygon, other in zip(truth.polygons, written["high_grade"][1].polygons, strict=True):
            np.testing.assert_array_equal(polygon.corners, other.corners)


def test_foci_lie_in_tissue(written):
    path, truth = written["normal"]
    pixels = read_level(path, 1).astype(int)
    inside = mask_of(truth.foci, pixels.shape, 0.25)
    assert (np.ptp(pixels, axis=-1) > 12)[inside].mean() > 0.7


def test_truth_file_is_geojson_that_names_the_classes(written):
    value = json.loads(truth_path(written["low_grade"][0]).read_text())
    assert value["type"] == "FeatureCollection"
    names = [feature["properties"]["classification"]["name"] for feature in value["features"]]
    assert names == ["low_grade", "low_grade", "decoy"]
    ring = value["features"][0]["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1]


def test_class_visible_low_control_shows_at_low_magnification(written, tmp_path):
    truth = written["normal"][1]
    normal = read_level(written["normal"][0], 2).astype(float)
    inside = mask_of(truth.foci, normal.shape, 1 / 16)
    shifts = []
    for label in ("low_grade", "high_grade"):
        path = tmp_path / f"{label}.svs"
        write_slide(path, small_spec(label=label, class_visible_low=True), SEED)
        shifts.append((read_level(path, 2).astype(float) - normal)[inside].mean(0))
    assert np.abs(shifts).max(1).min() > 8
    assert np.abs(shifts[0] - shifts[1]).max() > 8


def test_hint_control_removes_the_hint():
    hinted, bare = (small_spec(hint=hint) for hint in (True, False))
    plan = draw_plan(hinted, SEED)
    tints = [hinted_maps(spec, plan).hematoxylin_tint for spec in (hinted, bare)]
    np.testing.assert_array_equal(tints[1], plan.maps.hematoxylin_tint)
    assert (tints[0] > tints[1]).any()


def test_stain_depends_on_the_seed_alone(written):
    colors = [sample_stain(stream_of(seed, "stain")) for seed in (1, 1, 2)]
    assert colors[0] == colors[1] != colors[2]
    means = [read_level(written[label][0], 2).reshape(-1, 3).mean(0) for label in written]
    assert np.ptp(means, axis=0).max() < 0.6


def test_labels_come_in_equal_shares_and_are_independent_of_stain():
    spec = CohortSpec(num_slides=300)
    labels = slide_labels(spec, 4)
    assert {labels.count(label) for label in set(labels)} == {100}
    seeds = np.random.default_rng([4, 2]).integers(0, 2**31, 300)
    strength = np.array([sum(sample_stain(stream_of(int(s), "stain")).eosin) for s in seeds])
    codes = np.array([spec.slide.classes.index(label) for label in labels])
    between = np.var([strength[codes == code].mean() for code in range(3)])
    expected = strength.var() / 100
    assert between < 5 * expected


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_cohort_has_one_row_per_slide(tmp_path, workers):
    small = small_spec(size_px=(700, 600), num_foci=(0, 0), num_decoys=(0, 0))
    spec = CohortSpec(num_slides=4, slides_per_case=2, slide=small)
    done = []
    table = write_cohort(tmp_path, spec, 5, workers=workers, progress=lambda *at: done.append(at))
    lines = table.read_text().splitlines()
    assert lines[0] == "case_id,slide_id,label,path,mpp,truth_path"
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    rows = [line.split(",") for line in lines[1:]]
    assert [row[0] for row in rows] == ["case_000", "case_000", "case_001", "case_001"]
    assert rows[0][2] == rows[1][2] != rows[2][2] == rows[3][2]
    for row in rows:
        assert (tmp_path / row[3]).is_file()
        assert (tmp_path / row[5]).is_file()
        assert float(row[4]) == 2.0
