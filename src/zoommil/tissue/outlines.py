"""Row 3, tissue: rasters come in, polygons with holes come out, and back, exactly.

Polygons run along pixel edges; a pixel is inside when its centre is. So a mask that goes through
polygons comes back as it was (OpenCV's contours run through pixel centres and its filling draws
the border too: neither is exact).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Bool, Float, Int
from shapely import Polygon
from shapely.geometry.base import BaseGeometry


def outlines_of(mask: Bool[np.ndarray, "height width"]) -> list[Polygon]:
    """The pieces of a mask as valid polygons with holes in mask pixels, top to bottom.

    Pixels that touch at a corner only are separate pieces.
    """
    from scipy import ndimage

    labels = np.zeros(mask.shape, dtype=np.int32)
    ndimage.label(mask, output=labels)
    exteriors: dict[int, np.ndarray] = {}
    holes: dict[int, list[np.ndarray]] = defaultdict(list)
    for ring in _rings(mask):
        label = labels[_pixel_inside(ring)]
        if _is_clockwise(ring):
            exteriors[label] = ring
        else:
            holes[label].append(ring)
    return [Polygon(exteriors[label], holes[label]) for label in sorted(exteriors)]


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


def _rings(mask: Bool[np.ndarray, "height width"]) -> Iterator[Int[np.ndarray, "corner 2"]]:
    """The simple rings (x, y) along pixel edges around a mask, tissue on the right-hand side."""
    start, direction, successor, stride = _directed_edges(mask)
    next_edge, is_done = successor.tolist(), bytearray(len(start))
    for first in range(len(start)):
        if is_done[first]:
            continue
        ring, edge = [], first
        while not is_done[edge]:
            is_done[edge] = True
            ring.append(edge)
            edge = next_edge[edge]
        turns = direction[ring] != np.roll(direction[ring], 1)
        for corners in _simple_rings(start[ring][turns].tolist()):
            rows, columns = np.divmod(np.array(corners), stride)
            yield np.stack([columns, rows], axis=1)


def _directed_edges(
    mask: Bool[np.ndarray, "height width"],
) -> tuple[Int[np.ndarray, " edge"], Int[np.ndarray, " edge"], Int[np.ndarray, " edge"], int]:
    """Every pixel edge between tissue and not: start corner, direction, and the edge after it.

    Corners are numbered row by row with the returned stride; directions are right, down, left, up.
    """
    padded = np.pad(mask, 1)
    stride = mask.shape[1] + 1
    above, below = padded[:-1, 1:-1], padded[1:, 1:-1]
    left, right = padded[1:-1, :-1], padded[1:-1, 1:]
    step = np.array([1, stride, -1, -stride])
    starts = []
    for edges, offset in (
        (below & ~above, 0),
        (left & ~right, 0),
        (above & ~below, 1),
        (right & ~left, stride),
    ):
        row, column = np.nonzero(edges)
        starts.append(row * stride + column + offset)
    start = np.concatenate(starts)
    direction = np.repeat(np.arange(4), [len(part) for part in starts])
    keys = start * 4 + direction
    order = np.argsort(keys)
    end = start + step[direction]
    successor = np.full(len(start), -1)
    for turn in (3, 0, 1):  # a right turn, kept last, wins: it stays with the same pixel
        wanted = end * 4 + (direction + turn) % 4
        place = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        found = keys[order[place]] == wanted if len(keys) else np.zeros(0, dtype=bool)
        successor[found] = order[place[found]]
    return start, direction, successor, stride


def _simple_rings(corners: list[int]) -> list[list[int]]:
    """A ring cut where it touches itself, so that every part passes each corner once."""
    rings, path, place = [], [], {}
    for corner in corners:
        if corner in place:
            rings.append(path[place[corner] :])
            for passed in path[place[corner] + 1 :]:
                del place[passed]
            del path[place[corner] + 1 :]
        else:
            place[corner] = len(path)
            path.append(corner)
    return [*rings, path]


def _pixel_inside(ring: Int[np.ndarray, "corner 2"]) -> tuple[int, int]:
    """Row and column of the tissue pixel on the right-hand side of the ring's first edge."""
    (x, y), (next_x, next_y) = ring[:2].tolist()
    if y == next_y:
        return (y, x) if next_x > x else (y - 1, x - 1)
    return (y, x - 1) if next_y > y else (y - 1, x)


def _is_clockwise(ring: Int[np.ndarray, "corner 2"]) -> bool:
    """Whether a ring turns right on balance, y pointing down: around tissue, not around a hole."""
    x, y = ring.T
    return bool((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() > 0)


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
