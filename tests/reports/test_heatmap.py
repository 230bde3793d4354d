"""Heatmaps: in the right place, in the right order, whatever the slide's size."""

from __future__ import annotations

import time

import numpy as np
import pytest
import shapely
import tifffile
from picture_cases import covered_by, mask_of, prediction_of

from zoommil.errors import PredictionError
from zoommil.machine import resident_memory_bytes
from zoommil.reports.colours import TRUTH, colour_table
from zoommil.reports.frame import frame_of_bounds, frame_of_slide
from zoommil.reports.heatmap import HeatmapSpec, draw_heatmap, draw_overlay, draw_steps
from zoommil.reports.ome import write_ome
from zoommil.reports.values import compose, pixel_edges
from zoommil.slides.levels import stored_level
from zoommil.slides.resolution import Resolution
from zoommil.slides.slide import Slide, SlideContent


def edge_distance(one: np.ndarray, other: np.ndarray) -> float:
    """How many pixels the outlines of two masks are apart at most."""
    from scipy.ndimage import binary_erosion, distance_transform_edt

    edges = [mask & ~binary_erosion(mask, border_value=1) for mask in (one, other)]
    far = [distance_transform_edt(~b)[a].max() for a, b in (edges, edges[::-1])]
    return float(max(far))


def test_the_overlay_lies_on_the_lesions_within_one_pixel(slide, truth, pointed):
    """Where the patches are as small as pixels, what is bright is what the truth says."""
    frame = frame_of_slide(slide, longest_px=slide.bounds[2] // 8)
    assert frame.downsample == pytest.approx(8, abs=0.05)
    found = compose(pointed, frame, scale="raw")
    bright = found.values > 0.5 * np.nanmax(found.values)
    wanted = mask_of([frame.to_picture(region.rings[0]) for region in truth], *bright.shape)
    assert wanted.sum() > 500
    assert edge_distance(bright, wanted) <= np.sqrt(2) + 1e-6


def test_patches_are_painted_where_the_frame_says(slide, prediction):
    frame = frame_of_slide(slide, 300)
    found = compose(prediction, frame)
    for position, step in enumerate(prediction.steps):
        rows, columns = np.nonzero(found.steps == position)
        assert len(rows), "every step is to be seen"
        boxes = frame.boxes_to_picture(step.boxes)
        low, high = boxes[:, :2].min(axis=0), (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        if position:
            painted = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert np.abs(painted - np.concatenate([low, high])).max() <= 1


def test_fine_steps_lie_over_coarse_ones(slide, prediction):
    frame = frame_of_slide(slide, 425)
    alone = [compose(prediction, frame, steps=[m]) for m in range(3)]
    together = compose(prediction, frame)
    expected = np.full_like(together.values, np.nan)
    for one in alone:
        expected = np.where(np.isnan(one.values), expected, one.values)
    np.testing.assert_array_equal(together.values, expected)
    assert [int((one.steps >= 0).sum()) for one in alone] == sorted(
        [int((one.steps >= 0).sum()) for one in alone], reverse=True
    )


def test_raw_values_are_the_predictions_own_and_ranks_go_from_0_to_1(slide, prediction):
    frame = frame_of_slide(slide, 425)
    raw = compose(prediction, frame, scale="raw", steps=[2])
    stored = np.unique(prediction.steps[2].attention)
    assert np.isin(np.unique(raw.values[raw.steps == 2]), stored).all()
    assert raw.limits == (0.0, pytest.approx(float(stored.max())))
    rank = compose(prediction, frame, scale="rank", steps=[0])
    assert np.nanmin(rank.values) < 0.5
    assert np.nanmax(rank.values) == 1
    order = np.argsort(raw.values[raw.steps == 2])
    ranks = compose(prediction, frame, steps=[2]).values[raw.steps == 2]
    assert (np.diff(ranks[order]) >= 0).all()


def test_scores_are_of_steps_that_were_zoomed_from(slide, prediction):
    frame = frame_of_slide(slide, 425)
    assert set(np.unique(compose(prediction, frame, "score").steps)) <= {-1, 0, 1}
    with pytest.raises(PredictionError, match="no score to draw"):
        compose(prediction, frame, "score", steps=[2])


def test_only_what_was_seen_is_coloured(slide, prediction):
    plain, frame = draw_overlay(prediction, slide, HeatmapSpec(opacity=0, outlines=False))
    drawn, _ = draw_overlay(prediction, slide, HeatmapSpec(outlines=False))
    is_seen = compose(prediction, frame).steps >= 0
    assert drawn.shape == plain.shape == (frame.height, frame.width, 3)
    np.testing.assert_array_equal(drawn[~is_seen], plain[~is_seen])
    assert (drawn[is_seen] != plain[is_seen]).any(axis=1).mean() > 0.9


def test_annotations_are_outlined_where_they_are(slide, truth, prediction):
    spec = HeatmapSpec(longest_px=850, outlines=False)
    without, frame = draw_overlay(prediction, slide, spec)
    outlined, _ = draw_overlay(prediction, slide, spec, truth=truth)
    is_line = (np.abs(outlined.astype(int) - TRUTH).max(axis=2) < 40) & (without != outlined).any(2)
    rings = [shapely.LinearRing(frame.to_picture(region.rings[0])) for region in truth]
    rows, columns = np.nonzero(is_line)
    assert len(rows) > 300
    points = shapely.points(columns + 0.5, rows + 0.5)
    distance = np.min([shapely.distance(ring, points) for ring in rings], axis=0)
    assert distance.max() <= 2.1  # a line two pixels wide
    assert np.median(distance) <= 1


def test_the_legend_leaves_the_picture_as_it_is(slide, truth, prediction):
    overlay, _ = draw_overlay(prediction, slide, truth=truth)
    figure = draw_heatmap(prediction, slide, truth=truth)
    height, width = overlay.shape[:2]
    tops = range(figure.shape[0] - height)
    left = (figure.shape[1] - width) // 2
    assert any(
        np.array_equal(figure[top : top + height, left : left + width], overlay) for top in tops
    )
    bar = colour_table()[[0, 128, 255]]
    below = figure[-(figure.shape[0] - height) // 2 :].reshape(-1, 3)
    for colour in bar:
        assert (np.abs(below.astype(int) - colour).max(axis=1) <= 3).any()


def test_steps_stand_side_by_side(slide, prediction):
    one = draw_heatmap(prediction, slide, HeatmapSpec(longest_px=500))
    all_of_them = draw_steps(prediction, slide, HeatmapSpec(longest_px=500))
    scores = draw_steps(prediction, slide, HeatmapSpec(longest_px=500, quantity="score"))
    assert all_of_them.shape == (one.shape[0], 3 * one.shape[1], 3)
    assert scores.shape[1] == 2 * one.shape[1]


def test_ome_tiff_says_its_size_and_place(slide, prediction, tmp_path):
    picture, frame = draw_overlay(prediction, slide, HeatmapSpec(longest_px=1500))
    path = tmp_path / "a.ome.tiff"
    write_ome(path, picture, frame, "a")
    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        np.testing.assert_array_equal(series.asarray(), picture)
        sizes = [level.shape[:2] for level in series.levels]
        assert len(sizes) == 4
        assert max(sizes[-1]) <= 256
        assert all(page.is_tiled for page in file.pages)
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
        assert pixels["PhysicalSizeX"] == pytest.approx(frame.picture_mpp)
        assert pixels["Plane"]["PositionX"] == pytest.approx(slide.bounds[0] * slide.mpp)


class VastSlide(Slide):
    """A slide of 100 000 x 100 000 pixels whose blocks are made when they are asked for."""

    reader = "vast"

    @classmethod
    def can_open(cls, path):
        return False

    @classmethod
    def open(cls, source, *, mpp=None, scale="physical", cache_bytes=0):
        side = 100_000
        sizes = [(side // d, side // d) for d in (1, 4, 16)]
        levels = [stored_level(i, sizes[0], size, (256, 256)) for i, size in enumerate(sizes)]
        return cls(None, SlideContent(sizes[0], levels, {}, Resolution(0.25, "given")))

    def _read_block(self, level, column, row):
        width, height = level.block_size(column, row)
        return np.full((height, width, 3), 200 + (column + row) % 2, np.uint8)

    def _fingerprint(self):
        return "0" * 64


def test_h20_a_vast_slide_takes_under_a_second_and_200_mb(truth):
    slide = VastSlide.open(None)
    prediction = prediction_of(slide, truth, sides=(2048, 256))
    vast = prediction_of(slide, truth, sides=(512,))  # as if all of the highest step was seen
    draw_heatmap(prediction, VastSlide.open(None), HeatmapSpec(longest_px=64))
    for one in (prediction, vast):
        before, start = resident_memory_bytes(), time.process_time()
        figure = draw_heatmap(one, slide)
        assert time.process_time() - start < 3  # 0.5 s on a quiet machine
        assert resident_memory_bytes() - before < 200e6
        assert max(figure.shape[:2]) < 1500
    assert len(vast.steps[0].rows) == 196**2


def test_boxes_smaller_than_a_pixel_are_still_seen():
    frame = frame_of_bounds((0, 0, 100_000, 100_000), 0.25, 500)
    boxes = np.array([[50_000.0, 50_000.0, 64.0, 64.0]])
    assert covered_by(boxes, shapely.box(0, 0, 1e5, 1e5)) == 1
    left, top, right, bottom = pixel_edges(frame.boxes_to_picture(boxes))[0]
    assert (right - left, bottom - top) == (1, 1)
    assert (left, top) == (250, 250)
