"""Levels: true downsamples under rounding and padding, virtual ones, and the choice among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil.slides.levels import coarsest_fine_enough, stored_level, with_halved_levels

SIDES = st.integers(3000, 120_000)
WIDE_SIDES = st.integers(8192, 120_000)  # two tiles or more at a downsample of 16


@given(width=SIDES, height=SIDES, power=st.integers(1, 6), rounding=st.sampled_from("du"))
def test_rounded_sides_mean_a_whole_downsample(width, height, power, rounding):
    whole = 2**power
    sides = [side // whole if rounding == "d" else -(-side // whole) for side in (width, height)]
    level = stored_level(1, (width, height), (sides[0], sides[1]), (256, 256))
    assert (level.downsample_x, level.downsample_y) == (whole, whole)


@given(width=WIDE_SIDES, height=WIDE_SIDES, power=st.integers(1, 4))
def test_padding_to_tiles_is_left_out(width, height, power):
    whole, tile = 2**power, 256
    true = [-(-side // whole) for side in (width, height)]
    padded = [-(-side // tile) * tile for side in true]
    level = stored_level(1, (width, height), (padded[0], padded[1]), (tile, tile))
    assert level.downsample == whole
    assert (level.width, level.height) == (true[0], true[1])


@pytest.mark.parametrize("downsample", [2.5, 3.37, 31.9])
def test_a_downsample_that_no_whole_number_explains_is_the_quotient(downsample):
    size = (100_000, 80_000)
    small = (round(size[0] / downsample), round(size[1] / downsample))
    level = stored_level(1, size, small, (256, 256))
    assert level.downsample == pytest.approx(downsample, rel=1e-3)


def test_there_is_a_level_within_a_factor_of_two_of_everything():
    size = (80_000, 60_000)
    stored = [
        stored_level(i, size, (80_000 // d, 60_000 // d), (256, 256)) for i, d in enumerate((1, 32))
    ]
    pyramid = with_halved_levels(stored)
    assert [level.downsample for level in pyramid[:7]] == [1, 2, 4, 8, 16, 32, 64]
    assert [level.halvings for level in pyramid[:7]] == [0, 1, 2, 3, 4, 0, 1]
    assert max(pyramid[-1].width, pyramid[-1].height) <= 64


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [(0.92, 1), (1.0, 1), (1.97, 1), (1.99, 2), (3.9, 2), (3.97, 4), (16.002, 16), (25, 16)],
)
def test_the_coarsest_level_that_is_fine_enough_is_chosen(wanted, chosen):
    size = (80_000, 60_000)
    stored = [
        stored_level(i, size, (80_000 // d, 60_000 // d), (256, 256))
        for i, d in enumerate((1, 4, 16))
    ]
    pyramid = with_halved_levels(stored)
    assert pyramid[coarsest_fine_enough(pyramid, wanted)].downsample == chosen
