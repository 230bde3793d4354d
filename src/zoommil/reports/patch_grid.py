"""Row 13, patch grid: two counts come in; a picture of one as a part of the other goes out."""

from __future__ import annotations

import math

_MOST_CELLS = 900
_CELL = 10.0
_GAP = 2.2
_SHAPE = 1.35  # columns over rows


def draw_patch_grid(read: float, every: float) -> str:
    """A square for each patch, or for each so many, those that were read filled, as SVG."""
    each = max(1.0, every / _MOST_CELLS)
    num_cells = max(1, round(max(every, read) / each))
    num_read = min(num_cells, max(1 if read > 0 else 0, round(read / each)))
    columns = max(1, math.ceil(math.sqrt(num_cells * _SHAPE)))
    rows = math.ceil(num_cells / columns)
    side = _CELL - _GAP
    groups = {"all": range(num_read, num_cells), "read": range(num_read)}
    parts = []
    for name, cells in groups.items():
        squares = "".join(
            f"M{cell % columns * _CELL:g},{cell // columns * _CELL:g}h{side:g}v{side:g}h-{side:g}z"
            for cell in cells
        )
        parts.append(f'<path class="{name}" d="{squares}"/>')
    width, height = columns * _CELL - _GAP, rows * _CELL - _GAP
    name = f"{num_read} of {num_cells} squares are filled"
    return (
        f'<svg class="grid-of-patches" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{name}">{"".join(parts)}</svg>'
    )
