"""Tile addresses are deep-zoom addresses, and everything lies where the slide says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil import open_slide
from zoommil.viewer.stage import length_text, nice_length
from zoommil.viewer.tiles import STAGE, draw_patch, draw_tile
from zoommil.viewer.world import TILE_PX, TileWorld

SIDES = st.integers(1, 400_000)
PLACES = st.integers(0, 100_000)


@given(PLACES, PLACES, SIDES, SIDES)
def test_one_tile_shows_all_at_zoom_0_and_a_pixel_is_a_pixel_at_the_highest(x, y, width, height):
    world = TileWorld.of_bounds((x, y, width, height))
    assert world.tiles_at(0) == (1, 1)
    assert world.downsample(world.max_zoom) == 1
    columns, rows = world.tiles_at(world.max_zoom)
    assert (columns, rows) == (-(-width // TILE_PX), -(-height // TILE_PX))
    assert world.size_of(world.max_zoom, columns - 1, rows - 1) == (
        width - (columns - 1) * TILE_PX,
        height - (rows - 1) * TILE_PX,
    )
    for zoom in range(world.max_zoom + 1):
        columns, rows = world.tiles_at(zoom)
        assert world.has_tile(zoom, columns - 1, rows - 1)
        assert not world.has_tile(zoom, columns, rows - 1)
        assert min(world.size_of(zoom, columns - 1, rows - 1)) >= 1


@given(PLACES, PLACES, SIDES, SIDES, st.floats(0, 1), st.floats(0, 1))
def test_map_coordinates_go_both_ways(x, y, width, height, right, down):
    world = TileWorld.of_bounds((x, y, width, height))
    point = np.array([x + right * width, y + down * height])
    latitude, longitude = world.to_latlng(point)
    assert world.to_slide(latitude, longitude) == pytest.approx(tuple(point), abs=1e-3)


def test_map_coordinates_are_those_of_web_maps():
    world = TileWorld.of_bounds((1000, 2000, 1024, 1024))
    places = world.to_latlng(np.array([[1000.0, 2000.0], [1512.0, 2512.0], [2024.0, 3024.0]]))
    edge = 85.0511287798066
    assert places == pytest.approx(np.array([[edge, -180], [0, 0], [-edge, 180]]), abs=1e-9)


def test_tiles_put_together_are_the_slide():
    pixels = np.random.default_rng(0).integers(0, 255, (700, 900, 3), np.uint8)
    with open_slide(pixels, mpp=0.5) as slide:
        world = TileWorld.of_slide(slide)
        columns, rows = world.tiles_at(world.max_zoom)
        joined = np.concatenate(
            [
                np.concatenate(
                    [draw_tile(slide, world.max_zoom, column, row) for column in range(columns)], 1
                )
                for row in range(rows)
            ]
        )
        small = draw_tile(slide, world.max_zoom - 1, 1, 0)
        expected = slide.read(512, 0, 194, 256, 1.0)
    assert np.array_equal(joined[:700, :900], pixels)
    assert (joined[700:] == STAGE).all()
    assert (joined[:, 900:] == STAGE).all()
    assert np.array_equal(small[:, :194], expected)
    assert (small[:, 194:] == STAGE).all()


def test_a_patch_is_shown_small_and_never_finer_than_the_scan():
    pixels = np.full((2000, 2000, 3), 255, np.uint8)
    pixels[1000:1400, 1000:1400] = (10, 200, 30)
    with open_slide(pixels, mpp=0.5) as slide:
        large = draw_patch(slide, (1000.0, 1000.0, 400.0, 400.0), 0.5)
        small = draw_patch(slide, (1000.0, 1000.0, 40.0, 40.0), 0.1)
    assert large.shape == (176, 176, 3)
    assert small.shape == (40, 40, 3)
    assert (large[2:-2, 2:-2] == (10, 200, 30)).all()
    assert (small == (10, 200, 30)).all()


def test_scale_bars_have_lengths_that_people_say():
    assert [nice_length(most) for most in (137.0, 99.9, 2000.0, 0.3)] == [
        100.0, 50.0, 2000.0, pytest.approx(0.2),
    ]  # fmt: skip
    assert [length_text(length) for length in (50.0, 2000.0, 0.5)] == ["50 µm", "2 mm", "0.5 µm"]
