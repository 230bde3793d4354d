"""Row 2, synthetic: a slide's maps and swatches go in, the pixels of any block come out.

A block's pixels depend on nothing but the slide's seed and the block's place: blocks can be
rendered in any order, by any number of threads, and join without seams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8, UInt32

from zoommil.synthetic.glands import GlandSwatch
from zoommil.synthetic.stains import develop
from zoommil.synthetic.textures import RankedSwatch, Swatch
from zoommil.synthetic.tissue_shapes import TissueMaps

NOISE_PX = 256  # the period of the scanner's noise: a tile, so that bare tiles are all alike
_MARGIN_UM = 80.0  # the largest displacement of a texture
_BENT = 3.0  # how much more the stroma is displaced


@dataclass(frozen=True)
class GlandLayer:
    """Glands to show where ``density`` at their centre exceeds their rank."""

    density: UInt8[np.ndarray, "height width"]
    swatch: GlandSwatch
    kind: str
    origin: tuple[int, int]


@dataclass(frozen=True)
class SlideScene:
    """All that the pixels of one slide are made from."""

    mpp: float
    maps: TissueMaps
    stroma: Swatch
    fat: Swatch
    lymphocytes: RankedSwatch
    glands: tuple[GlandLayer, ...]
    edge_um: Float32[np.ndarray, "side side"]
    noise: tuple[UInt8[np.ndarray, "256 256 3"], UInt8[np.ndarray, "256 256 3"]]
    table: UInt32[np.ndarray, "65536"]
    origins: tuple[tuple[int, int], ...]  # of stroma, fat, lymphocytes, edge


def has_tissue(scene: SlideScene, x: int, y: int, width: int, height: int) -> bool:
    """Whether a box of level-0 pixels may hold anything but bare glass."""
    um = scene.maps.um_per_px / scene.mpp
    depth = scene.maps.depth_um
    top, left = max(0, int(y / um) - 2), max(0, int(x / um) - 2)
    part = depth[top : int((y + height) / um) + 3, left : int((x + width) / um) + 3]
    return bool(part.size and part.max() > -60.0)


def bare_glass(scene: SlideScene, width: int, height: int) -> UInt8[np.ndarray, "height width 3"]:
    """Pixels of a box without tissue whose corner lies on the noise's period."""
    empty = np.zeros((height, width), np.uint8)
    return _add_noise(develop(empty, empty, scene.table), scene, 0, 0)


