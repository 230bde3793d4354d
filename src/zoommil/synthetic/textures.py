"""Row 2, synthetic: a seed and a resolution go in, the periodic swatches of one slide come out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from zoommil.synthetic.glands import paste_darkest
from zoommil.synthetic.noise import periodic_noise
from zoommil.synthetic.nuclei import KINDS, NUM_ANGLES, draw_nuclei


@dataclass(frozen=True)
class Swatch:
    """A periodic texture: concentrations of both stains."""

    hematoxylin: UInt8[np.ndarray, "side side"]
    eosin: UInt8[np.ndarray, "side side"]


@dataclass(frozen=True)
class RankedSwatch:
    """A periodic field of nuclei with a rank each: shown where the density map exceeds it."""

    hematoxylin: UInt8[np.ndarray, "side side"]
    rank: UInt8[np.ndarray, "side side"]


def draw_stroma(side_px: int, mpp: float, generator: np.random.Generator) -> Swatch:
    """Collagen: wavy eosin fibres with clefts between them and spindle nuclei along them."""
    import cv2

    fine = periodic_noise(side_px, max(3.0 / mpp, 1.5), generator, stretch=9.0)
    bundles = _slow_noise(side_px, 16.0 / mpp, generator, stretch=5.0)
    mottle = _slow_noise(side_px, 60.0 / mpp, generator)
    clefts = np.clip(0.9 * bundles + 0.75 * fine - 1.75, 0, 0.8)
    eosin = 0.40 + 0.075 * fine + 0.06 * bundles + 0.05 * mottle
    hematoxylin = 0.07 + 0.02 * fine + 0.015 * mottle
    open_tissue = np.clip(1.0 - 1.5 * clefts, 0.08, 1.0)
    eosin8 = np.clip(eosin * open_tissue * 100, 0, 255).astype(np.uint8)
    hematoxylin8 = np.clip(hematoxylin * open_tissue * 100, 0, 255).astype(np.uint8)
    _scatter_spindles(hematoxylin8, mpp, generator)
    push = [_slow_noise(side_px, 420.0 / mpp, generator) * (42.0 / mpp) for _ in range(2)]
    axis = np.arange(side_px, dtype=np.float32)
    map_x = (axis[None, :] + push[0]) % side_px
    map_y = (axis[:, None] + push[1]) % side_px
    planes = cv2.merge([hematoxylin8, eosin8])
    padded = cv2.copyMakeBorder(planes, 0, 1, 0, 1, cv2.BORDER_WRAP)
    waved = cv2.remap(padded, map_x, map_y, cv2.INTER_LINEAR)
    hematoxylin8, eosin8 = cv2.split(waved)
    return Swatch(hematoxylin8, eosin8)


def draw_lymphocytes(side_px: int, mpp: float, generator: np.random.Generator) -> RankedSwatch:
    """Round dark nuclei, packed as in a follicle, each with its own rank."""
    pictures = draw_nuclei(KINDS["lymphocyte"], mpp, generator)
    hematoxylin = np.zeros((side_px, side_px), np.uint8)
    rank = np.full((side_px, side_px), 255, np.uint8)
    per_side = int(side_px * mpp / 7.4)
    step = side_px / per_side
    grid = (np.stack(np.meshgrid(np.arange(per_side), np.arange(per_side)), -1) + 0.5) * step
    points = grid.reshape(-1, 2) + generator.normal(0, 0.24 * step, (per_side**2, 2))
    points = np.round(points).astype(int) % side_px
    shapes = generator.integers(0, len(pictures), per_side**2)
    turns = generator.integers(0, NUM_ANGLES, per_side**2)
    ranks = np.sort(generator.integers(1, 255, per_side**2))[::-1].tolist()
    order = generator.permutation(per_side**2).tolist()
    for index, own in zip(order, ranks, strict=True):  # the first to be shown lies on top
        picture = pictures[shapes[index], turns[index]]
        _paste_on_top(hematoxylin, rank, picture, points[index], own)
    return RankedSwatch(hematoxylin, rank)


def draw_fat(side_px: int, mpp: float, generator: np.random.Generator) -> Swatch:
    """Adipose tissue: large empty cells between thin eosin walls."""
    import cv2
    from scipy.spatial import KDTree

    side_um = side_px * mpp
    num = int(side_um**2 / 62.0**2)
    points = generator.uniform(0, side_um, (num, 2))
    for _ in range(2):  # push apart
        distance, index = KDTree(points, boxsize=side_um).query(points, k=2)
        away = points - points[np.asarray(index)[:, 1]]
        away -= side_um * np.round(away / side_um)
        push = np.clip(45.0 - distance[:, 1:], 0, None) / np.maximum(distance[:, 1:], 1e-3)
        points = (points + 0.5 * away * push) % side_um
    coarse = max(8, int(side_um / 3.0))
    axis = (np.arange(coarse) + 0.5) * (side_um / coarse)
    where = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    distance, _ = KDTree(points, boxsize=side_um).query(where, k=2)
    gap = (distance[:, 1] - distance[:, 0]).astype(np.float32).reshape(coarse, coarse)
    pad = 2
    gap = np.pad(gap, pad, mode="wrap")
    scale = side_px / coarse
    matrix = np.array(
        [[1 / scale, 0, 0.5 / scale - 0.5 + pad], [0, 1 / scale, 0.5 / scale - 0.5 + pad]]
    )
    gap = cv2.warpAffine(
        gap, matrix, (side_px, side_px), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    )
    grain = periodic_noise(side_px, 14.0 / mpp, generator)
    wall = np.clip((3.4 + 0.7 * grain - gap) / 2.6, 0, 1)
    eosin = np.clip(wall * (42 + 6 * grain) + 1, 0, 255).astype(np.uint8)
    hematoxylin = np.clip(wall * (9 + 3 * grain), 0, 255).astype(np.uint8)
    return Swatch(hematoxylin, eosin)


def _slow_noise(
    side_px: int, wavelength_px: float, generator: np.random.Generator, *, stretch: float = 1.0
) -> np.ndarray:
    """Periodic noise of long waves, made small and enlarged."""
    import cv2

    every = 1
    while wavelength_px / every > 16 and side_px % (2 * every) == 0 and side_px // every > 128:
        every *= 2
    small = periodic_noise(side_px // every, wavelength_px / every, generator, stretch=stretch)
    if every == 1:
        return small
    padded = np.pad(small, 2, mode="wrap")
    size = padded.shape[0] * every
    large = cv2.resize(padded, (size, size), interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(large[2 * every : -2 * every, 2 * every : -2 * every])


def _paste_on_top(
    plane: np.ndarray, rank: np.ndarray, picture: np.ndarray, center: np.ndarray, own: int
) -> None:
    """Lay a nucleus over all that is there, and its rank with it; its soft rim only on nothing."""
    side, half = plane.shape[0], picture.shape[0] // 2
    x, y = int(center[0]), int(center[1])
    if half <= x < side - half and half <= y < side - half:
        where = (slice(y - half, y + half + 1), slice(x - half, x + half + 1))
    else:
        span = np.arange(-half, half + 1)
        where = np.ix_((y + span) % side, (x + span) % side)
    below = rank[where]
    is_own = (picture > 30) | ((picture > 0) & (below == 255))
    plane[where] = np.where(is_own, picture, plane[where])
    rank[where] = np.where(is_own, own, below)


def _scatter_spindles(plane: np.ndarray, mpp: float, generator: np.random.Generator) -> None:
    """Fibroblast nuclei along x, before the waves bend them with the fibres."""
    pictures = draw_nuclei(KINDS["fibroblast"], mpp, generator)[:, [0, 1, NUM_ANGLES - 1]]
    side = plane.shape[0]
    num = int((side * mpp) ** 2 / 1100.0)
    for x, y in generator.integers(0, side, (num, 2)):
        shape, turn = generator.integers(0, len(pictures)), generator.integers(0, 3)
        paste_darkest(plane, pictures[shape, turn], int(x), int(y))
