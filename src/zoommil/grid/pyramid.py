"""Row 4, grid: a slide's geometry and its tissue come in, nested patches of every step come out.

No pixel is read. Children of row i of one step are rows i*r .. i*r+r-1 of the next (r = ratio
squared); everything else leans on this alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from zoommil.errors import GridError
from zoommil.grid.cells import all_cells, boxes_of_cells, check_count, child_cells, grid_shape
from zoommil.grid.slots import is_power_of_two, morton_order, row_major_order
from zoommil.grid.spec import GridSpec
from zoommil.slides.slide import Slide
from zoommil.tissue import TissueMask
from zoommil.units import magnification_label, mpp_of, rounded_corners

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_logger = logging.getLogger(__name__)

_FRACTION_TOLERANCE = 1e-9  # a cell that is half tissue has a fraction of 0.5 give or take rounding


@dataclass(frozen=True, eq=False)
class PatchStep:
    """The patches of one magnification.

    Attributes:
        magnification: as asked for.
        mpp: microns per pixel to read the patches at.
        downsample: level-0 pixels per patch pixel.
        patch_px: side of a patch in its own pixels.
        boxes: exact (x, y, width, height) in level-0 pixels.
        rows_columns: the cells of this step's own grid; parent cell = cell // ratio.
        valid: False for a child with too little tissue; such rows keep their place.
    """

    magnification: float
    mpp: float
    downsample: float
    patch_px: int
    boxes: Float[np.ndarray, "patch 4"]
    rows_columns: Int[np.ndarray, "patch 2"]
    valid: Bool[np.ndarray, " patch"]

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def side(self) -> float:
        """The side of a patch in level-0 pixels, exact."""
        return self.patch_px * self.downsample

    @property
    def coords(self) -> Int[np.ndarray, "patch 2"]:
        """The corners as stored on disk: floor(corner + 0.5)."""
        return rounded_corners(self.boxes)


@dataclass(frozen=True, eq=False)
class PatchPyramid:
    """Nested patches of one slide, one step per magnification, lowest first.

    Attributes:
        steps: the patches.
        origin: level-0 (x, y) of the corner that all steps' grids hang on.
        grid_shape: rows and columns of the first step's whole grid, kept or not.
        spec: what was asked for.
        tissue_identity: what decided the tissue mask, as JSON values.
        fallback: no cell had enough tissue, so all of them were taken.
        warnings: what a reader of the results should know, one line each.
    """

    steps: tuple[PatchStep, ...]
    origin: tuple[float, float]
    grid_shape: tuple[int, int]
    spec: GridSpec
    tissue_identity: dict[str, Any]
    fallback: bool = False
    warnings: tuple[str, ...] = ()

    @classmethod
    def build(cls, slide: Slide, tissue: TissueMask, spec: GridSpec) -> PatchPyramid:
        """The pyramid of a slide.

        Raises:
            GridError: the mask is another slide's, or there would be too many patches.
            ResolutionError: a magnification is beyond what was scanned.
        """
        _check_fit(slide, tissue, spec)
        x, y, width, height = slide.bounds
        origin = (float(x), float(y))
        downsamples = [slide.downsample_of(mpp_of(value)) for value in spec.magnifications]
        shape = grid_shape(width, height, spec.patch_px * downsamples[0])
        cells = all_cells(*shape)
        boxes = boxes_of_cells(cells, origin, spec.patch_px * downsamples[0])
        keep, warnings = _keep(slide, tissue.fraction(boxes), spec)
        cells = cells[keep]
        cells = cells[(morton_order if spec.order == "morton" else row_major_order)(cells)]
        steps = _steps(cells, origin, downsamples, spec)
        fallback = bool(warnings)
        if not fallback:
            steps, warnings = _flag_children(slide, steps, tissue, spec)
        return cls(
            steps=steps,
            origin=origin,
            grid_shape=shape,
            spec=spec,
            tissue_identity=tissue.identity(),
            fallback=fallback,
            warnings=warnings,
        )

    @property
    def ratios(self) -> tuple[int, ...]:
        """How many times finer each step is than the one before, linear."""
        return self.spec.ratios

    @property
    def num_patches(self) -> tuple[int, ...]:
        """How many patches each step has."""
        return tuple(len(step) for step in self.steps)

    def children(self, m: int, rows: Int[np.ndarray, " parent"]) -> Int[np.ndarray, " child"]:
        """The rows at step m + 1 of the children of these rows of step m, block after block."""
        self._check_rows(m, rows, last=len(self.steps) - 2)
        num_children = self.ratios[m] ** 2
        blocks = np.asarray(rows, dtype=np.int64)[:, None] * num_children
        return (blocks + np.arange(num_children, dtype=np.int64)).reshape(-1)

    def parents(self, m: int, rows: Int[np.ndarray, " child"]) -> Int[np.ndarray, " child"]:
        """The row at step m - 1 of the parent of each of these rows of step m."""
        self._check_rows(m, rows, first=1)
        return np.asarray(rows, dtype=np.int64) // self.ratios[m - 1] ** 2

    def without(self, m: int) -> PatchPyramid:
        """The pyramid that building without step m gives, from this one.

        Raises:
            GridError: m is the first step, which decides what is kept, or the ratios beside it
                are not powers of two, whose blocks do not nest.
        """
        if not 0 < m < len(self.steps):
            raise GridError(
                f"step {m} cannot be left out of {len(self.steps)}; the first one decides which "
                f"tissue is kept. Choose one of 1 to {len(self.steps) - 1}."
            )
        if m < len(self.steps) - 1 and not all(map(is_power_of_two, self.ratios[m - 1 : m + 1])):
            raise GridError(
                f"ratios {self.ratios[m - 1]}, {self.ratios[m]} around step {m} are not both "
                "powers of two, so its patches' order does not nest. Build the grid without it."
            )
        magnifications = [step.magnification for step in self.steps]
        del magnifications[m]
        spec = GridSpec(**{**self.spec.model_dump(), "magnifications": tuple(magnifications)})
        return replace(self, steps=self.steps[:m] + self.steps[m + 1 :], spec=spec)

    def select(self, magnifications: tuple[float, ...]) -> PatchPyramid:
        """The pyramid of some of the magnifications, the first one among them."""
        known = [step.magnification for step in self.steps]
        unknown = [value for value in magnifications if value not in known]
        if unknown:
            raise GridError(
                f"magnification {unknown[0]:g} is not in this pyramid; it has "
                f"{', '.join(f'{value:g}' for value in known)}. Choose among these."
            )
        pyramid = self
        for value in known:
            if value not in magnifications:
                pyramid = pyramid.without([s.magnification for s in pyramid.steps].index(value))
        return pyramid

    def plot(self, axes: Axes | None = None, steps: Sequence[int] | None = None) -> Axes:
        """Outline the patches with Matplotlib, on axes of level-0 pixels as of ``Slide.plot()``.

        Args:
            axes: to draw on; None: new ones.
            steps: only these steps; None: all.
        """
        from zoommil.grid.showing import plot_pyramid

        return plot_pyramid(self, axes, steps)

    def _repr_html_(self) -> str:
        """What notebooks show: the patches, and how many there are of each step."""
        from zoommil.grid.showing import pyramid_html

        return pyramid_html(self)

    def _check_rows(self, m: int, rows: np.ndarray, first: int = 0, last: int | None = None):
        last = len(self.steps) - 1 if last is None else last
        if not first <= m <= last:
            raise GridError(f"step {m} of {len(self.steps)} has none; use {first} to {last}.")
        rows = np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.steps[m])):
            raise GridError(
                f"rows {rows.min()} to {rows.max()} are not all of step {m}, "
                f"whose rows are 0 to {len(self.steps[m]) - 1}. Pass rows of that step."
            )


def _check_fit(slide: Slide, tissue: TissueMask, spec: GridSpec) -> None:
    if spec.scale != slide.scale:
        raise GridError(
            f"the grid wants scale {spec.scale!r}, but {slide.slide_id!r} was opened as "
            f"{slide.scale!r}. Open it with open_slide(..., scale={spec.scale!r})."
        )
    if tissue.frame.size != tuple(slide.size):
        raise GridError(
            f"the tissue mask is of a slide of {tissue.frame.size[0]} x {tissue.frame.size[1]}, "
            f"{slide.slide_id!r} has {slide.size[0]} x {slide.size[1]}. "
            "Pass the mask that find_tissue gave for this slide."
        )


def _keep(
    slide: Slide, fractions: Float[np.ndarray, " cell"], spec: GridSpec
) -> tuple[Bool[np.ndarray, " cell"], tuple[str, ...]]:
    """Which cells of the first step are kept; a warning when it is all for want of any."""
    keep = fractions >= spec.tissue_threshold - _FRACTION_TOLERANCE
    if keep.any():
        return keep, ()
    warning = (
        f"no patch at {magnification_label(spec.magnifications[0])} has a tissue fraction of "
        f"{spec.tissue_threshold:g} or more; all {len(fractions)} patches are used"
    )
    _logger.warning("%s: %s", slide.slide_id, warning)
    return np.ones_like(keep), (warning,)


def _steps(
    cells: Int[np.ndarray, "cell 2"],
    origin: tuple[float, float],
    downsamples: list[float],
    spec: GridSpec,
) -> tuple[PatchStep, ...]:
    steps = []
    for m, (magnification, downsample) in enumerate(
        zip(spec.magnifications, downsamples, strict=True)
    ):
        side = spec.patch_px * downsample
        if m > 0:
            check_count(len(cells) * spec.ratios[m - 1] ** 2, side)
            cells = child_cells(cells, spec.ratios[m - 1])
        steps.append(
            PatchStep(
                magnification=magnification,
                mpp=mpp_of(magnification),
                downsample=downsample,
                patch_px=spec.patch_px,
                boxes=boxes_of_cells(cells, origin, side),
                rows_columns=cells,
                valid=np.ones(len(cells), dtype=bool),
            )
        )
    return tuple(steps)


def _flag_children(
    slide: Slide, steps: tuple[PatchStep, ...], tissue: TissueMask, spec: GridSpec
) -> tuple[tuple[PatchStep, ...], tuple[str, ...]]:
    """The steps with children below ``child_tissue`` flagged, and what to warn of.

    Each step is judged on its own, so that leaving out another step changes nothing.
    """
    if spec.child_tissue is None:
        return steps, ()
    flagged, warnings = [steps[0]], []
    for step in steps[1:]:
        valid = tissue.fraction(step.boxes) >= spec.child_tissue - _FRACTION_TOLERANCE
        if not valid.any():
            warning = (
                f"no patch at {magnification_label(step.magnification)} has a tissue fraction of "
                f"child_tissue {spec.child_tissue:g} or more; all {len(step)} are used"
            )
            _logger.warning("%s: %s", slide.slide_id, warning)
            warnings.append(warning)
            valid = np.ones_like(valid)
        flagged.append(replace(step, valid=valid))
    return tuple(flagged), tuple(warnings)
