"""Row 2, synthetic: a slide's scene goes in, the pixels of any block come out.

A block's pixels depend on nothing but the slide's seed and the block's place: blocks can be
rendered in any order, by any number of threads, and join without seams.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from zoommil.synthetic.placing import LARGEST_PLACE_PX, Placement, crop
from zoommil.synthetic.scene import GlandLayer, SlideScene
from zoommil.synthetic.stains import develop

_BENT = 3.0  # how much more than glands the stroma is displaced


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

    if width <= LARGEST_PLACE_PX and height <= LARGEST_PLACE_PX:
        return _render(Placement.of(scene, x, y, width, height))
    pixels = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, LARGEST_PLACE_PX):
        for left in range(0, width, LARGEST_PLACE_PX):
            part = pixels[top : top + LARGEST_PLACE_PX, left : left + LARGEST_PLACE_PX]
            at = (x + left, y + top)
            part[:] = _render(Placement.of(scene, *at, part.shape[1], part.shape[0]))
    return pixels


def _render(place: Placement) -> np.ndarray:
    import cv2

    scene = place.scene
    edge = place.wrapped(scene.edge_um, "edge")
    hematoxylin, eosin = _stroma(place, edge)
    hematoxylin, eosin = _add_fat(place, edge, hematoxylin, eosin)
    density = place.coarse(scene.maps.lymphocytes)
    eosin = cv2.multiply(eosin, cv2.bitwise_not(density // 2), scale=1 / 255)
    cells = place.wrapped(scene.lymphocytes.hematoxylin, "lymphocytes")
    rank = place.wrapped(scene.lymphocytes.rank, "lymphocytes")
    shown = cv2.bitwise_and(cells, cv2.compare(density, rank, cv2.CMP_GT))
    hematoxylin = cv2.max(hematoxylin, shown)
    for layer in scene.glands:
        if place.holds(layer.density):
            hematoxylin, eosin = _add_glands(place, layer, hematoxylin, eosin)
    depth = place.coarse(scene.maps.depth_um) + edge
    tissue = np.clip(depth * np.float32(255 / 3.0) + 128, 0, 255).astype(np.uint8)
    hematoxylin = cv2.multiply(
        hematoxylin, place.coarse(scene.maps.hematoxylin_tint), scale=1 / 128
    )
    eosin = cv2.multiply(eosin, place.coarse(scene.maps.eosin_tint), scale=1 / 128)
    hematoxylin = cv2.multiply(hematoxylin, tissue, scale=1 / 255)
    eosin = cv2.multiply(eosin, tissue, scale=1 / 255)
    return _add_noise(develop(hematoxylin, eosin, scene.table), scene, place.x, place.y)


def _stroma(place: Placement, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two stretches of the collagen swatch, one turned, woven into one another."""
    import cv2

    swatch, origins = place.scene.stroma, place.scene.origins
    weave = place.coarse(place.scene.maps.weave).astype(np.float32)
    weave = np.clip((weave - 128 + edge * 4) * 3 + 128, 0, 255).astype(np.uint8)
    maps = place.look_up(_BENT)
    looks = []
    for is_turned, is_needed in ((False, weave.min() < 255), (True, weave.max() > 0)):
        if not is_needed:
            continue
        origin = origins["turned stroma" if is_turned else "stroma"]
        planes = [
            place.around(plane, origin, _BENT, is_turned=is_turned)
            for plane in (swatch.hematoxylin, swatch.eosin)
        ]
        looks.append(cv2.split(cv2.remap(cv2.merge(planes), *maps, cv2.INTER_LINEAR)))
    if len(looks) == 1:
        return looks[0][0], looks[0][1]
    (first_h, first_e), (second_h, second_e) = looks
    return _blend(first_h, second_h, weave), _blend(first_e, second_e, weave)


def _add_fat(
    place: Placement, edge: np.ndarray, hematoxylin: np.ndarray, eosin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    scene = place.scene
    fat = place.coarse(scene.maps.fat)
    if fat.max() <= 96:
        return hematoxylin, eosin
    cover = np.clip((fat.astype(np.float32) - 128 + edge * 3) * 5 + 128, 0, 255).astype(np.uint8)
    own = place.swayed((scene.fat.hematoxylin, scene.fat.eosin), scene.origins["fat"])
    return _blend(hematoxylin, own[0], cover), _blend(eosin, own[1], cover)


def _add_glands(
    place: Placement, layer: GlandLayer, hematoxylin: np.ndarray, eosin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    import cv2

    swatch = layer.swatch
    own = (swatch.hematoxylin[layer.kind], swatch.eosin, swatch.cover)
    own_h, own_e, cover = place.swayed(own, layer.origin)
    number = place.swayed_nearest(swatch.number, layer.origin)
    shown = np.take(_shown_glands(place, layer), number)
    rest = cv2.bitwise_not(cv2.bitwise_and(cover, shown))
    hematoxylin = cv2.multiply(hematoxylin, rest, scale=1 / 255)
    eosin = cv2.multiply(eosin, rest, scale=1 / 255)
    return (
        cv2.add(hematoxylin, cv2.bitwise_and(own_h, shown)),
        cv2.add(eosin, cv2.bitwise_and(own_e, shown)),
    )


def _shown_glands(place: Placement, layer: GlandLayer) -> np.ndarray:
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


def _add_noise(pixels: np.ndarray, scene: SlideScene, x: int, y: int) -> np.ndarray:
    import cv2

    height, width = pixels.shape[:2]
    more, less = (crop(plane, x, y, width, height) for plane in scene.noise)
    return cv2.subtract(cv2.add(pixels, more), less)
