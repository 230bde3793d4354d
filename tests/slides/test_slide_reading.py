"""Reading boxes at any resolution: the right place, the right scale, the right cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slide_files import cell_colour, cell_picture, noise_picture, write_cells, write_tiff

from zoommil import open_slide
from zoommil.errors import ConfigError, ResolutionError, SlideError

MPPS = (0.2265, 0.243, 0.503)
CELL_PX = 96.0


def test_native_pixels_are_the_files_own(noise_file):
    with open_slide(noise_file) as slide:
        pixels = slide.read(130, 77, 200, 100, 0.25)
    np.testing.assert_array_equal(pixels, noise_picture(701, 533)[77:177, 130:330])


def test_outside_the_slide_is_white_on_all_sides(noise_file):
    with open_slide(noise_file) as slide:
        pixels = slide.read(-30, -20, 800, 600, 0.25)
        far = slide.read(1e7, -1e7, 10, 10, 1.7)
    truth = np.full((600, 800, 3), 255, np.uint8)
    truth[20:553, 30:731] = noise_picture(701, 533)
    np.testing.assert_array_equal(pixels, truth)
    assert (far == 255).all()


def test_halved_levels_are_exact_means(one_level_file):
    with open_slide(one_level_file) as slide:
        pixels = slide.read(64, 32, 100, 50, 1.0)
    truth = noise_picture(2311, 1203)[32:232, 64:464].astype(int)
    for _ in range(2):
        height, width = truth.shape[:2]
        truth = (truth.reshape(height // 2, 2, width // 2, 2, 3).sum((1, 3)) + 2) // 4
    np.testing.assert_array_equal(pixels, truth)


def test_what_is_read_is_the_callers_own(noise_file):
    with open_slide(noise_file) as slide:
        slide.read(0, 0, 64, 64, 0.25)[:] = 7
        np.testing.assert_array_equal(
            slide.read(0, 0, 64, 64, 0.25), noise_picture(701, 533)[:64, :64]
        )


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("mpp", MPPS)
@pytest.mark.parametrize("round_side", [round, int])
def test_check_20_the_same_cell_is_seen_at_every_magnification(
    tmp_path, is_padded, mpp, round_side
):
    """Downsamples 1, 4.0003, 16.002 and 31.9: every cell lies where it lies at level 0."""
    size = (5003, 3001)
    downsamples = (1.0, 4.0003, 16.002, 31.9)
    path = write_cells(
        tmp_path / "a.tif",
        size,
        downsamples,
        cell_px=CELL_PX,
        mpp=mpp,
        is_padded=is_padded,
        round_side=round_side,
    )
    centres = [
        ((column + 0.5) * CELL_PX, (row + 0.5) * CELL_PX)
        for column in range(0, int(size[0] // CELL_PX), 7)
        for row in range(0, int(size[1] // CELL_PX), 5)
    ]
    with open_slide(path) as slide:
        for out_mpp in (mpp, 2 * mpp, 0.5 if mpp < 0.3 else 1.0, 4 * mpp, 2.0, 16 * mpp, 8.0):
            downsample = slide.downsample_of(out_mpp)
            for x, y in centres:  # 3 px around the centre of each cell, well inside it
                left, top = x - 1.5 * downsample, y - 1.5 * downsample
                middle = slide.read(left, top, 3, 3, out_mpp)[1, 1]
                error = np.abs(middle.astype(int) - cell_colour(x, y, CELL_PX))
                assert error.max() <= 1, (out_mpp, x, y)


@pytest.mark.parametrize("out_mpp", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_check_20_edges_of_cells_are_within_one_output_pixel(cells_file, out_mpp):
    """Along a row through the cells' middles, colour changes where it changes at level 0."""
    downsample = out_mpp / 0.25
    with open_slide(cells_file) as slide:
        width = int(slide.size[0] / downsample)
        red = slide.read(0, 31 - downsample / 2, width, 1, out_mpp)[0, :, 0].astype(int)
    for edge in range(64, 4000, 64):
        at = edge / downsample
        before, after = (cell_colour(edge + side, 31, 64)[0] for side in (-1, 1))
        assert red[int(at - 1.5)] == pytest.approx(before, abs=1), edge
        assert red[int(at + 1.5)] == pytest.approx(after, abs=1), edge


