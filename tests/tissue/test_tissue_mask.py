"""Fractions, areas, and finding tissue on slides."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoommil import open_slide
from zoommil.errors import TissueError, UnknownNameError
from zoommil.files import canonical_json
from zoommil.tissue import TissueMask, TissueSpec, find_tissue, tissue_identity
from zoommil.tissue.mask import SlideFrame
from zoommil.tissue.thumbnail import read_thumbnail

FRAME = SlideFrame("a", (10_000, 8000), (0, 0, 10_000, 8000), 0.25)


def mask_of(pixels, origin=(0.0, 0.0), downsample=10.0) -> TissueMask:
    return TissueMask(np.asarray(pixels, dtype=bool), origin, downsample, FRAME, "otsu")


@given(
    st.integers(0, 2**31),
    st.tuples(st.floats(-50, 150), st.floats(-50, 150), st.floats(0.5, 300), st.floats(0.5, 300)),
)
@settings(max_examples=150, deadline=None)
def test_fraction_is_the_area_counted_pixel_by_pixel(seed, box):
    pixels = np.random.default_rng(seed).random((7, 9)) < 0.5
    tissue = mask_of(pixels, origin=(13.5, -4.25), downsample=11.3)
    x, y, width, height = box
    area = 0.0
    for row, column in np.argwhere(pixels):
        left, top = 13.5 + column * 11.3, -4.25 + row * 11.3
        across = min(x + width, left + 11.3) - max(x, left)
        down = min(y + height, top + 11.3) - max(y, top)
        area += max(0.0, across) * max(0.0, down)
    fraction = tissue.fraction(np.array([box]))
    assert fraction == pytest.approx(area / (width * height), abs=1e-9)


def test_fraction_of_no_boxes():
    assert mask_of([[1]]).fraction(np.empty((0, 4))).shape == (0,)


def test_parts_outside_the_mask_are_not_tissue():
    tissue = mask_of(np.ones((4, 4)))
    boxes = np.array([[-40.0, 0, 80, 40], [20, 20, 40, 40], [100, 100, 5, 5]])
    assert tissue.fraction(boxes).tolist() == [0.5, 0.25, 0.0]


def test_everything_is_tissue_wherever_one_looks():
    slide = open_slide(np.zeros((30, 50, 3), np.uint8), mpp=0.5)
    tissue = TissueMask.everything(slide)
    assert tissue.fraction(np.array([[0.0, 0, 4000, 4000], [40, 20, 50, 50]])).tolist() == [1, 1]
    assert find_tissue(slide, TissueSpec(method="everything")).method == "everything"


def test_area_is_in_square_microns():
    assert mask_of([[1, 1], [0, 1]]).area_um2 == pytest.approx(3 * (10 * 0.25) ** 2)


def test_a_white_slide_gives_an_empty_mask_and_says_so(caplog):
    slide = open_slide(np.full((400, 500, 3), 250, np.uint8), mpp=2.0)
    with caplog.at_level(logging.WARNING):
        tissue = find_tissue(slide)
    assert tissue.is_empty
    assert tissue.area_um2 == 0
    assert any("no tissue was found" in warning for warning in tissue.warnings)
    assert "no tissue was found" in caplog.text


@pytest.mark.parametrize("mpp", [0.503, 2.0, 8.0, 12.0])
def test_tissue_is_found_at_any_scan_resolution(mpp):
    pixels = np.full((1000, 1400, 3), 243, np.uint8)
    pixels[300:800, 200:1000] = (200, 110, 170)
    slide = open_slide(pixels, mpp=mpp)
    tissue = find_tissue(slide)
    boxes = np.array([[200.0, 300, 800, 500], [1100, 50, 200, 150]])
    inside, outside = tissue.fraction(boxes)
    assert inside > 0.99
    assert outside < 0.2
    assert tissue.downsample == pytest.approx(max(1.0, 8.0 / mpp))


def test_h11_the_resolution_is_the_specs_whatever_the_memory(drawing, monkeypatch):
    """Free memory, cache size and band height change nothing; only the spec's mpp is read."""
    import psutil

    picture = drawing(height=700, width=300)
    picture.piece((150, 150), (90, 70), (200, 110, 170))
    picture.piece((150, 500), (90, 90), (150, 90, 160))
    image = np.repeat(np.repeat(picture.image(), 3, axis=0), 3, axis=1)
    wanted = find_tissue(open_slide(image, mpp=2.0))

    monkeypatch.setattr(psutil, "virtual_memory", lambda: pytest.fail("memory was asked for"))
    slide = open_slide(image, mpp=2.0, cache_bytes=1 << 18)
    read, requests = slide.read, []

    def spy(x, y, width, height, mpp):
        requests.append(mpp)
        return read(x, y, width, height, mpp)

    monkeypatch.setattr(slide, "read", spy)
    found = find_tissue(slide)
    assert set(requests) == {8.0}
    np.testing.assert_array_equal(found.mask, wanted.mask)
    for band_px in (1, 37, 10_000):
        np.testing.assert_array_equal(read_thumbnail(slide, 8.0, band_px=band_px), wanted.thumbnail)


def test_identity_holds_what_decides_the_mask_and_no_more():
    spec = TissueSpec()
    assert "paper" not in tissue_identity(spec)
    assert tissue_identity(spec) != tissue_identity(TissueSpec(mpp=4.0))
    assert tissue_identity(spec, "ab") != tissue_identity(spec, "cd")
    canonical_json(tissue_identity(TissueSpec(method="paper", paper="crc")))


def test_fingerprints_tell_masks_apart():
    assert mask_of([[1, 0]]).fingerprint == mask_of([[1, 0]]).fingerprint
    others = [mask_of([[0, 1]]), mask_of([[1], [0]]), mask_of([[1, 0]], origin=(1.0, 0.0))]
    assert len({mask.fingerprint for mask in (mask_of([[1, 0]]), *others)}) == 4


def test_a_mask_made_before_is_taken_as_it_is():
    slide = open_slide(np.zeros((30, 50, 3), np.uint8), mpp=0.5)
    mask = TissueMask.everything(slide)
    assert find_tissue(slide, mask=mask) is mask
    other = open_slide(np.zeros((31, 50, 3), np.uint8), mpp=0.5)
    with pytest.raises(TissueError, match="50 x 30"):
        find_tissue(other, mask=mask)


def test_unknown_methods_and_settings_are_errors():
    with pytest.raises(UnknownNameError, match="Did you mean 'otsu'"):
        TissueSpec(method="ostu")
    with pytest.raises(UnknownNameError, match="camelyon16"):
        TissueSpec(paper="camelyon")


def test_a_spec_comes_back_from_json():
    spec = TissueSpec(method="paper", paper="crc", mask_frame="bounds")
    assert TissueSpec.model_validate_json(spec.model_dump_json()) == spec
