"""Masks that other people drew, and our own read back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from shapely.geometry import shape

from zoommil import open_slide
from zoommil.errors import TissueError
from zoommil.tissue import TissueSpec, find_tissue, load_mask
from zoommil.tissue.mask import SlideFrame, TissueMask
from zoommil.tissue.outlines import outlines_of, rasterise


@pytest.fixture
def slide():
    """A slide of 800 x 600 pixels at 2 um: 8 um per mask pixel is 4 pixels."""
    return open_slide(np.full((600, 800, 3), 243, np.uint8), mpp=2.0)


@pytest.fixture
def bounded(slide):
    """The same with bounds, as scanners that leave a margin state them."""
    slide.bounds = (100, 40, 400, 500)
    return slide


def geojson(path, *geometries, **properties):
    features = [
        {"type": "Feature", "geometry": geometry, "properties": properties}
        for geometry in geometries
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def box(x, y, width, height):
    ring = [[x, y], [x + width, y], [x + width, y + height], [x, y + height], [x, y]]
    return {"type": "Polygon", "coordinates": [ring]}


@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))))
@settings(max_examples=150, deadline=None)
def test_outlines_are_valid_polygons_and_come_back_exactly(mask):
    outlines = outlines_of(mask)
    assert all(polygon.is_valid for polygon in outlines)
    assert sum(polygon.area for polygon in outlines) == mask.sum()
    np.testing.assert_array_equal(rasterise(outlines, (0.0, 0.0), 1.0, mask.shape), mask)


def test_a_hole_is_a_hole():
    mask = np.ones((5, 5), dtype=bool)
    mask[2, 2] = False
    (polygon,) = outlines_of(mask)
    assert len(polygon.interiors) == 1
    assert polygon.area == 24


def test_rasterising_takes_pixels_whose_centre_is_inside():
    triangle = shapely.Polygon([(0, 0), (40, 0), (0, 40)])
    mask = rasterise([triangle], (0.0, 0.0), 10.0, (4, 4))
    assert mask.astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_polygons_past_the_edge_are_cut():
    mask = rasterise([shapely.box(-50, -50, 15, 500)], (0.0, 0.0), 10.0, (3, 3))
    assert mask.tolist() == [[True, True, False]] * 3 or mask.tolist() == [[True, False, False]] * 3
    assert not rasterise([shapely.box(90, 90, 99, 99)], (0.0, 0.0), 10.0, (3, 3)).any()


@pytest.fixture
def found(drawing):
    """A slide with a piece of tissue that has a hole, and its mask."""
    picture = drawing()
    picture.piece((200, 150), (140, 110), (200, 110, 170))
    picture.pixels[130:200, 180:250] = 243
    slide = open_slide(picture.image(), mpp=8.0)
    return slide, find_tissue(slide)


def test_saved_masks_come_back_exactly(found, tmp_path):
    slide, tissue = found
    path = tissue.save(tmp_path)
    assert path == tmp_path / "contours_geojson" / "array.geojson"
    for saved in (path, tmp_path / "masks" / "array.png"):
        again = load_mask(saved, slide)
        np.testing.assert_array_equal(again.mask, tissue.mask)
        assert again.origin == tissue.origin
        assert again.downsample == tissue.downsample
    picture = np.asarray(Image.open(tmp_path / "contours" / "array.png"))
    assert picture.shape == tissue.thumbnail.shape
    assert (picture != tissue.thumbnail).any()
    assert (tmp_path / "thumbnails" / "array.jpg").is_file()


def test_an_empty_mask_comes_back_empty(slide, tmp_path):
    tissue = find_tissue(slide)
    assert tissue.is_empty
    path = tissue.save(tmp_path)
    for saved in (path, tmp_path / "masks" / "array.png"):
        again = load_mask(saved, slide)
        assert again.is_empty
        assert "empty" in again.warnings[0]


def test_geojson_is_what_qupath_expects(found):
    _, tissue = found
    content = json.loads(json.dumps(tissue.to_geojson()))
    assert content["type"] == "FeatureCollection"
    (feature,) = content["features"]
    assert feature["type"] == "Feature"
    assert len(feature["id"]) == 36
    properties = feature["properties"]
    assert properties["objectType"] == "annotation"
    assert properties["classification"]["name"] == "Tissue"
    assert len(properties["classification"]["color"]) == 3
    assert properties["isLocked"] is False
    assert properties["measurements"]["Area um^2"] == pytest.approx(tissue.area_um2, abs=0.1)
    polygon = shape(feature["geometry"])
    assert polygon.is_valid
    assert len(polygon.interiors) == 1
    assert polygon.area * 64 == pytest.approx(tissue.area_um2)
    assert tissue.to_geojson() == content  # no times, no random ids


def test_bounds_can_be_subtracted_and_are_added_back(bounded, tmp_path):
    pixels = np.zeros((125, 100), dtype=bool)
    pixels[10:30, 20:50] = True
    tissue = TissueMask(pixels, (100.0, 40.0), 4.0, SlideFrame.of(bounded), "otsu")
    whole, cropped = tissue.to_geojson(), tissue.to_geojson(frame="bounds")
    corners = [
        np.min(content["features"][0]["geometry"]["coordinates"][0], axis=0)
        for content in (whole, cropped)
    ]
    np.testing.assert_array_equal(corners[0] - corners[1], [100, 40])
    for name, content in (("whole", whole), ("cropped", cropped)):
        path = tmp_path / f"{name}.geojson"
        path.write_text(json.dumps(content))
        np.testing.assert_array_equal(load_mask(path, bounded).mask, pixels)
        del content["zoommil_mask"]  # as QuPath hands it back
        path.write_text(json.dumps(content))
        spec = TissueSpec(mask_frame="bounds" if name == "cropped" else "slide")
        np.testing.assert_array_equal(load_mask(path, bounded, spec=spec).mask, pixels)


def test_foreign_geojson_on_a_slide_with_bounds_says_what_it_assumed(bounded, tmp_path):
    path = geojson(tmp_path / "a.geojson", box(140, 80, 80, 80))
    mask = load_mask(path, bounded)
    assert mask.mask[10:30, 10:30].all()
    assert mask.mask.sum() == 400
    assert "mask_frame = 'bounds'" in mask.warnings[0]


def test_polygons_multipolygons_collections_and_lists(slide, tmp_path):
    hole = box(0, 0, 400, 400)
    hole["coordinates"].append(box(100, 100, 200, 200)["coordinates"][0])
    path = geojson(tmp_path / "hole.geojson", hole)
    mask = load_mask(path, slide)
    assert mask.mask.sum() == 100**2 - 50**2
    assert mask.fraction(np.array([[100.0, 100, 200, 200]])) == 0
    multi = {
        "type": "MultiPolygon",
        "coordinates": [box(0, 0, 80, 80)["coordinates"], box(400, 0, 80, 80)["coordinates"]],
    }
    assert load_mask(geojson(tmp_path / "m.geojson", multi), slide).mask.sum() == 2 * 400
    both = {
        "type": "GeometryCollection",
        "geometries": [multi, {"type": "Point", "coordinates": [1, 1]}],
    }
    assert load_mask(geojson(tmp_path / "c.geojson", both), slide).mask.sum() == 2 * 400
    for name, content in (
        ("list", [{"type": "Feature", "geometry": multi, "properties": {}}]),
        ("feature", {"type": "Feature", "geometry": multi, "properties": None}),
        ("geometry", multi),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content))
        assert load_mask(path, slide).mask.sum() == 2 * 400


def test_overlapping_polygons_are_joined_not_cancelled(slide, tmp_path):
    path = geojson(tmp_path / "a.geojson", box(0, 0, 80, 80), box(40, 0, 80, 80))
    assert load_mask(path, slide).mask.sum() == 30 * 20


def test_areas_classed_ignore_are_left_out(slide, tmp_path):
    path = geojson(tmp_path / "a.geojson", box(0, 0, 80, 80), classification={"name": "Ignore*"})
    assert load_mask(path, slide).is_empty


def test_a_qupath_export(real_data):
    path = real_data / "annotations" / "qupath05.geojson"
    slide = open_slide(np.full((8000, 11_000, 3), 243, np.uint8), mpp=0.5)
    mask = load_mask(path, slide)
    polygons = [shape(f["geometry"]) for f in json.loads(path.read_text())["features"]]
    area = shapely.union_all(polygons).area
    assert mask.mask.sum() * 16**2 == pytest.approx(area, rel=0.02)
    assert mask.method == "geojson"
    assert len(mask.source_hash) == 64
    small = open_slide(np.full((600, 800, 3), 243, np.uint8), mpp=0.5)
    with pytest.raises(TissueError, match="outside 'array' of 800 x 600"):
        load_mask(path, small)


def test_polygons_partly_outside_are_said(slide, tmp_path):
    path = geojson(tmp_path / "a.geojson", box(700, 0, 200, 100))
    mask = load_mask(path, slide)
    assert "50% of the given mask" in mask.warnings[0]
    assert mask.mask.sum() == 25 * 25


@pytest.mark.parametrize("size", [(800, 600), (200, 150), (199, 151), (67, 50), (8, 6)])
def test_images_of_any_size_cover_the_slide(slide, tmp_path, size):
    width, height = size
    pixels = np.zeros((height, width), np.uint8)
    pixels[: height // 2, : width // 2] = 1
    path = tmp_path / "m.png"
    Image.fromarray(pixels).save(path)
    mask = load_mask(path, slide)
    boxes = np.array([[0.0, 0, 350, 250], [420, 0, 380, 600], [0, 320, 800, 280]])
    np.testing.assert_allclose(mask.fraction(boxes), [1, 0, 0], atol=0.02)


def test_images_may_cover_the_bounds_instead(bounded, tmp_path):
    pixels = np.zeros((50, 40), np.uint8)
    pixels[:25] = 255
    path = tmp_path / "m.png"
    Image.fromarray(pixels).save(path)
    mask = load_mask(path, bounded)
    assert mask.origin == (100, 40)
    assert mask.fraction(np.array([[100.0, 40, 400, 250], [100, 290, 400, 250]])).tolist() == [1, 0]
    with pytest.raises(TissueError, match="shape"):
        load_mask(path, bounded, spec=TissueSpec(mask_frame="slide"))


def test_an_image_of_another_shape_is_refused(slide, tmp_path):
    path = tmp_path / "m.png"
    Image.fromarray(np.ones((300, 300), np.uint8)).save(path)
    with pytest.raises(TissueError, match="300 x 300 has not the shape of the slide's 800 x 600"):
        load_mask(path, slide)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16"])
def test_any_kind_of_image_is_nonzero_where_tissue_is(slide, tmp_path, mode):
    pixels = np.zeros((60, 80), np.uint8)
    pixels[10:20, 10:30] = 3
    if mode == "I;16":
        image = Image.fromarray(pixels.astype(np.uint16))
    elif mode == "1":
        image = Image.fromarray(pixels > 0)
    elif mode == "P":
        image = Image.fromarray(pixels)
        image.putpalette([255, 255, 255, 9, 9, 9, 5, 5, 5, 200, 0, 0])
    else:
        image = Image.fromarray(pixels).convert(mode)
    path = tmp_path / "m.png"
    image.save(path)
    assert load_mask(path, slide).mask.sum() == 200


def test_ringing_of_jpeg_masks_is_not_tissue(slide, tmp_path):
    pixels = np.zeros((60, 80), np.uint8)
    pixels[13:29, 11:37] = 255
    path = tmp_path / "m.jpg"
    Image.fromarray(pixels).save(path, quality=50)
    assert load_mask(path, slide).mask.sum() == 16 * 26


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"not an image", "cannot be read as an image"),
        ("a.geojson", b"{", "not GeoJSON"),
        ("a.geojson", b"[1, 2]", "not GeoJSON"),
        ("a.geojson", b'{"type": "FeatureCollection"}', "not GeoJSON"),
        ("a.geojson", b'{"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}', "not GeoJSON"),
        ("a.geojson", b'{"type": "Point", "coordinates": [1, 1]}', "no area"),
        (
            "a.geojson",
            b'{"type": "FeatureCollection", "features": [], "zoommil_mask": 3}',
            "damaged",
        ),
        ("a.geojson", b"\xff\xfe\x00", "not GeoJSON"),
    ],
)
def test_files_that_are_no_masks_are_one_line(slide, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TissueError, match=message) as caught:
        load_mask(path, slide)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_missing_file_and_a_directory_are_errors(slide, tmp_path):
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(TissueError, match="is not a file"):
            load_mask(path, slide)


def test_another_slides_saved_mask_is_refused(found, slide, tmp_path):
    _, tissue = found
    path = tissue.save(tmp_path)
    for saved in (path, tmp_path / "masks" / "array.png"):
        with pytest.raises(TissueError, match="made on a slide of 400 x 300"):
            load_mask(saved, slide)