@given(
    x=st.floats(-300, 900),
    y=st.floats(-300, 700),
    mpp=st.sampled_from([0.25, 0.243, 0.26, 0.375, 0.5, 0.503, 0.8, 1.0, 1.7, 3.9]),
    column=st.integers(0, 40),
    row=st.integers(0, 40),
)
@settings(max_examples=60)
def test_cut_from_a_larger_read_is_the_same_as_read_alone(noise_file, x, y, mpp, column, row):
    with open_slide(noise_file) as slide:
        downsample = slide.downsample_of(mpp)
        whole = slide.read(x, y, 80, 80, mpp)
        part = slide.read(x + column * downsample, y + row * downsample, 40, 37, mpp)
    np.testing.assert_array_equal(part, whole[row : row + 37, column : column + 40])


@pytest.mark.parametrize("slide_mpp", MPPS)
@given(corner=st.integers(0, 3000), mpp=st.sampled_from([0.5, 1.0, 2.0, 4.1, 8.0]), at=st.data())
@settings(max_examples=25)
def test_cut_is_alone_on_levels_that_report_odd_downsamples(odd_files, slide_mpp, corner, mpp, at):
    """Levels of 4.0003 and 16.002, where OpenSlide's own pixels depend on where a call begins."""
    with open_slide(odd_files[slide_mpp]) as slide:
        downsample = slide.downsample_of(mpp)
        whole = slide.read(corner, 10, 90, 60, mpp)
        column, row = at.draw(st.integers(0, 60)), at.draw(st.integers(0, 40))
        with open_slide(odd_files[slide_mpp]) as other:
            part = other.read(corner + column * downsample, 10 + row * downsample, 30, 20, mpp)
    np.testing.assert_array_equal(part, whole[row : row + 20, column : column + 30])


@pytest.fixture(scope="session")
def odd_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return {
        mpp: write_cells(
            folder / f"{mpp}.tif", (4803, 1201), (1, 4.0003, 16.002), cell_px=7.3, mpp=mpp
        )
        for mpp in MPPS
    }


def test_large_reads_made_in_chunks_show_no_seams(noise_file):
    with open_slide(noise_file) as slide:
        whole = slide.read(-500, -600, 2100, 1500, 0.27)
        part = slide.read(-500 + 1000 * 0.27 / 0.25, -600 + 1000 * 0.27 / 0.25, 60, 60, 0.27)
    np.testing.assert_array_equal(part, whole[1000:1060, 1000:1060])


def test_read_boxes_are_the_single_reads(noise_file):
    corners = np.random.default_rng(3).uniform(-50, 600, (23, 2))
    with open_slide(noise_file) as slide:
        boxes = slide.read_boxes(corners, 40, 30, 0.6)
        for corner, box in zip(corners, boxes, strict=True):
            np.testing.assert_array_equal(box, slide.read(*map(float, corner), 40, 30, 0.6))
        assert slide.read_boxes(np.empty((0, 2)), 40, 30, 0.6).shape == (0, 30, 40, 3)


def test_nominal_scale_divides_the_objective(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [noise_picture(400, 300)], mpp=0.2265)
    with open_slide(path, scale="nominal") as slide:
        assert slide.downsample_of(1.0) == 4  # 10x of a scan that is called 40x
        assert slide.downsample_of(0.25) == 1
        np.testing.assert_array_equal(
            slide.read(3, 4, 50, 60, 0.25), noise_picture(400, 300)[4:64, 3:53]
        )
    with open_slide(path) as slide:
        assert slide.downsample_of(1.0) == pytest.approx(1 / 0.2265)
    with pytest.raises(ConfigError, match="scale"):
        open_slide(path, scale="metric")


def test_nominal_scale_needs_an_objective(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [noise_picture(64, 64)], mpp=3.0)
    with (
        open_slide(path, scale="nominal") as slide,
        pytest.raises(ResolutionError, match="nominal"),
    ):
        slide.read(0, 0, 8, 8, 3.0)


