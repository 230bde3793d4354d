"""Frames: level-0 coordinates and pictures of a slide agree, also where its bounds are shifted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil import open_slide
from zoommil.reports.frame import PictureFrame, frame_of_bounds, frame_of_slide, read_picture

SIDES = st.floats(1, 400_000)
PLACES = st.floats(-1e5, 1e5)


@given(PLACES, PLACES, SIDES, SIDES, st.integers(16, 4000))
def test_a_frame_covers_its_bounds_and_goes_both_ways(x, y, width, height, longest_px):
    frame = frame_of_bounds((x, y, width, height), 0.5, longest_px)
    assert max(frame.width, frame.height) <= longest_px
    assert frame.downsample >= 1
    corners = np.array([[x, y], [x + width, y + height]])
    inside = frame.to_picture(corners)
    assert inside[0] == pytest.approx([0, 0], abs=1e-6)
    assert (inside[1] <= [frame.width + 1e-3, frame.height + 1e-3]).all()
    assert (inside[1] >= [frame.width - 1.001, frame.height - 1.001]).all()
    assert np.allclose(frame.to_slide(inside), corners, atol=1e-5)


def test_boxes_are_points_with_sides():
    frame = PictureFrame((100.0, 50.0), 4.0, 25, 25)
    assert frame.boxes_to_picture(np.array([[140.0, 90.0, 40.0, 20.0]])).tolist() == [
        [10.0, 10.0, 10.0, 5.0]
    ]
    assert frame.scaled(2.0).boxes_to_picture(np.array([[140.0, 90.0, 40.0, 20.0]])).tolist() == [
        [20.0, 20.0, 20.0, 10.0]
    ]


def test_a_picture_shows_the_slide_where_the_frame_says():
    pixels = np.full((1500, 2000, 3), 255, np.uint8)
    pixels[600:900, 1000:1400] = (200, 0, 0)
    with open_slide(pixels, mpp=1.0) as slide:
        frame = frame_of_slide(slide, longest_px=333)
        picture = read_picture(slide, frame)
    assert picture.shape == (frame.height, frame.width, 3) == (250, 333, 3)
    rows, columns = np.nonzero(picture[..., 1] < 128)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    wanted = frame.to_picture(np.array([[1000.0, 600.0], [1400.0, 900.0]])).ravel()
    assert np.abs(np.array(found) - wanted).max() < 1