def render_block(
    scene: SlideScene, x: int, y: int, width: int, height: int
) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a box at level 0; ``x`` and ``y`` may be any whole numbers."""
    import cv2

    place = _Place.of(scene, x, y, width, height)
    tissue = place.tissue_cover()
    hematoxylin, eosin = place.stroma()
    fat = place.coarse(scene.maps.fat)
    if fat.max() > 96:
        cover = np.clip((fat.astype(np.float32) - 128 + place.edge * 3) * 5 + 128, 0, 255)
        cover = cover.astype(np.uint8)
        planes = place.warped((scene.fat.hematoxylin, scene.fat.eosin), scene.origins[1])
        hematoxylin = _blend(hematoxylin, planes[0], cover)
        eosin = _blend(eosin, planes[1], cover)
    density = place.coarse(scene.maps.lymphocytes)
    eosin = cv2.multiply(eosin, cv2.bitwise_not(density // 2), scale=1 / 255)
    cells, rank = place.wrapped((scene.lymphocytes.hematoxylin, scene.lymphocytes.rank), 2)
    shown = cv2.bitwise_and(cells, cv2.compare(density, rank, cv2.CMP_GT))
    hematoxylin = cv2.max(hematoxylin, shown)
    for layer in scene.glands:
        if place.holds(layer.density):
            hematoxylin, eosin = _add_glands(place, layer, hematoxylin, eosin)
    tint = place.coarse(scene.maps.hematoxylin_tint)
    hematoxylin = cv2.multiply(cv2.multiply(hematoxylin, tint, scale=1 / 128), tissue, scale=1 / 255)
    tint = place.coarse(scene.maps.eosin_tint)
    eosin = cv2.multiply(cv2.multiply(eosin, tint, scale=1 / 128), tissue, scale=1 / 255)
    return _add_noise(develop(hematoxylin, eosin, scene.table), scene, x, y)


@dataclass
class _Place:
    """One block's geometry: where its pixels lie on the coarse maps and in the swatches."""

    scene: SlideScene
    x: int
    y: int
    width: int
    height: int
    edge: np.ndarray
    sway: np.ndarray  # displacement in px, height x width x (x, y)
    maps: tuple[np.ndarray, np.ndarray]  # where to look in a crop with the margin around it
    margin: int

    @staticmethod
    def of(scene: SlideScene, x: int, y: int, width: int, height: int) -> _Place:
        import cv2

        margin = int(_MARGIN_UM / scene.mpp) + 2
        nothing = np.empty(0)
        place = _Place(scene, x, y, width, height, nothing, nothing, (nothing, nothing), margin)
        (place.edge,) = place.wrapped((scene.edge_um,), 3)
        place.sway = place.coarse(scene.maps.sway_um) * np.float32(1 / scene.mpp)
        np.clip(place.sway, 2 - margin, margin - 2, out=place.sway)
        place.maps = place.look_up(1.0)
        return place

    def look_up(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """Where the pixels look in a crop that has the margin, times the strength, around it."""
        import cv2

        margin = round(self.margin * strength)
        where = self.sway * np.float32(strength)
        where[..., 0] += np.arange(self.width, dtype=np.float32) + margin
        where[..., 1] += (np.arange(self.height, dtype=np.float32) + margin)[:, None]
        first, second = cv2.convertMaps(where, None, cv2.CV_16SC2)
        return first, second

    def stroma(self) -> list[np.ndarray]:
        """Two stretches of the collagen swatch, one turned, woven into one another."""
        import cv2

        swatch, origins = self.scene.stroma, self.scene.origins
        margin = round(self.margin * _BENT)
        size = (self.width + 2 * margin, self.height + 2 * margin)
        weave = self.coarse(self.scene.maps.weave).astype(np.float32)
        weave = np.clip((weave - 128 + self.edge * 4) * 3 + 128, 0, 255).astype(np.uint8)
        planes = (swatch.hematoxylin, swatch.eosin)
        maps = self.look_up(_BENT)
        looks = []
        for is_turned, origin in ((False, origins[0]), (True, origins[6])):
            if weave.max() == 0 if is_turned else weave.min() == 255:
                continue
            left, top = self.x + origin[0] - margin, self.y + origin[1] - margin
            if is_turned:
                parts = [_crop(plane, top, left, size[1], size[0]).T for plane in planes]
            else:
                parts = [_crop(plane, left, top, *size) for plane in planes]
            looks.append(cv2.split(cv2.remap(cv2.merge(parts), *maps, cv2.INTER_LINEAR)))
        if len(looks) == 1:
            return list(looks[0])
        return [_blend(below, above, weave) for below, above in zip(*looks, strict=True)]

    def coarse(self, field: np.ndarray) -> np.ndarray:
        """A coarse map at every pixel of the block."""
        import cv2

        step = self.scene.mpp / self.scene.maps.um_per_px
        every = 4 if step < 0.125 and self.width % 4 == 0 and self.height % 4 == 0 else 1
        step *= every
        matrix = np.array(
            [
                [step, 0, (self.x + every / 2) * step / every - 0.5],
                [0, step, (self.y + every / 2) * step / every - 0.5],
            ]
        )
        pad = 1 if every > 1 else 0
        matrix[:, 2] -= pad * step
        size = (self.width // every + 2 * pad, self.height // every + 2 * pad)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        part, offset = self._near(field)
        matrix[:, 2] -= offset
        sampled = cv2.warpAffine(part, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        if every == 1:
            return sampled
        size = (size[0] * every, size[1] * every)
        full = cv2.resize(sampled, size, interpolation=cv2.INTER_LINEAR)
        return np.ascontiguousarray(full[every:-every, every:-every])

    def _near(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step = self.scene.mpp / self.scene.maps.um_per_px
        left, top = max(0, int(self.x * step) - 4), max(0, int(self.y * step) - 4)
        left, top = min(left, field.shape[1] - 2), min(top, field.shape[0] - 2)
        right, bottom = int((self.x + self.width) * step) + 5, int((self.y + self.height) * step) + 5
        return field[top:bottom, left:right], np.array([left, top], float)

    def holds(self, field: np.ndarray) -> bool:
        """Whether a coarse map is anywhere above zero in reach of the block."""
        step = self.scene.mpp / self.scene.maps.um_per_px
        reach = 200.0 / self.scene.maps.um_per_px
        left, top = max(0, int(self.x * step - reach)), max(0, int(self.y * step - reach))
        right, bottom = (self.x + self.width) * step, (self.y + self.height) * step
        part = field[top : int(bottom + reach) + 1, left : int(right + reach) + 1]
        return bool(part.size and part.max() > 0)

    def tissue_cover(self) -> np.ndarray:
        depth = self.coarse(self.scene.maps.depth_um) + self.edge
        return np.clip(depth * np.float32(255 / 3.0) + 128, 0, 255).astype(np.uint8)

    def wrapped(self, planes: tuple[np.ndarray, ...], origin: int) -> list[np.ndarray]:
        """The block's part of periodic planes, as they are."""
        at = self.scene.origins[origin]
        return [_crop(plane, self.x + at[0], self.y + at[1], self.width, self.height) for plane in planes]

    def warped(
        self, planes: tuple[np.ndarray, ...], origin: tuple[int, int], *, is_nearest: bool = False
    ) -> list[np.ndarray]:
        """The block's part of periodic planes, swayed."""
        import cv2

        margin = self.margin
        left, top = self.x + origin[0] - margin, self.y + origin[1] - margin
        size = (self.width + 2 * margin, self.height + 2 * margin)
        parts = [_crop(plane, left, top, *size) for plane in planes]
        merged = cv2.merge(parts) if len(parts) > 1 else parts[0]
        method = cv2.INTER_NEAREST if is_nearest else cv2.INTER_LINEAR
        moved = cv2.remap(merged, self.maps[0], None if is_nearest else self.maps[1], method)
        return [moved] if moved.ndim == 2 or len(parts) == 1 else list(cv2.split(moved))


def _add_glands(
    place: _Place, layer: GlandLayer, hematoxylin: np.ndarray, eosin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    import cv2

    swatch = layer.swatch
    own = (swatch.hematoxylin[layer.kind], swatch.eosin, swatch.cover)
    own_h, own_e, cover = place.warped(own, layer.origin)
    (number,) = place.warped((swatch.number,), layer.origin, is_nearest=True)
    shown = np.take(_shown_glands(place, layer), number)
    rest = cv2.bitwise_not(cv2.bitwise_and(cover, shown))
    hematoxylin = cv2.multiply(hematoxylin, rest, scale=1 / 255)
    eosin = cv2.multiply(eosin, rest, scale=1 / 255)
    return (
        cv2.add(hematoxylin, cv2.bitwise_and(own_h, shown)),
        cv2.add(eosin, cv2.bitwise_and(own_e, shown)),
    )


def _shown_glands(place: _Place, layer: GlandLayer) -> np.ndarray:
    """255 for each gland of the swatch that is shown here: one answer for the whole gland."""
    swatch, maps = layer.swatch, place.scene.maps
    side = swatch.number.shape[0]
    middle = np.array([place.x + place.width / 2, place.y + place.height / 2])
    turns = np.round((middle + layer.origin - swatch.centers) / side)
    centers = swatch.centers + turns * side - layer.origin  # the copy nearest to this block
    at = np.floor(centers * (place.scene.mpp / maps.um_per_px)).astype(np.int64)
    height, width = layer.density.shape
    density = layer.density[np.clip(at[:, 1], 0, height - 1), np.clip(at[:, 0], 0, width - 1)]
    copies = turns.astype(np.int64) * (7919, 104729)
    rank = (np.arange(len(at)) * 2654435761 + copies.sum(1) * 40503) % 4093 % 254
    shown = np.where(density > rank, 255, 0).astype(np.uint8)
    shown[0] = 0
    return shown


def _blend(below: np.ndarray, above: np.ndarray, cover: np.ndarray) -> np.ndarray:
    import cv2

    rest = cv2.multiply(below, cv2.bitwise_not(cover), scale=1 / 255)
    return cv2.add(rest, cv2.multiply(above, cover, scale=1 / 255))


def _crop(plane: np.ndarray, x: int, y: int, width: int, height: int) -> np.ndarray:
    """A box of a periodic plane."""
    side = plane.shape[0]
    x, y = x % side, y % side
    if x + width <= side and y + height <= side:
        return np.ascontiguousarray(plane[y : y + height, x : x + width])
    box = np.empty((height, width, *plane.shape[2:]), plane.dtype)
    for top, bottom, row in _pieces(y, height, side):
        for left, right, column in _pieces(x, width, side):
            part = plane[row : row + bottom - top, column : column + right - left]
            box[top:bottom, left:right] = part
    return box


def _pieces(start: int, length: int, side: int) -> list[tuple[int, int, int]]:
    """Begin and end in the box, and begin in the period, of each uninterrupted piece."""
    pieces, done = [], 0
    while done < length:
        at = (start + done) % side
        size = min(side - at, length - done)
        pieces.append((done, done + size, at))
        done += size
    return pieces


def _add_noise(pixels: np.ndarray, scene: SlideScene, x: int, y: int) -> np.ndarray:
    import cv2

    height, width = pixels.shape[:2]
    more, less = (_crop(plane, x, y, width, height) for plane in scene.noise)
    return cv2.subtract(cv2.add(pixels, more), less)
