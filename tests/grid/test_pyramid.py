"""The nesting contract, for slides of any geometry."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoommil.errors import GridError, ResolutionError
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.grid.cells import boxes_of_cells, cells_of_boxes
from zoommil.tissue import SlideFrame, TissueMask

MPPS = st.one_of(st.sampled_from([0.2265, 0.243, 0.25, 0.503]), st.floats(0.2, 0.55))
RATIO_LISTS = st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3)


def mask_of(slide, pixels: np.ndarray, downsample: float) -> TissueMask:
    """A mask of these pixels hung on the bounds' corner."""
    x, y, _, _ = slide.bounds
    return TissueMask(
        mask=np.asarray(pixels, dtype=bool),
        origin=(float(x), float(y)),
        downsample=downsample,
        frame=SlideFrame.of(slide),
        method="otsu",
    )


@st.composite
def geometries(draw):
    """Size, mpp, bounds and magnifications, the highest within the scan."""
    width, height = draw(st.integers(1, 30_001)), draw(st.integers(1, 30_001))
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    bounds = (x, y, draw(st.integers(1, width - x)), draw(st.integers(1, height - y)))
    ratios = draw(RATIO_LISTS)
    highest = draw(st.sampled_from([5.0, 10.0, 12.5]))
    magnifications = [highest]
    for ratio in ratios:
        magnifications.insert(0, magnifications[0] / ratio)
    return (width, height), draw(MPPS), bounds, tuple(magnifications)


