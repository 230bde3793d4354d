"""The same box at two magnifications shows the same thing, on slides whose cells tell their place.

Every block of such a slide has a colour of its own, so any pixel of any patch says where it comes
from; pixels within one pixel of a block's edge are not asked.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import tifffile

from zoommil import open_slide
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.tissue import TissueMask

BLOCK = 160  # level-0 pixels


def colours_of(width: int, height: int) -> np.ndarray:
    """A colour for every block, far from white and from one another on average."""
    rng = np.random.default_rng(11)
    return rng.integers(0, 200, (-(-height // BLOCK), -(-width // BLOCK), 3)).astype(np.uint8)


def level_0(width: int, height: int) -> np.ndarray:
    colours = colours_of(width, height)
    return np.repeat(np.repeat(colours, BLOCK, 0), BLOCK, 1)[:height, :width]


def shrunk(image: np.ndarray, downsample: int) -> np.ndarray:
    """The area average by a whole number; what is left over at the right and bottom is dropped."""
    height, width = (side // downsample for side in image.shape[:2])
    whole = image[: height * downsample, : width * downsample]
    return cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)


def stretched(image: np.ndarray, downsample: float) -> np.ndarray:
    """The area average by any number: the whole picture on a rounded number of pixels."""
    height, width = (round(side / downsample) for side in image.shape[:2])
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def padded_to_tiles(image: np.ndarray, tile: int = 256) -> np.ndarray:
    """White to the right and below until tiles are full, as some scanners store levels."""
    height, width = (-(-side // tile) * tile for side in image.shape[:2])
    padded = np.full((height, width, 3), 255, np.uint8)
    padded[: image.shape[0], : image.shape[1]] = image
    return padded


def write_pyramid(path, levels: list[np.ndarray], mpp: float) -> None:
    """A generic tiled TIFF that every reader opens."""
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        for n, level in enumerate(levels):
            resolution = 1e4 / mpp / (levels[0].shape[1] / level.shape[1])
            tiff.write(
                level,
                tile=(256, 256),
                photometric="rgb",
                compression="zlib",
                subfiletype=0 if n == 0 else 1,
                resolution=(resolution, resolution),
                resolutionunit="CENTIMETER",
                metadata=None,
            )


def share_at_home(slide, colours: np.ndarray, step, rows: np.ndarray) -> tuple[float, int]:
    """The share of a step's pixels that show the block they lie in, and how many were asked."""
    right, asked = 0, 0
    height, width = colours.shape[:2]
    for row in rows:
        x, y, _, _ = step.boxes[row]
        pixels = slide.read(x, y, step.patch_px, step.patch_px, step.mpp).astype(int)
        centres = (np.arange(step.patch_px) + 0.5) * step.downsample
        block_x, in_x = np.divmod(x + centres, BLOCK)
        block_y, in_y = np.divmod(y + centres, BLOCK)
        margin = 2 * step.downsample  # 1 pixel for the filter, 1 for the claim
        clear = np.outer(
            (in_y > margin) & (in_y < BLOCK - margin) & (y + centres < slide.size[1] - margin),
            (in_x > margin) & (in_x < BLOCK - margin) & (x + centres < slide.size[0] - margin),
        )
        expected = colours[
            np.minimum(block_y, height - 1).astype(int)[:, None],
            np.minimum(block_x, width - 1).astype(int)[None, :],
        ]
        same = np.abs(pixels - expected).max(axis=2) <= 3
        right, asked = right + int((same & clear).sum()), asked + int(clear.sum())
    return right / max(1, asked), asked


