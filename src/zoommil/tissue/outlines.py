"""Row 3, tissue: rasters come in, polygons with holes come out, and back, exactly.

Polygons run along pixel edges; a pixel is inside when its centre is. So a mask that goes through
polygons comes back as it was (OpenCV's contours run through pixel centres and its filling draws
the border too: neither is exact).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float, Int
from shapely import Polygon
from shapely.geometry.base import BaseGeometry


def outlines_of(mask: Bool[np.ndarray, "height width"]) -> list[Polygon]:
    """The pieces of a mask as polygons with holes in mask pixels, top to bottom."""
    import shapely

    if not mask.any():
        return []
    left, top, right, bottom = _rectangles(mask)
    merged = shapely.union_all(shapely.box(left, top, right, bottom))
    pieces = shapely.get_parts(shapely.simplify(merged, 0))
    return sorted(shapely.normalize(pieces), key=lambda piece: (piece.bounds[1], piece.bounds[0]))


def rasterise(
    polygons: Iterable[BaseGeometry],
    origin: tuple[float, float],
    downsample: float,
    shape: tuple[int, int],
) -> Bool[np.ndarray, "height width"]:
    """The mask whose pixel centres lie in any of the polygons.

    Args:
        polygons: in level-0 pixels; each filled by the even-odd rule, so holes stay empty.
        origin: level-0 (x, y) of the mask's corner.
        downsample: level-0 pixels per mask pixel.
        shape: height and width of the mask.
    """
    import shapely

    mask = np.zeros(shape, dtype=bool)
    for polygon in shapely.get_parts(list(polygons)):
        rings = [polygon.exterior, *polygon.interiors]
        edges = [_edges(np.asarray(ring.coords)[:, :2], origin, downsample) for ring in rings]
        _fill(mask, np.concatenate(edges))
    return mask


def _rectangles(
    mask: Bool[np.ndarray, "height width"],
) -> tuple[Int[np.ndarray, " run"], ...]:
    """Left, top, right, bottom of rectangles that tile the mask: runs, merged down while equal."""
    height, width = mask.shape
    padded = np.zeros((height, width + 2), dtype=np.int8)
    padded[:, 1:-1] = mask
    steps = np.diff(padded, axis=1)
    row, left = np.nonzero(steps == 1)
    _, right = np.nonzero(steps == -1)
    order = np.lexsort((row, right, left))
    row, left, right = row[order], left[order], right[order]
    same = (np.diff(left) == 0) & (np.diff(right) == 0) & (np.diff(row) == 1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    last = np.concatenate([first[1:], [len(row)]]) - 1
    return left[first], row[first], right[first], row[last] + 1


def _edges(
    points: Float[np.ndarray, "point 2"], origin: tuple[float, float], downsample: float
) -> Float[np.ndarray, "edge 4"]:
    """The edges (x, y, next x, next y) of a closed ring, in mask pixels."""
    points = (points - np.asarray(origin)) / downsample
    return np.concatenate([points[:-1], points[1:]], axis=1)


def _fill(mask: Bool[np.ndarray, "height width"], edges: Float[np.ndarray, "edge 4"]) -> None:
    """Set the pixels whose centres are inside, counting the edges crossed left of them."""
    top = max(0, int(np.floor(edges[:, 1].min())))
    bottom = min(mask.shape[0], int(np.ceil(edges[:, 1].max())))
    left = max(0, int(np.floor(edges[:, 0].min())))
    right = min(mask.shape[1], int(np.ceil(edges[:, 0].max())))
    if top >= bottom or left >= right:
        return
    x, y, next_x, next_y = edges.T
    first = np.clip(np.ceil(np.minimum(y, next_y) - 0.5), top, bottom).astype(np.int64)
    last = np.clip(np.ceil(np.maximum(y, next_y) - 0.5), top, bottom).astype(np.int64)
    counts = last - first
    edge = np.repeat(np.arange(len(edges)), counts)
    row = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + first[edge]
    slope = (next_x[edge] - x[edge]) / (next_y[edge] - y[edge])
    crossing = x[edge] + (row + 0.5 - y[edge]) * slope
    column = np.clip(np.ceil(crossing - 0.5), left, right).astype(np.int64)
    width = right - left + 1
    cells = (row - top) * width + column - left
    crossings = np.bincount(cells, minlength=(bottom - top) * width).reshape(-1, width)
    inside = np.cumsum(crossings, axis=1)[:, :-1] % 2 == 1
    mask[top:bottom, left:right] |= inside
