"""What others read: GeoJSON in both frames, tables of patches, the zoom path, the best patches."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import geopandas
import numpy as np
import pytest
import shapely
from PIL import Image
from shapely.geometry import shape

from zoommil.errors import ConfigError, PredictionError
from zoommil.inference.geojson import feature_collection, path_collection, zoom_path
from zoommil.inference.prediction import Prediction
from zoommil.reports.frame import frame_of_slide
from zoommil.reports.patches import COLUMNS, draw_top_patches, read_top_patches, write_patches
from zoommil.reports.truth import read_regions
from zoommil.reports.zoom_path import draw_zoom_path

SVG = "{http://www.w3.org/2000/svg}"


def boxes_read_back(path: Path) -> np.ndarray:
    """x, y, width, height of every polygon of a file, by geopandas."""
    bounds = geopandas.read_file(path).geometry.bounds.to_numpy()
    return np.concatenate([bounds[:, :2], bounds[:, 2:] - bounds[:, :2]], axis=1)


def test_geopandas_reads_every_step_where_it_was(prediction, tmp_path):
    for position, step in enumerate(prediction.steps):
        path = tmp_path / f"{position}.geojson"
        path.write_text(json.dumps(feature_collection(prediction, "slide", [position])))
        np.testing.assert_allclose(boxes_read_back(path), step.boxes, atol=0.01)


def test_bounds_are_subtracted_for_qupath(slide, prediction, tmp_path):
    found = {}
    for frame in ("slide", "bounds"):
        path = tmp_path / f"{frame}.geojson"
        prediction.write_geojson(path, frame)
        found[frame] = boxes_read_back(path)
    x, y, _, _ = slide.bounds
    np.testing.assert_allclose(
        found["slide"] - found["bounds"], [[x, y, 0, 0]] * len(found["slide"])
    )


@pytest.mark.parametrize("frame", ["slide", "bounds"])
def test_geojson_agrees_with_the_truth_within_one_pixel_of_the_thumbnail(
    slide, truth, pointed, frame
):
    """The patches that attention calls diseased, read back by shapely, are the lesions."""
    features = feature_collection(pointed, frame)["features"]
    highest = max(one["properties"]["measurements"]["Attention"] for one in features)
    diseased = shapely.union_all(
        [
            shape(one["geometry"])
            for one in features
            if one["properties"]["measurements"]["Attention"] > highest / 2
        ]
    )
    if frame == "bounds":
        diseased = shapely.affinity.translate(diseased, *slide.bounds[:2])
    lesions = shapely.union_all([region.polygon for region in truth])
    inside = shapely.box(*slide.bounds[:2], *np.add(slide.bounds[:2], slide.bounds[2:]))
    pixel = frame_of_slide(slide, 200).downsample
    assert shapely.hausdorff_distance(diseased, lesions & inside, densify=0.05) < pixel


def test_the_path_is_what_was_zoomed_into_and_the_last_steps_best(prediction):
    path = zoom_path(prediction, num_top=5)
    for step, patches in zip(prediction.steps, path, strict=True):
        if step.selected is None:
            assert len(patches) == 5
            assert step.attention[patches].min() >= np.sort(step.attention)[-5]
        else:
            assert sorted(step.rows[patches]) == step.selected.tolist()
        assert (np.diff(step.attention[patches]) <= 0).all()
    features = path_collection(prediction, "slide", num_top=5)["features"]
    assert len(features) == 4 + 4 + 5
    assert {one["properties"]["objectType"] for one in features} == {"annotation"}
    assert len({one["id"] for one in features}) == len(features)


def test_every_child_on_the_path_lies_in_a_patch_that_was_zoomed_into(prediction):
    tiles = [feature_collection(prediction, "slide", [m])["features"] for m in range(3)]
    for coarse, fine in itertools.pairwise(tiles):
        zoomed = [
            shape(one["geometry"])
            for one in coarse
            if one["properties"]["classification"]["name"].startswith("Zoomed")
        ]
        area = shapely.union_all(zoomed).buffer(0.01)
        assert all(area.contains(shape(one["geometry"])) for one in fine)


def test_the_table_has_every_patch_with_its_values(prediction, tmp_path):
    write_patches(tmp_path / "patches.csv", prediction)
    with (tmp_path / "patches.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == sum(len(step.rows) for step in prediction.steps)
    for position, step in enumerate(prediction.steps):
        mine = [row for row in rows if row["step"] == str(position)]
        boxes = [[float(row[name]) for name in ("x", "y", "width", "height")] for row in mine]
        np.testing.assert_allclose(boxes, step.boxes, atol=1e-3)
        assert [np.float32(row["attention"]) for row in mine] == step.attention.tolist()
        assert sum(int(row["selected"]) for row in mine) == len(
            step.selected if step.selected is not None else ()
        )
        assert all((row["score"] == "") == (step.scores is None) for row in mine)


def test_the_zoom_path_is_a_picture_that_stands_alone(slide, truth, prediction):
    text = draw_zoom_path(prediction, slide, truth=truth, num_top=5)
    root = ElementTree.fromstring(text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    (image,) = root.iter(f"{SVG}image")
    assert image.get("href", "").startswith("data:image/jpeg;base64,")
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    assert [len(groups[f"step-{m}"]) for m in range(3)] == [4, 4, 5]
    frame = frame_of_slide(slide, 1000)
    drawn = [float(groups["step-2"][0].get(name, "")) for name in ("x", "y", "width", "height")]
    best = prediction.steps[2].boxes[[int(np.argmax(prediction.steps[2].attention))]]
    np.testing.assert_allclose(drawn, frame.boxes_to_picture(best)[0], atol=0.01)
    assert len(groups["truth"]) == len(truth)


def test_names_with_angle_brackets_do_not_break_the_picture(slide, prediction):
    renamed = Prediction(**{**vars(prediction), "slide_id": 'a<b>&"c'})
    root = ElementTree.fromstring(draw_zoom_path(renamed, slide))
    assert 'a<b>&"c' in root.get("aria-label", "")


def test_the_best_patches_are_the_slides_pixels(slide, prediction, tmp_path):
    best = read_top_patches(prediction, slide, num_patches=6)
    assert [one.attention for one in best] == sorted((o.attention for o in best), reverse=True)
    x, y, side, _ = best[0].box
    np.testing.assert_array_equal(best[0].pixels, slide.read(x, y, int(side), int(side), slide.mpp))
    sheet = draw_top_patches(best, num_columns=3)
    Image.fromarray(sheet).save(tmp_path / "sheet.png")
    assert sheet.shape[1] > 3 * 50
    assert "attention" in best[0].caption


def test_regions_are_read_as_qupath_writes_them(tmp_path, slide_path):
    square = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]
    hole = [[2, 2], [4, 2], [4, 4], [2, 4], [2, 2]]
    multi = {
        "type": "MultiPolygon",
        "coordinates": [[square, hole], [[[20, 0], [30, 0], [30, 9], [20, 0]]]],
    }
    feature = {
        "type": "Feature",
        "geometry": multi,
        "properties": {"classification": {"name": "Tumor"}},
    }
    for content in (feature, [feature], {"type": "FeatureCollection", "features": [feature]}):
        path = tmp_path / "a.geojson"
        path.write_text(json.dumps(content))
        regions = read_regions(path, corner=(100, 0))
        assert [region.name for region in regions] == ["Tumor", "Tumor"]
        assert [len(region.rings) for region in regions] == [2, 1]
        assert regions[0].polygon.bounds == (100, 0, 110, 10)
        assert read_regions(path, names=("Stroma",)) == ()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"type": "Feature"}'])
def test_what_is_no_geojson_is_refused(tmp_path, text):
    path = tmp_path / "a.geojson"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"a.geojson' is no file of annotated areas"):
        read_regions(path)


def test_without_places_nothing_is_drawn(prediction, slide):
    bare = [type(step)(**{**vars(step), "boxes": None}) for step in prediction.steps]
    nowhere = Prediction(**{**vars(prediction), "steps": tuple(bare)})
    for draw in (
        lambda: draw_zoom_path(nowhere, slide),
        lambda: feature_collection(nowhere, "slide"),
        lambda: read_top_patches(nowhere, slide),
    ):
        with pytest.raises(PredictionError, match="does not say where its patches lie"):
            draw()
