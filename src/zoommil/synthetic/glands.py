"""Row 2, synthetic: a style of glands goes in, a periodic swatch of whole glands comes out.

Every gland of a swatch has a number, a centre and a rank, so that a slide shows or hides glands as
wholes by comparing the rank with a density map at the centre.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float64, UInt8, UInt16

from zoommil.synthetic.noise import periodic_noise
from zoommil.synthetic.nuclei import NUM_ANGLES


@dataclass(frozen=True)
class GlandStyle:
    """How glands are built and packed; lengths in microns."""

    radius_um: tuple[float, float]
    gap_um: float
    epithelium_um: float
    goblets: float  # share of the epithelium taken by mucin vacuoles
    elongation: float
    nuclear_spacing_um: float
    scattered: float  # 0: nuclei stand at the base, 1: anywhere in the epithelium


NORMAL_GLANDS = GlandStyle((28.0, 50.0), 7.0, 24.0, 0.55, 1.7, 7.2, 0.25)
CROWDED_GLANDS = GlandStyle((30.0, 60.0), 2.0, 30.0, 0.08, 2.1, 7.4, 0.85)


def style_between(first: GlandStyle, second: GlandStyle, share: float) -> GlandStyle:
    """A style ``share`` of the way from the first to the second."""
    mixed = {}
    for field in fields(GlandStyle):
        one, two = getattr(first, field.name), getattr(second, field.name)
        values = np.asarray(one) + share * (np.asarray(two) - np.asarray(one))
        mixed[field.name] = tuple(values.tolist()) if values.ndim else float(values)
    return GlandStyle(**mixed)


@dataclass(frozen=True)
class GlandSwatch:
    """A periodic field of glands: shape and colour, and which gland is at every pixel.

    ``hematoxylin`` has one plane per kind of nuclei, all over the same cells; all concentrations
    are already multiplied by ``cover``.
    """

    hematoxylin: dict[str, UInt8[np.ndarray, "side side"]]
    eosin: UInt8[np.ndarray, "side side"]
    cover: UInt8[np.ndarray, "side side"]
    number: UInt16[np.ndarray, "side side"]  # 0: none
    centers: Float64[np.ndarray, "gland 2"]  # px; row 0 stands for no gland


@dataclass
class _Canvas:
    side: int
    mpp: float
    hematoxylin: np.ndarray
    eosin: np.ndarray
    cover: np.ndarray
    number: np.ndarray
    nuclei: list[tuple[float, float, float, float]]  # x, y in px, angle, random number


def draw_glands(
    style: GlandStyle,
    nuclei: Mapping[str, UInt8[np.ndarray, "shape angle height width"]],
    side_px: int,
    mpp: float,
    generator: np.random.Generator,
) -> GlandSwatch:
    """A swatch of glands in one style, its nuclei painted once per kind on the same places."""
    planes = [np.zeros((side_px, side_px), np.uint8) for _ in range(3)]
    number = np.zeros((side_px, side_px), np.uint16)
    canvas = _Canvas(side_px, mpp, planes[0], planes[1], planes[2], number, [])
    grain = periodic_noise(side_px, 5.0 / mpp, generator)
    places = place_circles(style.radius_um, style.gap_um, 40, side_px * mpp, generator)
    for index, (x, y, radius) in enumerate(places, start=1):
        _draw_gland(canvas, style, index, (x, y), radius, grain, generator)
    coats = {}
    for kind, pictures in nuclei.items():
        coats[kind] = canvas.hematoxylin.copy()
        for x, y, angle, luck in canvas.nuclei:
            shape = int(luck * len(pictures))
            turn = round(angle / np.pi * NUM_ANGLES) % NUM_ANGLES
            paste_darkest(coats[kind], pictures[shape, turn], round(x), round(y))
        coats[kind] = np.minimum(coats[kind], canvas.cover)  # clear glass stays clear
    centers = np.array([(0.0, 0.0), *((x / mpp, y / mpp) for x, y, _ in places)])
    return GlandSwatch(coats, canvas.eosin, canvas.cover, number, centers)


def paste_darkest(
    plane: UInt8[np.ndarray, "side side"],
    picture: UInt8[np.ndarray, "height width"],
    x: int,
    y: int,
) -> None:
    """Lay a picture centred on (x, y) over a periodic plane, keeping the darker of both."""
    side = plane.shape[0]
    height, width = picture.shape
    top, left = y - height // 2, x - width // 2
    if top >= 0 and left >= 0 and top + height <= side and left + width <= side:
        view = plane[top : top + height, left : left + width]
        np.maximum(view, picture, out=view)
        return
    where = np.ix_(np.arange(top, top + height) % side, np.arange(left, left + width) % side)
    plane[where] = np.maximum(plane[where], picture)


def place_circles(
    radius_um: tuple[float, float],
    gap_um: float,
    effort: int,
    side_um: float,
    generator: np.random.Generator,
) -> list[tuple[float, float, float]]:
    """Circles (x, y, radius) that do not touch on the torus, the larger ones placed first."""
    low, high = radius_um
    num_tries = int(effort * (side_um / (low + high)) ** 2)
    radii = np.sort(generator.uniform(low, high, num_tries))[::-1]
    tries = np.column_stack([generator.uniform(0.0, side_um, (num_tries, 2)), radii])
    kept = np.zeros((0, 3))
    for part in np.array_split(tries, max(1, num_tries // 64)):
        free = part[~_touches(part, kept, side_um, gap_um).any(1)]
        accepted = np.zeros((0, 3))
        for circle in free[:, None]:
            if not _touches(circle, accepted, side_um, gap_um).any():
                accepted = np.concatenate([accepted, circle])
        kept = np.concatenate([kept, accepted])
    return [(float(x), float(y), float(r)) for x, y, r in kept]


def _touches(some: np.ndarray, others: np.ndarray, side_um: float, gap_um: float) -> np.ndarray:
    """Which circles of two lists overlap on the torus."""
    apart = np.abs(some[:, None, :2] - others[None, :, :2])
    apart = np.minimum(apart, side_um - apart)
    need = some[:, None, 2] + others[None, :, 2] + gap_um
    return (apart**2).sum(-1) <= need**2


def _draw_gland(
    canvas: _Canvas,
    style: GlandStyle,
    number: int,
    center_um: tuple[float, float],
    radius_um: float,
    grain: np.ndarray,
    generator: np.random.Generator,
) -> None:
    mpp, side = canvas.mpp, canvas.side
    reach = int((radius_um * 1.18 + 4) / mpp)
    center_x, center_y = round(center_um[0] / mpp), round(center_um[1] / mpp)
    axis = np.arange(-reach, reach + 1)
    where = np.ix_((center_y + axis) % side, (center_x + axis) % side)
    local = (axis * mpp).astype(np.float32)
    outline = _Outline.sample(style, radius_um, generator)
    depth = outline.depth(local[None, :], local[:, None])  # microns inside the gland
    lumen_um = min(style.epithelium_um, radius_um * 0.72) * generator.uniform(0.85, 1.1)
    texture = grain[where]
    cover = np.clip(depth / np.float32(1.6 * mpp**0.5) + 0.5, 0, 1)
    lumen = np.clip((depth - lumen_um + texture * 1.2) / np.float32(2.2), 0, 1)
    mucin = np.float32(generator.uniform(0.02, 0.2) if generator.random() < 0.7 else 0.0)
    cell_h = 0.24 + 0.035 * texture + 0.05 * np.clip(1 - depth / 12, 0, 1)
    cell_e = 0.36 + 0.04 * texture
    rim = np.exp(-(((depth - 1.5) / 2.0) ** 2))
    vacuoles = _vacuoles(style, outline, local, lumen_um, generator)
    body = (1 - lumen) * (1 - vacuoles)
    hematoxylin = body * cell_h + lumen * mucin + (1 - lumen) * vacuoles * 0.10
    eosin = body * cell_e + lumen * mucin * 0.5 + vacuoles * 0.04 + 0.25 * rim
    new = cover > canvas.cover[where] / np.float32(255)
    planes = ((canvas.hematoxylin, hematoxylin), (canvas.eosin, eosin))
    for plane, values in planes:
        painted = np.clip(values * cover * 100 + 0.5, 0, 255).astype(np.uint8)
        plane[where] = np.where(new, painted, plane[where])
    canvas.cover[where] = np.where(new, (cover * 255).astype(np.uint8), canvas.cover[where])
    canvas.number[where] = np.where(new, number, canvas.number[where])
    _line_with_nuclei(canvas, style, outline, center_um, lumen_um, generator)


@dataclass(frozen=True)
class _Outline:
    radius_um: float
    amplitudes: np.ndarray
    phases: np.ndarray
    squeeze: float
    angle: float

    @staticmethod
    def sample(style: GlandStyle, radius_um: float, generator: np.random.Generator) -> _Outline:
        amplitudes = generator.normal(0.0, 1.0, 4) * np.array([0.05, 0.04, 0.03, 0.02])
        squeeze = float(generator.uniform(1.0, style.elongation))
        angle = float(generator.uniform(0, np.pi))
        phases = generator.uniform(0, 2 * np.pi, 4)
        return _Outline(radius_um, amplitudes, phases, squeeze, angle)

    def radius_at(self, turn: np.ndarray) -> np.ndarray:
        bumps = np.float32(self.amplitudes[0]) * np.cos(2 * turn + np.float32(self.phases[0]))
        for order, amplitude, phase in zip(
            (3, 4, 6), self.amplitudes[1:], self.phases[1:], strict=True
        ):
            bumps += np.float32(amplitude) * np.cos(order * turn + np.float32(phase))
        return np.float32(self.radius_um) * np.minimum(1 + bumps, np.float32(1.15))

    def depth(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        cos, sin = np.float32(np.cos(self.angle)), np.float32(np.sin(self.angle))
        along, across = x * cos + y * sin, (y * cos - x * sin) * np.float32(self.squeeze)
        distance = np.sqrt(along**2 + across**2)
        inside = self.radius_at(np.arctan2(across, along)) - distance
        return inside / np.float32(0.5 + 0.5 * self.squeeze)

    def points(self, turn: np.ndarray, depth_um: np.ndarray) -> np.ndarray:
        distance = self.radius_at(turn) - depth_um * (0.5 + 0.5 * self.squeeze)
        distance = np.maximum(distance, 1.0)
        along, across = distance * np.cos(turn), distance * np.sin(turn) / self.squeeze
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return np.stack([along * cos - across * sin, along * sin + across * cos], -1)


def _vacuoles(
    style: GlandStyle,
    outline: _Outline,
    local: np.ndarray,
    lumen_um: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Where goblet cells hold pale mucin, 0..1."""
    pale = np.zeros((len(local), len(local)), np.float32)
    num = generator.poisson(style.goblets * 2 * np.pi * outline.radius_um / 11)
    step = local[1] - local[0]
    places = outline.points(
        generator.uniform(0, 2 * np.pi, num), lumen_um - generator.uniform(2.0, 8.0, num)
    )
    for (x, y), size in zip(places, generator.uniform(3.5, 6.5, num), strict=True):
        reach = int(size / step) + 2
        column, row = round((x - local[0]) / step), round((y - local[0]) / step)
        rows = slice(max(0, row - reach), max(0, row + reach + 1))
        columns = slice(max(0, column - reach), max(0, column + reach + 1))
        distance = np.hypot(local[None, columns] - x, local[rows, None] - y)
        spot = np.clip((size - distance) / 1.2, 0, 1).astype(np.float32)
        pale[rows, columns] = np.maximum(pale[rows, columns], spot)
    return pale


