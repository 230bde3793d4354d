"""Row 2, synthetic: a block of a slide goes in; its part of any coarse map or swatch comes out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zoommil.synthetic.scene import SlideScene

LARGEST_PLACE_PX = 512  # a block, with what reaches into it, must be smaller than a swatch
MARGIN_UM = 80.0  # the largest displacement of a texture
REACH_UM = 200.0  # the farthest that the map at a gland's centre matters


@dataclass(frozen=True)
class Placement:
    """One block's geometry: where its pixels lie on the coarse maps and in the swatches."""

    scene: SlideScene
    x: int
    y: int
    width: int
    height: int
    margin: int  # px, of a crop around the block, so that displaced pixels are in it
    sway: np.ndarray  # displacement in px, height x width x (x, y)

    @staticmethod
    def of(scene: SlideScene, x: int, y: int, width: int, height: int) -> Placement:
        """The geometry of a box at level 0."""
        margin = int(MARGIN_UM / scene.mpp) + 2
        still = Placement(scene, x, y, width, height, margin, np.empty(0))
        sway = still.coarse(scene.maps.sway_um) * np.float32(1 / scene.mpp)
        return replace(still, sway=np.clip(sway, 2 - margin, margin - 2))

    def look_up(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """Where the pixels look in a crop that has the margin, times the strength, around it."""
        import cv2

        margin = round(self.margin * strength)
        where = self.sway * np.float32(strength)
        where[..., 0] += np.arange(self.width, dtype=np.float32) + margin
        where[..., 1] += (np.arange(self.height, dtype=np.float32) + margin)[:, None]
        first, second = cv2.convertMaps(where[..., 0], where[..., 1], cv2.CV_16SC2)
        return first, second

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
        right, bottom = (
            int((self.x + self.width) * step) + 5,
            int((self.y + self.height) * step) + 5,
        )
        return field[top:bottom, left:right], np.array([left, top], float)

    def holds(self, field: np.ndarray) -> bool:
        """Whether a coarse map is anywhere above zero in reach of the block."""
        step = self.scene.mpp / self.scene.maps.um_per_px
        reach = REACH_UM / self.scene.maps.um_per_px
        left, top = max(0, int(self.x * step - reach)), max(0, int(self.y * step - reach))
        right, bottom = (self.x + self.width) * step, (self.y + self.height) * step
        part = field[top : int(bottom + reach) + 1, left : int(right + reach) + 1]
        return bool(part.size and part.max() > 0)

    def wrapped(self, plane: np.ndarray, name: str) -> np.ndarray:
        """The block's part of a periodic plane, as it is."""
        x, y = self.scene.origins[name]
        return crop(plane, self.x + x, self.y + y, self.width, self.height)

    def around(
        self,
        plane: np.ndarray,
        origin: tuple[int, int],
        strength: float,
        *,
        is_turned: bool = False,
    ) -> np.ndarray:
        """The block's part of a periodic plane with the margin, times the strength, around it.

        Turned: of the plane's transpose, by transposing the part; to cut it from the transpose
        would jump through all of the plane's memory.
        """
        import cv2

        margin = round(self.margin * strength)
        left, top = self.x + origin[0] - margin, self.y + origin[1] - margin
        width, height = self.width + 2 * margin, self.height + 2 * margin
        if is_turned:
            return cv2.transpose(crop(plane, top, left, height, width))
        return crop(plane, left, top, width, height)

    def swayed(self, planes: tuple[np.ndarray, ...], origin: tuple[int, int]) -> list[np.ndarray]:
        """The block's part of periodic planes, displaced."""
        import cv2

        parts = [self.around(plane, origin, 1.0) for plane in planes]
        return list(cv2.split(cv2.remap(cv2.merge(parts), *self.look_up(1.0), cv2.INTER_LINEAR)))

    def swayed_nearest(self, plane: np.ndarray, origin: tuple[int, int]) -> np.ndarray:
        """The block's part of a periodic plane of numbers, displaced."""
        import cv2

        part, maps = self.around(plane, origin, 1.0), self.look_up(1.0)
        return cv2.remap(part, *maps, cv2.INTER_NEAREST)


def crop(plane: np.ndarray, x: int, y: int, width: int, height: int) -> np.ndarray:
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