@given(geometries(), st.sampled_from([64, 224, 256]))
@settings(max_examples=60, deadline=None)
def test_check_9_children_lie_inside_their_parents(blank_slide, geometry, patch_px):
    size, mpp, bounds, magnifications = geometry
    slide = blank_slide(size, mpp, bounds)
    spec = GridSpec(magnifications=magnifications, patch_px=patch_px)
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    for m, ratio in enumerate(pyramid.ratios):
        parents, children = pyramid.steps[m], pyramid.steps[m + 1]
        assert len(children) == len(parents) * ratio**2
        rows = np.arange(len(children))
        parent_rows = pyramid.parents(m + 1, rows)
        np.testing.assert_array_equal(parent_rows, rows // ratio**2)
        np.testing.assert_array_equal(
            children.rows_columns // ratio, parents.rows_columns[parent_rows]
        )
        outer = parents.boxes[parent_rows]
        slack = 1e-9 * max(size)
        assert (children.boxes[:, :2] >= outer[:, :2] - slack).all()
        ends = children.boxes[:, :2] + children.boxes[:, 2:]
        assert (ends <= outer[:, :2] + outer[:, 2:] + slack).all()
        np.testing.assert_allclose(children.side * ratio, parents.side, rtol=1e-12)


@given(geometries())
@settings(max_examples=40, deadline=None)
def test_the_first_step_covers_the_bounds_and_no_more(blank_slide, geometry):
    size, mpp, bounds, magnifications = geometry
    slide = blank_slide(size, mpp, bounds)
    pyramid = PatchPyramid.build(
        slide, TissueMask.everything(slide), GridSpec(magnifications=magnifications)
    )
    boxes, (x, y, width, height) = pyramid.steps[0].boxes, bounds
    assert boxes[:, 0].min() == x
    assert boxes[:, 1].min() == y
    assert (boxes[:, :2] < [x + width, y + height]).all()
    ends = (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
    assert (ends >= np.array([x + width, y + height]) - 1e-5).all()
    assert len(boxes) == np.prod(pyramid.grid_shape)


@given(geometries(), st.integers(0, 2**31), st.sampled_from([None, 0.2]))
@settings(max_examples=40, deadline=None)
def test_check_9_leaving_out_a_step_is_building_without_it(
    blank_slide, geometry, seed, child_tissue
):
    size, mpp, bounds, _ = geometry
    slide = blank_slide(size, mpp, bounds)
    pixels = np.random.default_rng(seed).random((9, 11)) < 0.4
    tissue = mask_of(slide, pixels, max(bounds[2:]) / 10)
    options = {"patch_px": 128, "child_tissue": child_tissue}
    spec = GridSpec(magnifications=(1.25, 2.5, 5, 10), **options)
    whole = PatchPyramid.build(slide, tissue, spec)
    for m in (1, 2, 3):
        rest = tuple(value for i, value in enumerate(spec.magnifications) if i != m)
        built = PatchPyramid.build(slide, tissue, GridSpec(magnifications=rest, **options))
        for left in (whole.without(m), whole.select(rest)):
            assert left.spec == built.spec
            assert left.ratios == built.ratios
            for a, b in zip(left.steps, built.steps, strict=True):
                np.testing.assert_array_equal(a.boxes, b.boxes)
                np.testing.assert_array_equal(a.rows_columns, b.rows_columns)
                np.testing.assert_array_equal(a.valid, b.valid)


def test_steps_that_do_not_nest_cannot_be_left_out(blank_slide):
    slide = blank_slide((9000, 9000), 0.25)
    tissue = TissueMask.everything(slide)
    pyramid = PatchPyramid.build(slide, tissue, GridSpec(magnifications=(1.25, 3.75, 7.5)))
    with pytest.raises(GridError, match="powers of two"):
        pyramid.without(1)
    with pytest.raises(GridError, match="first one decides"):
        pyramid.without(0)
    with pytest.raises(GridError, match="not in this pyramid"):
        pyramid.select((1.25, 5))
    assert pyramid.without(2).ratios == (3,)


def test_children_and_parents_are_blocks(blank_slide):
    slide = blank_slide((9000, 9000), 0.25)
    spec = GridSpec(magnifications=(2.5, 5, 20))
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    assert pyramid.children(0, np.array([3, 1])).tolist() == [12, 13, 14, 15, 4, 5, 6, 7]
    assert pyramid.children(1, np.array([2])).tolist() == list(range(32, 48))
    assert pyramid.parents(2, np.array([47, 32, 0])).tolist() == [2, 2, 0]
    assert pyramid.children(0, np.array([], dtype=np.int64)).size == 0
    with pytest.raises(GridError, match="step 2 of 3"):
        pyramid.children(2, np.array([0]))
    with pytest.raises(GridError, match="step 0 of 3"):
        pyramid.parents(0, np.array([0]))
    with pytest.raises(GridError, match="rows"):
        pyramid.children(0, np.array([len(pyramid.steps[0])]))


@given(geometries())
@settings(max_examples=40, deadline=None)
def test_h9_cells_come_from_their_own_steps_side(blank_slide, geometry):
    size, mpp, bounds, magnifications = geometry
    slide = blank_slide(size, mpp, bounds)
    spec = GridSpec(magnifications=magnifications)
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    for step in pyramid.steps:
        rebuilt = boxes_of_cells(step.rows_columns, pyramid.origin, step.side)
        np.testing.assert_array_equal(rebuilt, step.boxes)  # bit for bit
        rounded = np.concatenate([step.coords.astype(float), step.boxes[:, 2:]], axis=1)
        found = cells_of_boxes(rounded, pyramid.origin, step.side)
        np.testing.assert_array_equal(found, step.rows_columns)
        assert np.abs(step.coords - step.boxes[:, :2]).max() <= 0.5
    low, high = pyramid.steps[0], pyramid.steps[1]
    wrong = cells_of_boxes(low.boxes, pyramid.origin, high.side)
    assert len(low) == 1 or not np.array_equal(wrong, low.rows_columns)


def test_corners_do_not_drift(blank_slide):
    slide = blank_slide((200_000, 300), 0.2265)
    spec = GridSpec(magnifications=(1.25, 2.5, 5, 10, 20))
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    for step in pyramid.steps:
        exact = step.rows_columns[:, 1] * (256 * 10 / step.magnification / 0.2265)
        np.testing.assert_allclose(step.boxes[:, 0], exact, rtol=0, atol=1e-6)


def test_kept_cells_are_those_with_tissue(blank_slide):
    slide = blank_slide((4096, 4096), 0.25)
    pixels = np.zeros((4, 4), dtype=bool)
    pixels[0, 1], pixels[2:, 2:] = True, True
    tissue = mask_of(slide, pixels, 1024.0)
    spec = GridSpec(magnifications=(2.5, 5), patch_px=256, order="row_major")  # sides 4096, 2048
    assert len(PatchPyramid.build(slide, tissue, spec).steps[0]) == 1
    spec = GridSpec(magnifications=(5,), patch_px=256, order="row_major", tissue_threshold=0.25)
    assert PatchPyramid.build(slide, tissue, spec).steps[0].rows_columns.tolist() == [
        [0, 0],
        [1, 1],
    ]
    spec = GridSpec(magnifications=(5,), patch_px=256, tissue_threshold=0.26)
    assert PatchPyramid.build(slide, tissue, spec).steps[0].rows_columns.tolist() == [[1, 1]]


def test_child_tissue_flags_children_and_keeps_blocks(blank_slide):
    slide = blank_slide((4096, 4096), 0.25)
    pixels = np.zeros((4, 4), dtype=bool)
    pixels[0, 1] = True
    tissue = mask_of(slide, pixels, 1024.0)
    spec = GridSpec(magnifications=(5, 10), patch_px=256, child_tissue=0.5)
    pyramid = PatchPyramid.build(slide, tissue, spec)
    assert pyramid.steps[0].valid.tolist() == [True]
    assert pyramid.steps[1].valid.tolist() == [False, False, True, False]  # slot of (0, 1) is 2
    assert len(pyramid.steps[1]) == 4
    whole = PatchPyramid.build(slide, tissue, GridSpec(magnifications=(5, 10)))
    np.testing.assert_array_equal(whole.steps[1].boxes, pyramid.steps[1].boxes)
    assert whole.steps[1].valid.all()


def test_child_tissue_that_nothing_reaches_is_said_and_ignored(blank_slide, caplog):
    slide = blank_slide((4096, 4096), 0.25)
    tissue = mask_of(slide, np.indices((64, 64)).sum(axis=0) % 2 == 0, 64.0)
    spec = GridSpec(magnifications=(5, 10), child_tissue=0.9)
    with caplog.at_level(logging.WARNING):
        pyramid = PatchPyramid.build(slide, tissue, spec)
    assert pyramid.steps[1].valid.all()
    assert not pyramid.fallback
    assert "child_tissue 0.9" in pyramid.warnings[0]
    assert "child_tissue 0.9" in caplog.text


def test_h19_an_empty_mask_gives_all_cells_warned_and_recorded(blank_slide, caplog):
    slide = blank_slide((5000, 3000), 0.25)
    tissue = mask_of(slide, np.zeros((10, 10)), 500.0)
    spec = GridSpec(magnifications=(5, 10), child_tissue=0.5)
    with caplog.at_level(logging.WARNING):
        pyramid = PatchPyramid.build(slide, tissue, spec)
    assert pyramid.fallback
    assert len(pyramid.steps[0]) == 3 * 2
    assert all(step.valid.all() for step in pyramid.steps)
    assert "all 6 patches are used" in pyramid.warnings[0]
    assert "all 6 patches are used" in caplog.text


@pytest.mark.parametrize("order", ["morton", "row_major"])
def test_the_order_changes_no_box(blank_slide, order):
    slide = blank_slide((20_000, 9000), 0.25)
    spec = GridSpec(magnifications=(5, 10), order=order)
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    cells = pyramid.steps[0].rows_columns
    assert len(np.unique(cells, axis=0)) == len(cells) == 10 * 5
    assert (cells[1].tolist() == [0, 1]) == (order == "row_major")


def test_a_slide_smaller_than_a_cell_has_one(blank_slide):
    slide = blank_slide((100, 50), 0.25)
    pyramid = PatchPyramid.build(
        slide, TissueMask.everything(slide), GridSpec(magnifications=(1.25, 10))
    )
    assert pyramid.num_patches == (1, 64)


def test_exact_multiples_do_not_add_a_column(blank_slide):
    for mpp in (0.25, 0.2265, 0.243, 0.503, 0.1):
        side = 256 * 8 / mpp
        slide = blank_slide((int(np.ceil(side * 3 - 1e-6)), int(side)), mpp)
        pyramid = PatchPyramid.build(
            slide, TissueMask.everything(slide), GridSpec(magnifications=(1.25,))
        )
        assert pyramid.grid_shape[0] == 1
        assert pyramid.grid_shape[1] in ((3,) if side * 3 % 1 < 1e-6 else (3, 4))


def test_magnifications_beyond_the_scan_are_refused(blank_slide):
    slide = blank_slide((5000, 5000), 0.503)
    everything = TissueMask.everything(slide)
    PatchPyramid.build(slide, everything, GridSpec(magnifications=(10, 20)))
    with pytest.raises(ResolutionError, match="10% finer"):
        PatchPyramid.build(slide, everything, GridSpec(magnifications=(10, 40)))


def test_nominal_scale_uses_the_scanners_objective(blank_slide):
    slide = blank_slide((9000, 9000), 0.2265, scale="nominal")
    spec = GridSpec(magnifications=(10, 20), scale="nominal")
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    assert [step.side for step in pyramid.steps] == [1024.0, 512.0]
    with pytest.raises(GridError, match="scale"):
        PatchPyramid.build(slide, TissueMask.everything(slide), GridSpec(magnifications=(10,)))


def test_another_slides_mask_is_refused(blank_slide):
    slide, other = blank_slide((5000, 5000), 0.25), blank_slide((5000, 5001), 0.25)
    with pytest.raises(GridError, match="mask is of a slide of 5000 x 5001"):
        PatchPyramid.build(slide, TissueMask.everything(other), GridSpec(magnifications=(10,)))


def test_grids_no_machine_can_hold_are_refused(blank_slide):
    slide = blank_slide((100_000, 100_000), 0.25)
    with pytest.raises(GridError, match="larger patches"):
        PatchPyramid.build(
            slide, TissueMask.everything(slide), GridSpec(magnifications=(40,), patch_px=1)
        )
    with pytest.raises(GridError, match="larger patches"):
        PatchPyramid.build(
            slide, TissueMask.everything(slide), GridSpec(magnifications=(5, 40), patch_px=16)
        )


def test_a_huge_slide_takes_well_under_a_second(blank_slide, rng):
    slide = blank_slide((100_000, 100_000), 0.25)
    tissue = mask_of(slide, rng.random((3125, 3125)) < 0.5, 32.0)
    spec = GridSpec(magnifications=(10, 20), child_tissue=0.1)
    start = time.process_time()
    pyramid = PatchPyramid.build(slide, tissue, spec)
    assert pyramid.num_patches == (98 * 98, 4 * 98 * 98)
    assert time.process_time() - start < 0.8
