"""The integer resampler: exact, white-preserving, and independent of where a region begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slide_files import noise_picture

from zoommil.slides.resampling import halved, is_native, resample, sample_axis, snapped

SCALES = st.floats(0.91, 2.05)
CORNERS = st.floats(0, 1e5).map(snapped)


def resampled(pixels: np.ndarray, corner: tuple[float, float], size: tuple[int, int], scale: float):
    columns = sample_axis(corner[0], size[0], scale, nearest=False)
    rows = sample_axis(corner[1], size[1], scale, nearest=False)
    region = pixels[rows.first : rows.first + rows.length]
    return resample(region[:, columns.first : columns.first + columns.length], rows, columns)


@given(corner=CORNERS, scale=SCALES, count=st.integers(1, 300))
def test_weights_are_whole_and_sum_to_one(corner, scale, count):
    axis = sample_axis(corner, count, scale, nearest=False)
    assert axis.weights is not None
    assert (axis.weights.sum(1) == 2048).all()
    assert axis.weights.min() >= 0
    assert axis.taps.min() == 0
    assert axis.taps.max() == axis.length - 1


@given(corner=CORNERS, scale=SCALES, colour=st.integers(0, 255))
@settings(max_examples=30)
def test_a_plain_colour_stays_that_colour(corner, scale, colour):
    columns = sample_axis(corner, 20, scale, nearest=False)
    region = np.full((columns.length, columns.length, 3), colour, np.uint8)
    assert (resample(region, columns, columns) == colour).all()


@given(corner=CORNERS, scale=st.floats(0.9, 9), skipped=st.integers(0, 900), nearest=st.booleans())
def test_an_axis_does_not_depend_on_where_it_begins(corner, scale, skipped, nearest):
    whole = sample_axis(corner, skipped + 30, scale, nearest=nearest)
    part = sample_axis(corner + skipped, 30, scale, nearest=nearest)
    np.testing.assert_array_equal(part.taps + part.first, (whole.taps + whole.first)[skipped:])
    if not nearest:
        assert whole.weights is not None
        assert part.weights is not None
        np.testing.assert_array_equal(part.weights, whole.weights[skipped:])


@pytest.mark.parametrize("scale", [0.95, 1.1038, 1.5, 1.9786])
def test_sums_are_those_of_unbounded_integers(scale):
    pixels = noise_picture(80, 70)
    columns = sample_axis(snapped(3.3), 20, scale, nearest=False)
    rows = sample_axis(snapped(2.7), 20, scale, nearest=False)
    found = resampled(pixels, (snapped(3.3), snapped(2.7)), (20, 20), scale)
    for y, x in [(0, 0), (7, 13), (19, 19)]:
        for channel in range(3):
            middle = [
                (sum(int(w) * int(pixels[rows.first + t, column, channel])
                     for t, w in zip(rows.taps[y], rows.weights[y], strict=True)) + 64) >> 7
                for column in range(80)
            ]  # fmt: skip
            total = sum(
                int(w) * middle[columns.first + t]
                for t, w in zip(columns.taps[x], columns.weights[x], strict=True)
            )
            assert found[y, x, channel] == (total + (1 << 14)) >> 15


@pytest.mark.parametrize("scale", [1.25, 1.5, 2.0])
def test_it_agrees_with_another_antialiasing_triangle_filter(scale):
    from PIL import Image

    pixels = noise_picture(120, 120)
    size = int(80 / scale)
    box = (20.0, 20.0, 20 + size * scale, 20 + size * scale)
    other = np.asarray(
        Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    )
    ours = resampled(pixels, (snapped(20 / scale),) * 2, (size, size), scale)
    inner = (slice(3, -3),) * 2  # theirs does not look beyond the box
    assert np.abs(ours[inner].astype(int) - other[inner]).max() <= 3


def test_halved_is_the_rounded_mean_with_halves_up():
    pixels = noise_picture(514, 302)
    blocks = pixels.reshape(151, 2, 257, 2, 3).astype(int).sum((1, 3))
    np.testing.assert_array_equal(halved(pixels), (blocks + 2) // 4)


def test_native_scales_are_slices():
    assert is_native(1.0, 1.0009)
    assert not is_native(1.0, 1.002)
    assert sample_axis(17.0, 256, 1.0, nearest=True).is_slice
    assert not sample_axis(17.0, 4096, 1.0009, nearest=True).is_slice
