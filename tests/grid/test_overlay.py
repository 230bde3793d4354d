"""Pictures of masks and grids: what is kept is in full colour, what needs attention is framed."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil import open_slide
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.grid.contact_sheet import contact_sheet
from zoommil.grid.overlay import caption_of, draw_overlay
from zoommil.tissue import SlideFrame, TissueMask, find_tissue

PINK, RED = (200, 110, 170), (200, 30, 30)


@pytest.fixture(scope="module")
def pictured():
    """A slide of two cells at 1.25x, tissue in the left one; its mask and pyramid."""
    pixels = np.full((1024, 2048, 3), 243, np.uint8)
    pixels[200:800, 200:800] = PINK
    slide = open_slide(pixels, mpp=2.0)
    tissue = find_tissue(slide)
    return slide, tissue, PatchPyramid.build(slide, tissue, GridSpec(magnifications=(1.25, 5)))


def test_what_is_kept_keeps_its_colours_and_the_rest_is_washed(pictured):
    slide, tissue, pyramid = pictured
    picture = draw_overlay(slide, tissue, pyramid, 400)
    assert picture.shape == (200, 400, 3)
    assert np.abs(picture[100, 100].astype(int) - PINK).max() <= 2
    assert np.abs(picture[100, 300].astype(int) - 243).max() > 4
    green = (picture[:, :, 1].astype(int) - picture[:, :, 0]) > 60
    assert green.sum() > 200  # the outline
    assert green[:, :180].sum() == green.sum()


def test_without_a_thumbnail_the_slide_is_read(pictured):
    slide, tissue, pyramid = pictured
    bare = TissueMask(tissue.mask, tissue.origin, tissue.downsample, tissue.frame, "image")
    a, b = (draw_overlay(slide, mask, pyramid, 400).astype(int) for mask in (tissue, bare))
    assert np.abs(a - b).mean() < 2


def test_masks_and_bounds_hang_in_the_right_place():
    pixels = np.full((1000, 1200, 3), 243, np.uint8)
    slide = open_slide(pixels, mpp=2.0)
    slide.bounds = (200, 100, 800, 800)
    mask = np.zeros((250, 300), bool)
    mask[100:150, 100:150] = True  # level 0: x 400-600, y 400-600; in the bounds 200-400, 300-500
    tissue = TissueMask(mask, (0.0, 0.0), 4.0, SlideFrame.of(slide), "image")
    pyramid = PatchPyramid.build(slide, tissue, GridSpec(magnifications=(1.25,)))
    picture = draw_overlay(slide, tissue, pyramid, 400).astype(int)
    rows, columns = np.nonzero(picture[:, :, 1] - picture[:, :, 0] > 60)
    assert rows.min() == pytest.approx(150, abs=3)
    assert rows.max() == pytest.approx(250, abs=3)
    assert columns.min() == pytest.approx(100, abs=3)
    assert columns.max() == pytest.approx(200, abs=3)


@pytest.mark.parametrize("size", [(30, 2000), (2000, 30), (3, 5)])
def test_slides_of_any_shape_can_be_drawn(size):
    slide = open_slide(np.full((*size, 3), 90, np.uint8), mpp=8.0)
    tissue = TissueMask.everything(slide)
    pyramid = PatchPyramid.build(slide, tissue, GridSpec(magnifications=(1.25,), patch_px=16))
    picture = draw_overlay(slide, tissue, pyramid, 200)
    assert picture.shape[0] <= 300
    assert picture.shape[1] <= 200


def test_h19_a_slide_without_tissue_is_framed_and_captioned():
    slide = open_slide(np.full((1024, 1024, 3), 243, np.uint8), mpp=2.0)
    tissue = find_tissue(slide)
    pyramid = PatchPyramid.build(slide, tissue, GridSpec(magnifications=(1.25, 5)))
    picture = draw_overlay(slide, tissue, pyramid, 200)
    assert tuple(picture[0, 100]) == RED
    caption = caption_of(tissue, pyramid)
    assert "no tissue was found" in caption
    assert "all 1 patches are used" in caption


def test_captions_count_what_will_be_encoded(pictured):
    _, tissue, pyramid = pictured
    lines = caption_of(tissue, pyramid).splitlines()
    assert lines[0].startswith("otsu: 1.")
    assert lines[1] == "patches: 1.25x 1, 5x 16"


def test_the_sheet_holds_every_picture_unchanged():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 200, (40 + 10 * n, 120, 3)).astype(np.uint8) for n in range(5)]
    entries = [
        (f"slide_{n}", image, "a caption of some words\nand lines")
        for n, image in enumerate(images)
    ]
    sheet = contact_sheet(entries, num_columns=2)
    for image in images:
        assert _contains(sheet, image)
    assert sheet.shape[1] == 12 + 2 * (120 + 12)


def test_long_names_stay_inside_their_column():
    image = np.zeros((20, 150, 3), np.uint8)
    name = "a_name_without_any_space_that_is_much_longer_than_its_picture_is_wide"
    sheet = contact_sheet([(name, image, "x" * 80), ("b", image, "")], num_columns=2)
    gap = sheet[:, 12 + 150 + 2 : 12 + 150 + 10]
    assert (gap == 255).all()


def test_a_sheet_of_nothing_is_blank():
    assert (contact_sheet([]) == 255).all()


def _contains(sheet: np.ndarray, image: np.ndarray) -> bool:
    rows, columns = image.shape[:2]
    starts = np.argwhere((sheet == image[0, 0]).all(axis=2))
    return any(
        np.array_equal(sheet[row : row + rows, column : column + columns], image)
        for row, column in starts
    )
