"""Damaged and wrong files: refused by name, and never turned into pixels."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tifffile
from slide_files import cell_picture, noise_picture, spoil_tile, write_tiff

from zoommil import open_slide
from zoommil.errors import ResolutionError, SlideError, SlideReadError

READERS = ("openslide", "image")


@pytest.fixture
def spoilt(tmp_path):
    """Ten by eight tiles of 64 px, of which the one at column 2, row 3 cannot be decoded."""
    path = write_tiff(tmp_path / "spoilt.tif", [noise_picture(640, 512)])
    spoil_tile(path, 0, 2, 3)
    return path


@pytest.mark.parametrize("reader", READERS)
def test_h2_an_unreadable_region_is_an_error_that_names_slide_level_and_box(spoilt, reader):
    with open_slide(spoilt, reader=reader) as slide:
        with pytest.raises(
            SlideReadError, match=r"'spoilt\.tif', level 0: the box \(x 1\d\d, y "
        ) as caught:
            slide.read(140, 200, 20, 20, 0.25)
        assert "\n" not in str(caught.value)
        for mpp in (0.3, 0.5, 1.0):  # also where it is only a part of what is weighed together
            with pytest.raises(SlideReadError):
                slide.read(100, 100, 100, 100, mpp)


@pytest.mark.parametrize("reader", READERS)
def test_h2_other_regions_are_read_after_an_error(spoilt, reader):
    truth = noise_picture(640, 512)
    with open_slide(spoilt, reader=reader) as slide:
        for _ in range(3):
            with pytest.raises(SlideReadError):
                slide.read(140, 200, 20, 20, 0.25)
            np.testing.assert_array_equal(slide.read(384, 0, 256, 512, 0.25), truth[:, 384:])


def test_h2_threads_that_read_sound_regions_are_not_hurt_by_one_that_does_not(spoilt):
    truth = noise_picture(640, 512)
    with open_slide(spoilt) as slide, ThreadPoolExecutor(4) as pool:

        def read(number: int) -> bool:
            if number % 5 == 0:
                with pytest.raises(SlideReadError):
                    slide.read(140, 200, 20, 20, 0.25)
                return True
            x = 192 + number % 400
            return bool((slide.read(x, 7, 40, 400, 0.25) == truth[7:407, x : x + 40]).all())

        assert all(pool.map(read, range(120)))


@pytest.mark.parametrize("reader", READERS)
def test_h2_half_a_jpeg_tile_is_not_filled_with_gray(tmp_path, reader):
    path = write_tiff(
        tmp_path / "a.tif", [cell_picture(600, 500, 20)], tile=256, compression="jpeg"
    )
    with tifffile.TiffFile(path) as file:
        offset, size = file.pages[0].dataoffsets[1], file.pages[0].databytecounts[1]
    with path.open("r+b") as stream:
        stream.seek(offset + size // 2)
        stream.write(b"\0" * (size - size // 2))
    with open_slide(path, reader=reader) as slide:
        assert slide.read(0, 0, 256, 256, 0.25).std() > 10
        with pytest.raises(SlideReadError):
            slide.read(256, 0, 256, 256, 0.25)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused_or_fails_where_it_ends(tmp_path, share):
    path = write_tiff(tmp_path / "a.svs", [noise_picture(900, 700)], tile=256)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SlideError) as caught, open_slide(path) as slide:
        slide.read(0, 0, 900, 700, 0.25)
    assert "\n" not in str(caught.value)
    assert "a.svs" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"this is a text file\n",
        b"II*\0",
        b"MM\0*" + b"\xff" * 40,
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
    ],
)
@pytest.mark.parametrize("name", ["a.svs", "a.png", "a.dcm", "a.mrxs"])
def test_files_that_are_no_slides_are_refused_in_one_line(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SlideError) as caught:
        open_slide(path, mpp=0.5)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directories_and_missing_files_are_refused(tmp_path):
    with pytest.raises(SlideError, match="is a directory, not a slide"):
        open_slide(tmp_path)
    with pytest.raises(SlideError, match="does not exist"):
        open_slide(tmp_path / "nothing.svs")


def test_no_mpp_is_an_error_and_a_given_one_helps(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [cell_picture(100, 80, 10)], mpp=None)
    with pytest.raises(ResolutionError, match="Pass mpp="):
        open_slide(path)
    with open_slide(path, mpp=0.5) as slide:
        assert (slide.mpp, slide.mpp_source) == (0.5, "given")


@pytest.mark.parametrize("mpp", [0.0, -0.25, 352.0, float("nan")])
def test_absurd_given_mpp_is_refused(noise_file, mpp):
    with pytest.raises(ResolutionError, match="was given mpp"):
        open_slide(noise_file, mpp=mpp)


def test_a_file_that_disappears_while_open_fails_by_name(spoilt, tmp_path):
    with open_slide(spoilt) as slide:
        shutil.move(spoilt, tmp_path / "elsewhere.tif")
        with pytest.raises(SlideReadError, match=r"spoilt\.tif"):
            slide.read(140, 200, 20, 20, 0.25)
