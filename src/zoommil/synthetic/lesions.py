"""Row 2, synthetic: tissue maps go in, places come out: the foci that carry the class, and decoys.

Nothing here knows the slide's label: foci of a normal slide are harmless look-alikes in the same
places, of the same sizes and with the same hint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt8

from zoommil.synthetic.tissue_shapes import TissueMaps


@dataclass(frozen=True)
class Region:
    """One place on the slide: its outline in microns, and how strongly it shows the hint."""

    outline_um: Float64[np.ndarray, "corner 2"]
    center_um: tuple[float, float]
    radius_um: float
    is_focus: bool
    strength: float


def place_regions(
    maps: TissueMaps,
    *,
    num_foci: int,
    num_decoys: int,
    size_mm: tuple[float, float],
    generator: np.random.Generator,
) -> tuple[Region, ...]:
    """Foci with the full hint, then decoys with a part of it, apart from each other, in glands."""
    fit = _fit(maps)
    regions: list[Region] = []
    for index in range(num_foci + num_decoys):
        is_focus = index < num_foci
        diameter = np.exp(generator.uniform(np.log(size_mm[0]), np.log(size_mm[1]))) * 1000.0
        strength = 1.0 if is_focus else float(generator.uniform(0.35, 0.95))
        region = _place_one(maps, fit, regions, diameter / 2, is_focus, strength, generator)
        if region is not None:
            regions.append(region)
    return tuple(regions)


def region_mask(
    maps: TissueMaps, regions: tuple[Region, ...], *, soft_um: float = 40.0
) -> UInt8[np.ndarray, "height width"]:
    """How strongly each coarse pixel belongs to the regions (255 times strength), soft edges."""
    import cv2

    mask = np.zeros(maps.depth_um.shape, np.uint8)
    for region in regions:
        corners = np.round(region.outline_um / maps.um_per_px * 16).astype(np.int32)
        value = round(255 * region.strength)
        cv2.fillPoly(mask, [corners.reshape(-1, 1, 2)], value, cv2.LINE_8, 4)
    sigma = soft_um / maps.um_per_px
    return cv2.GaussianBlur(mask, (0, 0), sigma) if sigma > 0.3 else mask


def _fit(maps: TissueMaps) -> np.ndarray:
    """How well a focus would sit at each coarse pixel: glandular, not fat, inside the tissue."""
    glandular = maps.glands.astype(np.float32) / 255 - maps.fat.astype(np.float32) / 128
    return np.where(maps.depth_um > 60, np.clip(glandular, 0, None), 0)


def _place_one(
    maps: TissueMaps,
    fit: np.ndarray,
    others: list[Region],
    radius_um: float,
    is_focus: bool,
    strength: float,
    generator: np.random.Generator,
) -> Region | None:
    import cv2

    outline = _outline(generator)
    for _ in range(12):
        reach = max(1, round(radius_um / maps.um_per_px))
        score = cv2.blur(fit.astype(np.float32), (2 * reach + 1, 2 * reach + 1))
        score[maps.depth_um < 0.7 * radius_um] = 0
        rows, columns = np.nonzero(score > 0.35)
        for choice in generator.integers(0, max(len(rows), 1), 24):
            if not len(rows):
                break
            center = np.array([columns[choice], rows[choice]]) * maps.um_per_px
            if _is_apart(center, radius_um, others):
                return Region(
                    outline_um=center + outline * radius_um,
                    center_um=(float(center[0]), float(center[1])),
                    radius_um=float(radius_um),
                    is_focus=is_focus,
                    strength=strength,
                )
        radius_um *= 0.85
    return None


def _is_apart(center: np.ndarray, radius_um: float, others: list[Region]) -> bool:
    return all(
        np.hypot(*(center - other.center_um)) > 1.25 * (radius_um + other.radius_um) + 150.0
        for other in others
    )


def _outline(generator: np.random.Generator) -> np.ndarray:
    """A lobed closed curve of unit area radius around the origin."""
    turn = np.linspace(0, 2 * np.pi, 73)[:-1]
    radius = np.ones_like(turn)
    for order in range(2, 9):
        amplitude = generator.normal(0.0, 0.22 / order**0.8)
        radius += amplitude * np.cos(order * turn + generator.uniform(0, 2 * np.pi))
    radius = np.clip(radius, 0.45, 1.6)
    radius /= np.sqrt(np.mean(radius**2))
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], -1)
