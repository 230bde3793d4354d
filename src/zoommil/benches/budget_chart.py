"""Row 16, bench budget: points of accuracy and cost come in, an SVG goes out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

COLOURS = ("#1f6feb", "#d9822b", "#2e8b57", "#7a5195")
MARKS = ("o", "s", "^", "D")


def draw(points: Sequence[Mapping[str, Any]], everything: float, num_slides: int) -> str:
    """A line of weighted F1 over mean GFLOPs for each way to look at less; the same every time.

    Args:
        points: way, gflops and weighted_f1 of each; the first is the model without limits.
        everything: GFLOPs of encoding all of the highest magnification.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "zoommil",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        _lines(axes, points[1:])
        model = points[0]
        axes.plot(
            model["gflops"], model["weighted_f1"], "*", ms=15, color="black", label=model["way"]
        )
        axes.axvline(everything, color="#888888", linestyle=":", label="encoding everything")
        axes.set_xscale("log")
        axes.set_xlabel("GFLOP a slide, mean (2 per multiply-accumulate)")
        axes.set_ylabel(f"weighted F1, {num_slides} slides")
        axes.grid(True, which="major", color="#e5e5e5")
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=9)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _lines(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    for number, way in enumerate(dict.fromkeys(point["way"] for point in points)):
        mine = [point for point in points if point["way"] == way]
        mine.sort(key=lambda point: point["gflops"])
        axes.plot(
            [point["gflops"] for point in mine],
            [point["weighted_f1"] for point in mine],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKS[number % len(MARKS)],
            markersize=5,
            linewidth=1.5,
            label=way.replace("_", " "),
        )
