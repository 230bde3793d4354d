"""The real files people meet: each opens and reads, or is refused by name."""

from __future__ import annotations

import numpy as np
import openslide
import pytest
import tifffile

from zoommil import open_slide
from zoommil.errors import ResolutionError, SlideError, SlideReadError


def test_an_aperio_slide_is_what_openslide_says(real_data):
    path = real_data / "slides" / "CMU-1-Small-Region.svs"
    with open_slide(path) as slide:
        assert (slide.size, slide.mpp, slide.mpp_source) == ((2220, 2967), 0.499, "openslide.mpp-x")
        assert "one level" in slide.warnings[0]
        pixels = slide.read(700, 900, 300, 200, 0.499)
        low = slide.read(0, 0, 138, 185, 8 * 0.998)
    truth = openslide.OpenSlide(str(path)).read_region((700, 900), 0, (300, 200)).convert("RGB")
    np.testing.assert_array_equal(pixels, np.asarray(truth))
    assert low.shape == (185, 138, 3)
    assert low.std() > 5


@pytest.mark.parametrize("name", ["small.svs", "boxes_0.dcm", "boxes_1.dcm"])
def test_tiny_slides_and_dicom_files_open(real_data, name):
    with open_slide(real_data / "slides" / name) as slide:
        assert slide.mpp == 0.499
        assert slide.size == (16, 16)
        assert (slide.read(0, 0, 16, 16, 0.499) < 255).any()


def test_72_dpi_is_no_resolution(real_data):
    path = real_data / "slides" / "boxes.tiff"
    with pytest.raises(ResolutionError, match=r"352\.778"):
        open_slide(path)
    with open_slide(path, mpp=0.5) as slide:
        assert [level.downsample for level in slide.describe().levels] == [1, 2, 4, 8]
        assert "352.778" in slide.warnings[0]


def test_a_slide_that_fails_only_when_read(real_data):
    with (
        open_slide(real_data / "slides" / "unreadable.svs") as slide,
        pytest.raises(SlideReadError, match=r"'unreadable\.svs', level 0"),
    ):
        slide.read(0, 0, 16, 16, 0.499)


@pytest.mark.parametrize("name", ["unopenable.tiff", "broken.svs"])
def test_slides_that_must_be_refused(real_data, name):
    with pytest.raises(SlideError, match=name) as caught:
        open_slide(real_data / "slides" / name, mpp=0.5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_orientation_tags(real_data, orientation, turns):
    path = real_data / "slides" / f"test_orient{orientation}.tif"
    with open_slide(path, mpp=0.5) as slide:
        pixels = slide.read(0, 0, *slide.size, 0.5)
        assert len(slide.describe().levels) == 3
    stored = tifffile.imread(path)[..., None].repeat(3, 2)
    assert np.abs(pixels.astype(int) - np.rot90(stored, turns)).mean() < 1


@pytest.mark.parametrize("reader", ["openslide", "image"])
def test_a_zstd_pyramid(real_data, reader):
    path = real_data / "slides" / "yb10kx5k.zstd.tiff"
    with open_slide(path, mpp=0.25, reader=reader) as slide:
        assert [level.downsample for level in slide.describe().levels] == [1, 2, 4, 8, 16]
        pixels = slide.read(0, 0, 625, 312, 4.0)
    stored = tifffile.imread(path, key=4)
    if reader == "image":
        np.testing.assert_array_equal(pixels, stored)
    else:  # it reports a downsample of 16.013 and blends neighbours by what that leaves over
        assert np.abs(pixels.astype(int) - stored).mean() < 2


@pytest.mark.parametrize("reader", ["openslide", "image"])
def test_unassociated_alpha_is_composited_on_white(real_data, reader):
    path = real_data / "slides" / "rgba_geotiff.tiff"
    with open_slide(path, mpp=0.5, reader=reader) as slide:
        pixels = slide.read(0, 0, 600, 600, 0.5).astype(float)
    rgba = tifffile.imread(path, key=0).astype(float)
    alpha = rgba[..., 3:] / 255
    assert np.abs(pixels - (rgba[..., :3] * alpha + 255 * (1 - alpha))).max() <= 2
