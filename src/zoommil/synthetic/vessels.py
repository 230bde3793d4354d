"""Row 2, synthetic: a resolution goes in, a periodic swatch of blood vessels comes out.

Vessels are shown and hidden as wholes, as glands are.
"""

from __future__ import annotations

import numpy as np

from zoommil.synthetic.glands import GlandSwatch, paste_darkest, place_circles
from zoommil.synthetic.noise import periodic_noise
from zoommil.synthetic.nuclei import KINDS, NUM_ANGLES, draw_nuclei

RADIUS_UM = (9.0, 46.0)
KIND = "benign"


def draw_vessels(side_px: int, mpp: float, generator: np.random.Generator) -> GlandSwatch:
    """Arteries with thick walls and veins with thin ones, empty or full of red cells."""
    hematoxylin, eosin, cover = (np.zeros((side_px, side_px), np.uint8) for _ in range(3))
    number = np.zeros((side_px, side_px), np.uint16)
    grain = periodic_noise(side_px, max(4.0 / mpp, 1.5), generator)
    cells = periodic_noise(side_px, max(7.0 / mpp, 1.5), generator)
    spindles = draw_nuclei(KINDS["fibroblast"], mpp, generator)
    centers = [(0.0, 0.0)]
    places = place_circles(RADIUS_UM, 60.0, 4, side_px * mpp, generator)
    for index, (x_um, y_um, radius_um) in enumerate(places, start=1):
        reach = int((radius_um * 1.5 + 3) / mpp)
        axis = np.arange(-reach, reach + 1)
        x, y = round(x_um / mpp), round(y_um / mpp)
        where = np.ix_((y + axis) % side_px, (x + axis) % side_px)
        inside, wall_um = _shape((axis * mpp).astype(np.float32), radius_um, generator)
        inside += 1.5 * grain[where]
        shape = np.clip(inside / 1.6 + 0.5, 0, 1)
        lumen = np.clip((inside - wall_um) / 1.6 + 0.5, 0, 1)
        blood = generator.random() < 0.45
        red = np.clip(0.5 + 1.5 * (cells[where] + 0.9), 0, 1) if blood else np.float32(0.0)
        wall = (0.46 + 0.07 * grain[where]) * (1 - lumen)
        eosin[where] = np.maximum(eosin[where], _units(shape * (wall + lumen * red * 0.85)))
        dark = shape * (1 - lumen) * (0.14 + 0.04 * grain[where])
        hematoxylin[where] = np.maximum(hematoxylin[where], _units(dark))
        cover[where] = np.maximum(cover[where], (shape * 255).astype(np.uint8))
        number[where] = np.where(shape > 0, index, number[where])
        centers.append((x_um / mpp, y_um / mpp))
        _line(hematoxylin, spindles, (x, y), radius_um, wall_um, mpp, generator)
    hematoxylin = np.minimum(hematoxylin, cover)
    return GlandSwatch({KIND: hematoxylin}, eosin, cover, number, np.array(centers))


def _shape(
    local: np.ndarray, radius_um: float, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Microns inside the vessel at every pixel, and the thickness of its wall."""
    angle, squeeze = generator.uniform(0, np.pi), generator.uniform(1.0, 2.4)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    along = local[None, :] * cos + local[:, None] * sin
    across = (local[:, None] * cos - local[None, :] * sin) * np.float32(squeeze)
    wave = np.float32(generator.uniform(0, 2 * np.pi))
    turn = np.arctan2(across, along)
    outline = np.float32(radius_um) * (1 + np.float32(0.12) * np.cos(2 * turn + wave))
    wall_um = radius_um * generator.choice([0.18, 0.4]) / squeeze**0.5 + 1.5
    return (outline - np.hypot(along, across)) / np.float32(squeeze**0.5), float(wall_um)


def _line(
    plane: np.ndarray,
    spindles: np.ndarray,
    center: tuple[int, int],
    radius_um: float,
    wall_um: float,
    mpp: float,
    generator: np.random.Generator,
) -> None:
    """Flat nuclei along the wall."""
    for turn in generator.uniform(0, 2 * np.pi, int(radius_um / 4)):
        distance = (radius_um - generator.uniform(0.2, 0.9) * wall_um) / mpp * 0.8
        x = round(center[0] + distance * np.cos(turn)) % plane.shape[0]
        y = round(center[1] + distance * np.sin(turn)) % plane.shape[0]
        angle = round((turn + np.pi / 2) / np.pi * NUM_ANGLES) % NUM_ANGLES
        paste_darkest(plane, spindles[generator.integers(len(spindles)), angle], x, y)


def _units(density: np.ndarray) -> np.ndarray:
    return np.clip(density * 100 + 0.5, 0, 255).astype(np.uint8)