SHAPES = {
    "whole": ((4096, 3072), (4, 16), False),
    "odd sizes: 4.0015, 16.07": ((4033, 2571), (4, 16), False),
    "padded levels": ((4033, 2571), (4, 16), True),
    "one level": ((2571, 2033), (), False),
    "32 only": ((4033, 2571), (32,), False),
    "stretched: 4.0003, 16.002, 31.9": ((12_001, 1277), (4.0003, 16.002, 31.9), False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mpp", [0.243, 0.503])
def test_check_20_children_show_what_their_parents_show(tmp_path, shape, mpp):
    size, downsamples, is_padded = SHAPES[shape]
    image = level_0(*size)
    shrink = stretched if shape.startswith("stretched") else shrunk
    levels = [image, *(shrink(image, downsample) for downsample in downsamples)]
    if is_padded:
        levels[1:] = map(padded_to_tiles, levels[1:])
    write_pyramid(tmp_path / "a.tiff", levels, mpp)
    magnifications = (1.25, 5, 20) if mpp > 0.4 else (2.5, 5, 10, 40)
    with open_slide(tmp_path / "a.tiff", mpp=mpp) as slide:
        slide.bounds = (37, 91, size[0] - 37, size[1] - 91)
        pyramid = PatchPyramid.build(
            slide,
            TissueMask.everything(slide),
            GridSpec(magnifications=magnifications, patch_px=64),
        )
        rng = np.random.default_rng(5)
        for step in pyramid.steps:
            rows = rng.choice(len(step), min(16, len(step)), replace=False)
            share, asked = share_at_home(slide, colours_of(*size), step, rows)
            assert asked > 300
            assert share > 0.999


def test_check_20_the_test_sees_a_shift_of_two_pixels(tmp_path):
    """Otherwise the test above would prove nothing."""
    image = level_0(2048, 2048)
    write_pyramid(tmp_path / "a.tiff", [image, np.roll(shrunk(image, 4), 3, axis=1)], 0.25)
    with open_slide(tmp_path / "a.tiff", mpp=0.25) as slide:
        pyramid = PatchPyramid.build(
            slide, TissueMask.everything(slide), GridSpec(magnifications=(10, 40), patch_px=64)
        )
        shares = [
            share_at_home(slide, colours_of(2048, 2048), step, np.arange(0, len(step), 7))[0]
            for step in pyramid.steps
        ]
    assert shares[0] < 0.98
    assert shares[1] > 0.999


@pytest.mark.parametrize("ratios", [(2,), (2, 4), (4, 4), (8,), (3,)])
def test_check_9_a_parent_is_its_children_put_together(ratios):
    """Children's pixels, averaged and placed by their slots, are the parent's."""
    image = level_0(2048, 2048)
    magnifications = [40.0]
    for ratio in reversed(ratios):
        magnifications.insert(0, magnifications[0] / ratio)
    slide = open_slide(image, mpp=0.25)
    spec = GridSpec(magnifications=tuple(magnifications), patch_px=48)
    pyramid = PatchPyramid.build(slide, TissueMask.everything(slide), spec)
    for m, ratio in enumerate(ratios):
        parents, children = pyramid.steps[m], pyramid.steps[m + 1]
        for row in (0, len(parents) // 2):
            whole = np.zeros((48, 48, 3))
            part = 48 // ratio
            for child in pyramid.children(m, np.array([row])):
                x, y, _, _ = children.boxes[child]
                pixels = slide.read(x, y, 48, 48, children.mpp)
                dh, dw = children.rows_columns[child] - parents.rows_columns[row] * ratio
                whole[dh * part : (dh + 1) * part, dw * part : (dw + 1) * part] = cv2.resize(
                    pixels, (part, part), interpolation=cv2.INTER_AREA
                )
            x, y, _, _ = parents.boxes[row]
            parent = slide.read(x, y, 48, 48, parents.mpp).astype(float)
            flat = np.abs(cv2.Laplacian(parent, cv2.CV_64F, ksize=1)).max(axis=2) < 1
            assert np.abs(whole - parent)[flat].mean() < 3
            assert flat.mean() > 0.2


def reference_offset(level_height: int, padded_height: int, k: int) -> float:
    """Where level-0 row 0 lies in the reference's padded high grid, seen from level 1/k."""
    return k * ((padded_height // k - level_height) // 2)


@pytest.mark.parametrize("padding", [0, 3, 200])
def test_check_20_the_references_centred_padding_puts_children_outside(padding):
    """Padding each level by half on each side misaligns the grids by construction.

    The offset at the top is floor((H' - H) / 2) at the high level and floor((H' / k - h) / 2) at
    the low one; h is that level's own height, which writers round or pad to whole tiles. Ours
    has one origin, so the same numbers agree exactly.
    """
    patch, k, height = 256, 8, 10_003
    padded = -(-height // (patch * k)) * patch * k
    low_height = height // k + padding
    high = reference_offset(height, padded, 1)
    low = reference_offset(low_height, padded, k)
    shift = abs(high - low)  # level-0 pixels between a parent's edge and its first child's
    assert shift > 1
    assert shift >= k * padding / 2 - k

    ours = open_slide(np.zeros((height, 300, 3), np.uint8), mpp=0.25)
    spec = GridSpec(magnifications=(5, 40), patch_px=patch)
    pyramid = PatchPyramid.build(ours, TissueMask.everything(ours), spec)
    first_children = pyramid.steps[1].boxes[:: k * k]
    np.testing.assert_array_equal(first_children[:, :2], pyramid.steps[0].boxes[:, :2])
