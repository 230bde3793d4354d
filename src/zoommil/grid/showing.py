"""Row 4, showing: a patch pyramid comes in; how notebooks show it goes out, as HTML or on axes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from zoommil.slides.showing import HTML_PX, level_0_axes, side_by_side
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zoommil.grid.pyramid import PatchPyramid

STEP_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#56b4e9", "#cc79a7")
"""One for each step, Okabe-Ito; lines also grow thinner from step to step."""


def pyramid_html(pyramid: PatchPyramid) -> str:
    """The patches of every step as a drawing, and how many there are."""
    facts = [
        (magnification_label(step.magnification), _counted(int(step.valid.sum()), len(step)))
        for step in pyramid.steps
    ]
    facts.append(("patches of", f"{pyramid.spec.patch_px} px; {pyramid.spec.scale} scale"))
    facts += [("note", warning) for warning in pyramid.warnings]
    groups = [
        (f'fill="none" stroke="{STEP_COLOURS[m % len(STEP_COLOURS)]}" '
         f'stroke-width="{_line(m)}" vector-effect="non-scaling-stroke"', step.boxes[step.valid])
        for m, step in reversed(list(enumerate(pyramid.steps)))
    ]  # fmt: skip
    drawing = boxes_svg(groups, "Patches of every step")
    return side_by_side("Patch pyramid", drawing, facts)


def plot_pyramid(
    pyramid: PatchPyramid, axes: Axes | None = None, steps: Sequence[int] | None = None
) -> Axes:
    """Outline the patches of some steps (all without a choice) on axes of level-0 pixels."""
    axes = level_0_axes(axes)
    for m, step in enumerate(pyramid.steps):
        if steps is None or m in steps:
            colour = STEP_COLOURS[m % len(STEP_COLOURS)]
            label = magnification_label(step.magnification)
            add_boxes(axes, step.boxes[step.valid], edgecolor=colour, linewidth=_line(m),
                      facecolor="none", label=label)  # fmt: skip
    axes.legend(loc="upper right")
    return axes


def add_boxes(axes: Axes, boxes: Float[np.ndarray, "box 4"], **style: object) -> None:
    """Draw level-0 boxes in one collection, and let the axes show all of them."""
    from matplotlib.collections import PolyCollection

    x, y, width, height = boxes.T
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
    squares = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    axes.add_collection(PolyCollection(list(squares), **style))  # pyright: ignore[reportArgumentType]
    if len(boxes):
        axes.update_datalim(squares.reshape(-1, 2))
        axes.autoscale_view()


def boxes_svg(
    groups: Sequence[tuple[str, Float[np.ndarray, "_ 4"]]], name: str, background: str = ""
) -> str:
    """An SVG of level-0 boxes: each group with its attributes; ``background`` is SVG itself."""
    every = np.concatenate([boxes for _, boxes in groups])
    if not len(every):
        return ""
    x, y = every[:, :2].min(axis=0)
    right, bottom = (every[:, :2] + every[:, 2:]).max(axis=0)
    paths = []
    for style, boxes in groups:
        data = "".join(f"M{a:g},{b:g}h{w:g}v{h:g}h{-w:g}z" for a, b, w, h in np.round(boxes, 1))
        paths.append(f'<path {style} d="{data}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{x:g} {y:g} {right - x:g} '
        f'{bottom - y:g}" width="{HTML_PX}" role="img" aria-label="{escape(name, quote=True)}" '
        f'style="max-width:100%;height:auto">{background}{"".join(paths)}</svg>'
    )


def _counted(num_valid: int, num_all: int) -> str:
    text = f"{num_valid} patches"
    return text if num_valid == num_all else f"{text}, {num_all - num_valid} with too little tissue"


def _line(m: int) -> float:
    return max(0.5, 2.0 - 0.7 * m)