def _line_with_nuclei(
    canvas: _Canvas,
    style: GlandStyle,
    outline: _Outline,
    center_um: tuple[float, float],
    lumen_um: float,
    generator: np.random.Generator,
) -> None:
    """Note the nuclei of one gland: rows of cells along the outline, jittered, none too near."""
    num_layers = max(1, int((lumen_um - 6) * style.scattered / 8) + 1)
    spacing = style.nuclear_spacing_um
    around = np.linspace(0, 2 * np.pi, 97)
    for layer in range(num_layers):
        depth = 6.5 + 8.0 * layer
        ring = outline.points(around, np.full(97, depth))
        length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(ring, axis=0).T))])
        num = max(3, int(length[-1] / spacing))
        steps = np.arange(num) + generator.uniform(-0.28, 0.28, num) + 0.5 * (layer % 2)
        turns = np.interp(steps % num * (length[-1] / num), length, around)
        depths = depth + generator.normal(0.0, 1.2, num)
        places, inner = outline.points(turns, depths), outline.points(turns, depths + 2.0)
        angles = np.arctan2(*(inner - places).T[::-1]) % np.pi
        at = (places + center_um) / canvas.mpp
        luck = generator.random(num)
        canvas.nuclei += zip(*at.T.tolist(), angles.tolist(), luck.tolist(), strict=True)
