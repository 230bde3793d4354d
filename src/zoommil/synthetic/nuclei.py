"""Row 2, synthetic: kinds of nuclei as numbers go in, small pictures of hematoxylin come out.

The kinds that mark a slide's class carry the same amount of hematoxylin on average; they differ in
shape, size spread, chromatin and nucleoli, which only a high magnification shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

NUM_ANGLES = 16


@dataclass(frozen=True)
class NucleusKind:
    """What one kind of nucleus looks like; lengths in microns, densities in optical density."""

    length_um: float
    width_um: float
    size_spread: float  # standard deviation of log size
    density: float
    vesicular: float = 0.0  # how much paler the inside is than the rim
    irregular: float = 0.05  # relative amplitude of the outline
    nucleolus: float = 0.0  # optical density of the nucleoli
    coarse: float = 0.12  # contrast of the chromatin
    turned: float = 0.25  # standard deviation of the angle to the cell's axis, radians


_ATYPICAL = NucleusKind(
    length_um=10.6,
    width_um=8.8,
    size_spread=0.22,
    density=0.37,
    vesicular=0.55,
    irregular=0.13,
    nucleolus=0.62,
    coarse=0.3,
    turned=9.0,
)

KINDS = {
    "benign": NucleusKind(8.0, 6.8, 0.08, 0.76, coarse=0.10, turned=0.4),
    "low_grade": NucleusKind(14.0, 4.0, 0.10, 0.78, coarse=0.10, turned=0.12),
    "high_grade": _ATYPICAL,
    "tumor": _ATYPICAL,
    "reactive": NucleusKind(9.4, 6.2, 0.16, 0.66, vesicular=0.2, coarse=0.2, turned=0.5),
    "lymphocyte": NucleusKind(6.4, 5.8, 0.10, 0.85, irregular=0.05, coarse=0.22, turned=9.0),
    "fibroblast": NucleusKind(14.0, 3.2, 0.25, 0.62, coarse=0.12, turned=0.15),
}


def draw_nuclei(
    kind: NucleusKind, mpp: float, generator: np.random.Generator, num_shapes: int = 24
) -> UInt8[np.ndarray, "shape angle side side"]:
    """Hematoxylin pictures of ``num_shapes`` nuclei, each at every one of the angles.

    Angle ``i`` means a long axis at ``pi * i / NUM_ANGLES`` from x; each kind's own scatter of
    angles is already in it.
    """
    reach_um = 0.62 * kind.length_um * float(np.exp(2.2 * kind.size_spread)) + 1.0
    half = int(np.ceil(reach_um / mpp))
    axis = np.arange(-half, half + 1, dtype=np.float32) * mpp
    y, x = np.meshgrid(axis, axis, indexing="ij")
    pictures = [
        _draw_one(kind, x, y, np.pi * angle / NUM_ANGLES, mpp, generator)
        for _ in range(num_shapes)
        for angle in range(NUM_ANGLES)
    ]
    side = 2 * half + 1
    return np.stack(pictures).reshape(num_shapes, NUM_ANGLES, side, side)


def _draw_one(
    kind: NucleusKind,
    x: np.ndarray,
    y: np.ndarray,
    angle: float,
    mpp: float,
    generator: np.random.Generator,
) -> np.ndarray:
    scale = float(np.exp(np.clip(generator.normal(0.0, kind.size_spread), -2.2 * 0.3, 0.6)))
    angle = angle + generator.normal(0.0, kind.turned)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    along = (x * cos + y * sin) / np.float32(kind.length_um * scale / 2)
    across = (y * cos - x * sin) / np.float32(kind.width_um * scale / 2)
    radius = np.sqrt(along**2 + across**2)
    turn = np.arctan2(across, along)
    for order in (2, 3, 5):
        amplitude = np.float32(generator.normal(0.0, kind.irregular / order**0.5))
        phase = np.float32(generator.uniform(0, 2 * np.pi))
        radius = radius * (1 + amplitude * np.cos(order * turn + phase))
    small_um = np.float32(min(kind.length_um, kind.width_um) * scale / 2)
    inside_um = (1 - radius) * small_um  # distance from the outline, roughly
    cover = np.clip(inside_um / np.float32(mpp) + 0.5, 0, 1)
    density = kind.density * np.exp(generator.normal(0.0, 0.08))
    chromatin = _chromatin(kind, x, y, generator)
    inner = np.clip((inside_um - 0.9) / 0.9, 0, 1) * np.float32(kind.vesicular)
    body = np.float32(density) * (1 + np.float32(kind.vesicular * 0.35) - inner) * chromatin
    body = body + _nucleoli(kind, x, y, scale, generator)
    return np.clip(body * cover * 100 + 0.5, 0, 255).astype(np.uint8)


def _chromatin(
    kind: NucleusKind, x: np.ndarray, y: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    texture = np.zeros_like(x)
    for _ in range(3):
        turn = generator.uniform(0, 2 * np.pi)
        wave = 2 * np.pi / generator.uniform(1.8, 4.5)
        phase = generator.uniform(0, 2 * np.pi)
        along = np.float32(np.cos(turn) * wave) * x + np.float32(np.sin(turn) * wave) * y
        texture += np.cos(along + np.float32(phase))
    return 1 + np.float32(kind.coarse / 1.7) * texture


def _nucleoli(
    kind: NucleusKind, x: np.ndarray, y: np.ndarray, scale: float, generator: np.random.Generator
) -> np.ndarray:
    spots = np.zeros_like(x)
    if kind.nucleolus <= 0:
        return spots
    for _ in range(generator.integers(1, 3)):
        reach = kind.width_um * scale * 0.22
        at_x, at_y = generator.uniform(-reach, reach, 2)
        size = generator.uniform(0.8, 1.3)
        distance = (x - np.float32(at_x)) ** 2 + (y - np.float32(at_y)) ** 2
        spots += np.exp(-distance / np.float32(2 * size**2))
    return np.float32(kind.nucleolus) * np.minimum(spots, 1)