def test_up_to_ten_percent_finer_than_the_scan_is_resampled_and_recorded(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [noise_picture(400, 300)], mpp=0.503)
    with open_slide(path) as slide:
        assert slide.read(0, 0, 50, 50, 0.5).shape == (50, 50, 3)
        plan = slide.plan_of(0.5)
        assert plan.is_finer_than_scan
        assert plan.is_resampled
        assert not slide.plan_of(0.503).is_resampled
        with pytest.raises(ResolutionError, match="more than 10% finer"):
            slide.read(0, 0, 50, 50, 0.25)


def test_h1_patches_span_exactly_what_their_mpp_says(tmp_path):
    """0.26 and 0.3 are both "40x", yet 256 px at 0.5 span 128 um on either."""
    for mpp in (0.26, 0.3):
        path = write_tiff(tmp_path / f"{mpp}.tif", [noise_picture(64, 64)], mpp=mpp)
        with open_slide(path) as slide:
            assert slide.downsample_of(0.5) * slide.mpp * 256 == pytest.approx(128)


def test_h13_cost_falls_with_magnification(cells_file):
    """The same area at a 4 times lower magnification costs 16 times less, to the level above."""
    read = {}
    for mpp in (0.25, 1.0, 4.0):
        with open_slide(cells_file) as slide:
            side = int(2048 * 0.25 / mpp)
            slide.read(0, 0, side, side, mpp)
            statistics = slide.read_statistics()
            read[mpp] = statistics.pixels_read
            assert statistics.pixels_returned == side**2
            assert list(statistics.levels) == [slide.plan_of(mpp).stored_index]
            assert statistics.pixels_decoded <= 3 * statistics.pixels_read  # whole blocks
    assert read == {0.25: 2048**2, 1.0: 512**2, 4.0: 128**2}


def test_h14_one_level_is_warned_about_with_its_cost(one_level_file, caplog):
    with caplog.at_level("WARNING", "zoommil"), open_slide(one_level_file) as slide:
        assert "one level" in slide.warnings[0]
        assert "256 blocks" in slide.warnings[0]
        assert "million pixels" in slide.warnings[0]
        assert slide.plan_of(8.0).decoded_pixels == 32**2
    assert "one level" in caplog.text


@pytest.mark.parametrize("reader", ["openslide", "image"])
def test_h18_a_thumbnail_of_a_large_level_takes_bounded_memory(tmp_path, reader):
    """5000 x 4096 px (61 MB of RGB) on one level, read as a picture of 78 x 64."""
    path = write_tiff(tmp_path / "a.tif", [cell_picture(5000, 4096, 50)], tile=512)
    with open_slide(path, reader=reader, cache_bytes=4 << 20) as slide:
        tracemalloc.start()
        slide.read(0, 0, 78, 64, 16.0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert slide.read_statistics().pixels_read == 78 * 64 * 64**2
    assert peak < 40e6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 0, 0, 10, 0.25), "at least 1"),
        ((0, 0, 10, -5, 0.25), "at least 1"),
        ((0, 0, 200_000, 200_000, 0.25), "at most"),
        ((float("nan"), 0, 10, 10, 0.25), "finite"),
        ((0, 0, 10, 10, 0.0), "more than 0"),
        ((0, 0, 10, 10, -1.0), "more than 0"),
        ((0, 0, 10, 10, float("nan")), "more than 0"),
    ],
)
def test_reads_that_cannot_be_meant_are_refused_in_one_line(noise_file, arguments, said):
    with open_slide(noise_file) as slide, pytest.raises(SlideError, match=said) as caught:
        slide.read(*arguments)
    assert "\n" not in str(caught.value)


def test_a_closed_slide_says_so(noise_file):
    slide = open_slide(noise_file)
    slide.close()
    slide.close()
    with pytest.raises(SlideError, match="is closed"):
        slide.read(0, 0, 5, 5, 0.25)


def test_describe_says_what_the_file_is(cells_file):
    with open_slide(cells_file) as slide:
        description = slide.describe()
    assert description.slide_id == "cells"
    assert description.size == (4099, 3011)
    assert [level.downsample for level in description.levels] == [1, 4, 16]
    assert [level.mpp for level in description.levels] == [0.25, 1, 4]
    assert description.mpp_source == "openslide.mpp-x"
    assert description.magnification == 40
