"""Row 2, synthetic: extent and proportions go in, coarse maps of a whole slide's tissue come out.

The maps have one pixel per ``um_per_px`` microns, so that even a huge slide needs little memory;
detail is added when a block is rendered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8

from zoommil.synthetic.noise import open_noise, smooth_step

FINEST_UM = 16.0
LARGEST_MAP_PX = 3072


@dataclass(frozen=True)
class TissueMaps:
    """What lies where on a slide, coarsely. uint8 maps: 0 none, 255 full (tints: 128 is 1.0)."""

    um_per_px: float
    depth_um: Float32[np.ndarray, "height width"]  # signed distance to the tissue's edge
    glands: UInt8[np.ndarray, "height width"]
    fat: UInt8[np.ndarray, "height width"]
    lymphocytes: UInt8[np.ndarray, "height width"]
    hematoxylin_tint: UInt8[np.ndarray, "height width"]
    eosin_tint: UInt8[np.ndarray, "height width"]
    weave: UInt8[np.ndarray, "height width"]  # which way the collagen runs
    sway_um: Float32[np.ndarray, "height width 2"]  # displacement of textures


def draw_tissue_maps(
    width_um: float,
    height_um: float,
    *,
    tissue: float,
    glands: float,
    fat: float,
    lymphocytes: float,
    generator: np.random.Generator,
) -> TissueMaps:
    """Irregular pieces covering the share ``tissue`` of the slide, and what they are made of."""
    um_per_px = max(FINEST_UM, width_um / LARGEST_MAP_PX, height_um / LARGEST_MAP_PX)
    shape = (int(np.ceil(height_um / um_per_px)) + 1, int(np.ceil(width_um / um_per_px)) + 1)
    depth_um = _pieces(shape, um_per_px, tissue, generator)
    inside = depth_um > 0

    def noise(wavelength_um: float, octaves: int = 1) -> np.ndarray:
        return open_noise(*shape, wavelength_um / um_per_px, generator, octaves)

    mucosa = np.exp(-((np.clip(depth_um, 0, None) / 700.0) ** 2)) * smooth_step(noise(5000), -1, 1)
    glandular = _share(noise(1700, 3) + 1.4 * mucosa, inside, glands, 0.45)
    fatty = _share(noise(1600, 3) - 1.5 * glandular, inside, fat, 0.12)
    patches = _share(noise(620, 2), inside, lymphocytes, 0.25)
    sparse = 0.04 + 0.16 * glandular + 0.08 * smooth_step(noise(400), 0.3, 2.0)
    sway = np.stack([noise(900), noise(900)], -1) * np.float32(26.0)
    return TissueMaps(
        um_per_px=um_per_px,
        depth_um=depth_um,
        glands=as_bytes(glandular * 0.95),
        fat=as_bytes(fatty),
        lymphocytes=as_bytes(np.maximum(patches * 0.85, sparse) * (1 - fatty)),
        hematoxylin_tint=as_bytes((1 + 0.07 * noise(1300, 2)) * (128 / 255)),
        eosin_tint=as_bytes((1 + 0.13 * noise(1500, 3) - 0.3 * glandular) * (128 / 255)),
        weave=as_bytes(0.5 + 0.45 * noise(1000)),
        sway_um=sway,
    )


def as_bytes(field: np.ndarray) -> UInt8[np.ndarray, "height width"]:
    """A map of 0..1 as uint8, clipped."""
    return np.clip(field * 255 + 0.5, 0, 255).astype(np.uint8)


def _pieces(
    shape: tuple[int, int], um_per_px: float, tissue: float, generator: np.random.Generator
) -> np.ndarray:
    """Signed distance in microns to the outline of a few ragged pieces."""
    import cv2

    height, width = shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    num = int(generator.integers(1, 4))
    lift = np.full(shape, -9.0, np.float32)
    spread = min(height, width)
    for piece in range(num):
        center_x = width * (piece + 0.5 + generator.uniform(-0.15, 0.15)) / num
        center_y = height * generator.uniform(0.4, 0.6)
        angle = generator.uniform(-0.6, 0.6)
        cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        along = (x - np.float32(center_x)) * cos + (y - np.float32(center_y)) * sin
        across = (y - np.float32(center_y)) * cos - (x - np.float32(center_x)) * sin
        wide, tall = generator.uniform(0.6, 1.1), generator.uniform(0.9, 1.5)
        size = np.float32(spread / 2)
        distance = np.sqrt((along * num**0.5 / (size * wide)) ** 2 + (across / (size * tall)) ** 2)
        lift = np.maximum(lift, 1 - distance + np.float32(generator.uniform(-0.1, 0.1)))
    lift += 0.17 * open_noise(*shape, spread / 3, generator, 5)
    edge = np.minimum(np.minimum(x, width - 1 - x), np.minimum(y, height - 1 - y))
    lift -= 3.0 * np.clip(1 - edge / (0.05 * spread), 0, None) ** 2
    inside = (lift > np.quantile(lift, 1 - tissue)).astype(np.uint8)
    inner = cv2.distanceTransform(inside, cv2.DIST_L2, 5)
    outer = cv2.distanceTransform(1 - inside, cv2.DIST_L2, 5)
    return (np.clip(inner, 0.5, None) * inside - np.clip(outer, 0.5, None) * (1 - inside)).astype(
        np.float32
    ) * np.float32(um_per_px)


def _share(field: np.ndarray, inside: np.ndarray, share: float, softness: float) -> np.ndarray:
    """0..1: where the field is among its highest ``share`` of the tissue, with soft edges."""
    if share <= 0 or not inside.any():
        return np.zeros_like(field)
    level = float(np.quantile(field[inside], 1 - share))
    return smooth_step(field, level - softness, level + softness)
