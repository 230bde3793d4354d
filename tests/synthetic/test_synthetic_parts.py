"""The parts of the generator: fields, stains, nuclei, glands, blocks and the file writer."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tifffile

from synthetic_slides import SEED, small_spec
from zoommil.synthetic.drawing import draw_plan, draw_scene
from zoommil.synthetic.glands import NORMAL_GLANDS, draw_glands, paste_darkest
from zoommil.synthetic.matching import match_low_magnification
from zoommil.synthetic.noise import open_noise, periodic_noise
from zoommil.synthetic.nuclei import KINDS, draw_nuclei
from zoommil.synthetic.rendering import has_tissue, render_block
from zoommil.synthetic.stains import Stain, colour_table, develop
from zoommil.synthetic.textures import draw_fat, draw_lymphocytes, draw_stroma
from zoommil.synthetic.writer import PyramidWriter, encode_tile, level_layouts


@pytest.fixture(scope="module")
def scene():
    spec = small_spec(label="high_grade")
    return draw_scene(spec, SEED, draw_plan(spec, SEED))


def seam(plane: np.ndarray) -> tuple[float, float]:
    """Mean step across the border of a period, and the mean step inside."""
    values = plane.astype(float)
    inside = np.abs(np.diff(values, axis=1)).mean()
    return float(np.abs(values[:, 0] - values[:, -1]).mean()), float(inside)


def test_periodic_noise_has_no_seam():
    field = periodic_noise(128, 10.0, np.random.default_rng(1))
    across, inside = seam(field)
    assert across < 1.5 * inside
    assert field.std() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("draw", [draw_stroma, draw_fat, draw_lymphocytes])
def test_swatches_have_no_seam(draw):
    swatch = draw(512, 2.0, np.random.default_rng(2))
    across, inside = seam(swatch.hematoxylin)
    assert across < 2.0 * inside + 0.5


def test_open_noise_is_a_function_of_its_generator():
    one, two = (open_noise(40, 60, 12.0, np.random.default_rng(3), 2) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_beer_lambert_by_hand():
    stain = Stain((0.5, 1.0, 0.25), (0.1, 1.0, 0.2), (240.0, 240.0, 240.0))
    planes = np.array([[100]], np.uint8), np.array([[50]], np.uint8)  # densities 1.0 and 0.5
    pixel = develop(*planes, colour_table(stain))[0, 0]
    expected = 240 * 10.0 ** -np.array([0.5 + 0.05, 1.0 + 0.5, 0.25 + 0.1])
    np.testing.assert_allclose(pixel, expected, atol=0.51)


def test_kinds_of_nuclei_differ_in_shape_not_in_amount():
    generator = np.random.default_rng(5)
    amounts, spreads = {}, {}
    for kind in ("benign", "low_grade", "high_grade"):
        pictures = draw_nuclei(KINDS[kind], 0.5, generator, 60).astype(float)
        amounts[kind] = pictures.sum((2, 3)).mean()
        spreads[kind] = pictures.sum((2, 3)).std() / amounts[kind]
    assert max(amounts.values()) < 1.15 * min(amounts.values())
    assert spreads["high_grade"] > 1.5 * spreads["benign"]


def test_pasting_wraps_around():
    plane = np.zeros((10, 10), np.uint8)
    paste_darkest(plane, np.full((3, 3), 7, np.uint8), 0, 9)
    rows, columns = np.nonzero(plane)
    assert sorted(set(rows.tolist())) == [0, 8, 9]
    assert sorted(set(columns.tolist())) == [0, 1, 9]


def test_matched_glands_let_the_same_light_through_from_afar():
    generator = np.random.default_rng(6)
    nuclei = {kind: draw_nuclei(KINDS[kind], 1.0, generator) for kind in ("benign", "high_grade")}
    swatch = draw_glands(NORMAL_GLANDS, nuclei, 512, 1.0, generator)
    spreads = []
    for each in (swatch, match_low_magnification(swatch, "benign", 1.0)):
        light = {k: 10.0 ** (-0.0065 * plane) for k, plane in each.hematoxylin.items()}
        difference = light["high_grade"] - light["benign"]
        spreads.append(difference.reshape(16, 32, 16, 32).mean((1, 3)).std())
    assert spreads[1] < 0.35 * spreads[0]


def test_blocks_join_without_seams(scene):
    corners = [(x, y) for y in range(0, 1536, 256) for x in range(0, 1536, 256)]
    x, y = next(c for c in corners if scene.maps.depth_um[c[1] // 8 + 32, c[0] // 8 + 32] > 300)
    whole = render_block(scene, x, y, 512, 512).astype(int)
    parts = np.zeros_like(whole)
    for top in (0, 256):
        for left in (0, 256):
            part = render_block(scene, x + left, y + top, 256, 256)
            parts[top : top + 256, left : left + 256] = part
    assert (np.abs(whole - parts).max(-1) > 2).mean() < 0.002


def test_boxes_without_tissue_are_bare(scene):
    boxes = [(x, y) for y in range(0, 1536, 128) for x in range(0, 1792, 128)]
    bare = [box for box in boxes if not has_tissue(scene, *box, 128, 128)]
    assert bare
    for x, y in bare[:6]:
        pixels = render_block(scene, x, y, 128, 128).astype(int)
        assert pixels.min() > 220


def test_writer_takes_tiles_of_all_levels_in_any_order():
    generator = np.random.default_rng(7)
    levels = level_layouts(300, 200, (1, 2), 128)
    assert [(level.columns, level.rows) for level in levels] == [(3, 2), (2, 1)]
    stream = io.BytesIO()
    writer = PyramidWriter(stream, levels, 0.5, ["first", ""])
    flat = {}
    for level in (1, 0):
        for row in range(levels[level].rows):
            for column in range(levels[level].columns):
                color = generator.integers(40, 220, 3).astype(np.uint8)
                flat[level, row, column] = color
                tile = np.broadcast_to(color, (128, 128, 3))
                writer.add(level, column, row, encode_tile(tile, 90))
    writer.finish()
    stream.seek(0)
    with tifffile.TiffFile(stream) as tiff:
        assert tiff.is_bigtiff
        assert [page.shape for page in tiff.pages] == [(200, 300, 3), (100, 150, 3)]
        for (level, row, column), color in flat.items():
            pixel = tiff.pages[level].asarray()[row * 128 + 20, column * 128 + 12]
            np.testing.assert_allclose(pixel.astype(int), color.astype(int), atol=4)


def test_shared_tiles_are_stored_once():
    stream = io.BytesIO()
    levels = level_layouts(256, 128, (1,), 128)
    writer = PyramidWriter(stream, levels, 0.5, ["x"])
    tile = encode_tile(np.full((128, 128, 3), 240, np.uint8), 80)
    writer.add(0, 0, 0, tile, is_shared=True)
    size = stream.tell()
    writer.add(0, 1, 0, tile, is_shared=True)
    assert stream.tell() == size
