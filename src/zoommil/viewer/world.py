"""Row 15, world: a slide's bounds come in; tile addresses and map coordinates go out.

The bounds lie in the north-west corner of the ordinary tile world of web maps, one level-0 pixel
per world pixel at the highest zoom. So the address of a tile is its deep-zoom address: tile
``(x, y)`` of zoom ``z`` shows the 256 x 256 pixels from ``256 * (x, y)`` on of the slide made
``2 ** (max_zoom - z)`` times smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from zoommil.reports.frame import PictureFrame
from zoommil.slides.slide import Slide

TILE_PX = 256

LatLng = tuple[float, float]
LatLngBox = tuple[LatLng, LatLng]


@dataclass(frozen=True)
class TileWorld:
    """Where a slide lies in the tile world.

    Attributes:
        frame: of the bounds at level 0.
        max_zoom: at which a world pixel is a level-0 pixel.
    """

    frame: PictureFrame
    max_zoom: int

    @classmethod
    def of_bounds(
        cls, bounds: tuple[float, float, float, float], mpp: float | None = None
    ) -> TileWorld:
        """The world of these level-0 bounds (x, y, width, height)."""
        x, y, width, height = bounds
        columns, rows = max(1, math.ceil(width - 1e-6)), max(1, math.ceil(height - 1e-6))
        max_zoom = max(0, math.ceil(math.log2(max(columns, rows) / TILE_PX)))
        return cls(PictureFrame((float(x), float(y)), 1.0, columns, rows, mpp), max_zoom)

    @classmethod
    def of_slide(cls, slide: Slide) -> TileWorld:
        """The world of a slide's bounds."""
        return cls.of_bounds(slide.bounds, slide.mpp)

    def downsample(self, zoom: float) -> float:
        """Level-0 pixels per world pixel at a zoom."""
        return 2.0 ** (self.max_zoom - zoom)

    def tiles_at(self, zoom: int) -> tuple[int, int]:
        """Columns and rows of tiles that show any of the slide at a zoom; (0, 0): no such zoom."""
        if not 0 <= zoom <= self.max_zoom:
            return 0, 0
        side = TILE_PX * self.downsample(zoom)
        return math.ceil(self.frame.width / side), math.ceil(self.frame.height / side)

    def has_tile(self, zoom: int, column: int, row: int) -> bool:
        """Whether a tile shows any of the slide."""
        columns, rows = self.tiles_at(zoom)
        return 0 <= column < columns and 0 <= row < rows

    def corner_of(self, zoom: int, column: int, row: int) -> tuple[float, float]:
        """The level-0 (x, y) of a tile's top-left corner."""
        side = TILE_PX * self.downsample(zoom)
        return self.frame.corner[0] + column * side, self.frame.corner[1] + row * side

    def size_of(self, zoom: int, column: int, row: int) -> tuple[int, int]:
        """Columns and rows of a tile's pixels that show the slide; fewer at its far edges."""
        downsample = self.downsample(zoom)
        width = math.ceil(self.frame.width / downsample - 1e-9) - column * TILE_PX
        height = math.ceil(self.frame.height / downsample - 1e-9) - row * TILE_PX
        return min(TILE_PX, width), min(TILE_PX, height)

    def to_latlng(self, points: Float[np.ndarray, "*any 2"]) -> Float[np.ndarray, "*any 2"]:
        """Level-0 (x, y) as the (latitude, longitude) that web maps put there."""
        share = self.frame.to_picture(points) / (TILE_PX * 2.0**self.max_zoom)
        latitude = np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * share[..., 1]))))
        return np.stack([latitude, 360 * share[..., 0] - 180], axis=-1)

    def to_slide(self, latitude: float, longitude: float) -> tuple[float, float]:
        """(latitude, longitude) as level-0 (x, y)."""
        side = TILE_PX * 2.0**self.max_zoom
        north = math.asinh(math.tan(math.radians(latitude)))
        point = np.array([(longitude + 180) / 360, (1 - north / math.pi) / 2]) * side
        x, y = self.frame.to_slide(point)
        return float(x), float(y)

    def box_of(self, box: Float[np.ndarray, " 4"]) -> LatLngBox:
        """A level-0 (x, y, width, height) as the map's north-west and south-east corners."""
        corners = self.to_latlng(np.stack([box[:2], box[:2] + box[2:]]))
        (north, west), (south, east) = corners.tolist()
        return (north, west), (south, east)

    def whole(self) -> LatLngBox:
        """All of the bounds."""
        return self.box_of(
            np.array([*self.frame.corner, self.frame.width, self.frame.height], float)
        )
