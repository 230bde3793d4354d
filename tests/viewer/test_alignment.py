"""Tiles, overlay and GeoJSON lie where the lesions of a shifted slide truly are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from viewing import GREEN, is_painted, is_within_a_pixel, polygon_mask

from zoommil import open_slide
from zoommil.viewer.overlay import overlay_of
from zoommil.viewer.tiles import draw_tile
from zoommil.viewer.world import TILE_PX, TileWorld

LEVEL_0_PX = 2
"""A pixel of the picture in level-0 pixels: the thumbnail of the heatmaps has this scale here."""


@pytest.fixture(scope="module")
def picture(shown) -> np.ndarray:
    """The shifted slide put together from its tiles, two level-0 pixels a pixel."""
    with open_slide(shown.slides / "beta.scn") as slide:
        world = TileWorld.of_slide(slide)
        zoom = world.max_zoom - 1
        assert world.downsample(zoom) == LEVEL_0_PX
        columns, rows = world.tiles_at(zoom)
        tiles = [[draw_tile(slide, zoom, i, j) for i in range(columns)] for j in range(rows)]
        x, y, width, height = slide.bounds
        assert (x, y) == (700, 900)
    joined = np.concatenate([np.concatenate(row, axis=1) for row in tiles])
    assert joined.shape[0] == rows * TILE_PX
    return joined[: int(height) // LEVEL_0_PX, : int(width) // LEVEL_0_PX]


def lesions_at(shown, shape: tuple[int, int]) -> np.ndarray:
    """The truth at the picture's scale; the bounds' corner is its first pixel's."""
    return polygon_mask([(one - (700, 900)) / LEVEL_0_PX for one in shown.lesions], shape)


def test_tiles_show_the_lesions_within_one_pixel(shown, picture):
    truth = lesions_at(shown, picture.shape[:2])
    found = is_painted(picture)
    assert truth.mean() > 0.1
    assert is_within_a_pixel(found, truth)
    moved = np.roll(truth, 3, axis=1)
    assert not is_within_a_pixel(found, moved)  # the measure can tell


def test_a_pixel_of_the_overlay_covers_what_was_read_there(shown, picture):
    """The share of lesion under each of its pixels is the share of lesion in that patch."""
    prediction = shown.answers["beta"]
    found = is_painted(picture)
    with open_slide(shown.slides / "beta.scn") as slide:
        for position, step in enumerate(prediction.steps):
            overlay = overlay_of(prediction, position)
            height, width = overlay.pixels.shape[:2]
            side = overlay.box[2:] / (width, height)
            compared = 0
            for row, column in np.argwhere(overlay.pixels[..., 3]):
                corner = overlay.box[:2] + (column, row) * side
                read = is_painted(slide.read(*corner, 128, 128, slide.mpp * side[0] / 128))
                low = (corner - (700, 900)) / LEVEL_0_PX
                x, y = np.rint(low).astype(int)
                right, down = np.rint(low + side / LEVEL_0_PX).astype(int)
                under = found[y:down, x:right]
                if under.size == round(np.prod(side / LEVEL_0_PX)):  # else beyond the slide
                    assert under.mean() == pytest.approx(read.mean(), abs=3 * LEVEL_0_PX / side[0])
                    compared += 0 < read.mean() < 1
            assert compared or position < len(prediction.steps) - 1
            assert len(step.boxes) == np.count_nonzero(overlay.pixels[..., 3])


def test_geojson_has_the_same_places_in_both_frames(shown):
    prediction = shown.answers["beta"]
    for frame, offset in (("slide", (0, 0)), ("bounds", (700, 900))):
        tiles = json.loads(json.dumps(prediction.to_geojson(frame=frame)))["features"]
        corners = [np.min(tile["geometry"]["coordinates"][0], axis=0) for tile in tiles]
        boxes = np.concatenate([step.boxes[:, :2] for step in prediction.steps])
        found = {tuple(np.rint(corner + offset)) for corner in corners}
        assert found == {tuple(np.rint(box)) for box in boxes}


def test_the_green_is_no_stain(shown):
    with open_slide(shown.slides / "alpha.svs") as slide:
        assert is_painted(slide.read(0, 0, 512, 448, 4 * slide.mpp)).mean() < 1e-4
    assert is_painted(np.array([[GREEN]], np.uint8)).all()
