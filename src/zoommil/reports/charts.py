"""Row 13, charts: numbers come in; small SVG charts go out that take their colours from the page.

No colour is written here: classes of the page's style sheet (``line-0``, ``axis``) say what a
stroke is, so that charts follow dark mode and print. Series differ in their dashes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Bool, Float

NUM_STYLES = 6


@dataclass(frozen=True)
class Series:
    """A line: its name in the key, and its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Range:
    """A share that was seen in some rows: a point with an interval."""

    x: float
    y: float
    low: float
    high: float
    num: int


@dataclass(frozen=True)
class Axes:
    """Where data lies in a chart of 360 x 280 units."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_title: str
    y_title: str
    width: int = 360
    height: int = 280
    left: int = 46
    right: int = 12
    top: int = 10
    bottom: int = 40

    def place(self, x: float, y: float) -> tuple[float, float]:
        """A point in the chart's units."""
        across = self.width - self.left - self.right
        down = self.height - self.top - self.bottom
        share_x = (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        share_y = (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        return self.left + share_x * across, self.top + (1 - share_y) * down

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """A polyline through points; those that are not finite are left out."""
        points = [self.place(*pair) for pair in zip(x, y, strict=True) if np.isfinite(pair).all()]
        return "M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in points) if points else ""

    def lines(self) -> Iterator[str]:
        """Grid, ticks and titles."""
        bottom = self.height - self.bottom
        for value in ticks(*self.y_range):
            _, y = self.place(self.x_range[0], value)
            yield f'<path class="grid" d="M{self.left},{y:.1f} H{self.width - self.right}"/>'
            yield f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in ticks(*self.x_range):
            x, _ = self.place(value, self.y_range[0])
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        yield f'<path class="axis" d="M{self.left},{bottom} H{self.width - self.right}"/>'
        middle = (self.left + self.width - self.right) / 2
        yield (
            f'<text class="title" x="{middle:.0f}" y="{self.height - 6}" '
            f'text-anchor="middle">{escape(self.x_title)}</text>'
        )
        middle = (self.top + bottom) / 2
        yield (
            f'<text class="title" transform="translate(12 {middle:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.y_title)}</text>'
        )


def line_chart(
    series: Sequence[Series],
    axes: Axes,
    name: str,
    *,
    diagonal: bool = False,
    marker: float | None = None,
) -> str:
    """Lines over one pair of axes.

    Args:
        series: the lines; those beyond the page's styles share them again.
        axes: ranges and titles.
        name: what the chart shows, for readers who do not see it.
        diagonal: draw what chance, or perfection, would give.
        marker: an x to mark, as the epoch that was kept.
    """
    parts = list(axes.lines())
    if diagonal:
        parts.append(f'<path class="ideal" d="{axes.path(axes.x_range, axes.y_range)}"/>')
    if marker is not None:
        parts.append(f'<path class="mark" d="{axes.path((marker, marker), axes.y_range)}"/>')
    for number, one in enumerate(series):
        style = f"line line-{number % NUM_STYLES}"
        parts.append(
            f'<path class="{style}" d="{axes.path(one.x, one.y)}">'
            f"<title>{escape(one.name)}</title></path>"
        )
    return _chart(parts, axes, name)


def reliability_chart(points: Sequence[Range], name: str) -> str:
    """How often answers of a confidence were right, with intervals, beside the diagonal."""
    axes = Axes((0, 1), (0, 1), "confidence of the answer", "share that was right")
    parts = [
        *axes.lines(),
        f'<path class="ideal" d="{axes.path((0, 1), (0, 1))}"/>',
    ]
    most = max((point.num for point in points), default=1)
    for point in points:
        x, y = axes.place(point.x, point.y)
        radius = 4 + 5 * np.sqrt(point.num / most)
        what = f"{point.num} answers of confidence {point.x:.2f}: {point.y:.0%} right"
        parts.append(
            f'<path class="whisker" d="{axes.path((point.x, point.x), (point.low, point.high))}"/>'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{escape(what)}</title></circle>"
        )
    return _chart(parts, axes, name)


def reliability_points(
    confidence: Float[np.ndarray, " row"], is_right: Bool[np.ndarray, " row"], num_bins: int = 10
) -> list[Range]:
    """The share that was right in each bin of confidence that has answers."""
    from zoommil.reports.localisation import wilson_interval

    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    points = []
    for index in np.unique(bins):
        rows = bins == index
        num, hits = int(rows.sum()), int(is_right[rows].sum())
        low, high = wilson_interval(hits, num)
        points.append(Range(float(confidence[rows].mean()), hits / num, low, high, num))
    return points


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, not more than wanted."""
    span = high - low
    power = 10.0 ** np.floor(np.log10(span / most))
    step = next(part * power for part in (1, 2, 5, 10) if span / (part * power) <= most)
    first = np.ceil(low / step - 1e-9) * step
    found = np.arange(first, high + step * 1e-6, step)
    return [float(f"{value:.10g}") + 0.0 for value in found]  # never -0


def _chart(parts: Sequence[str], axes: Axes, name: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {axes.width} {axes.height}" role="img" '
        f'aria-label="{escape(name, quote=True)}">{"".join(parts)}</svg>'
    )
