"""Row 4, grid: what is asked of a patch grid; options come in, a validated GridSpec comes out."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zoommil.errors import GridError

_RATIO_TOLERANCE = 1e-6


class GridSpec(BaseModel):
    """Which patches a slide is cut into, the same for every slide of a study."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    magnifications: tuple[float, ...] = Field(
        description="Lowest first; each a whole multiple of the one before, as 1.25, 2.5, 10."
    )
    patch_px: int = Field(
        default=256, description="Side of a patch in pixels, the same at every step."
    )
    tissue_threshold: float = Field(
        default=0.1, description="Least fraction of tissue of a patch of the first step."
    )
    child_tissue: float | None = Field(
        default=None,
        description="Least fraction of tissue of a patch of the later steps; patches below it "
        "keep their place but are flagged invalid. None keeps all children.",
    )
    order: Literal["morton", "row_major"] = Field(
        default="morton",
        description="Order of the first step's patches; row_major is the published one.",
    )
    scale: Literal["physical", "nominal"] = Field(
        default="physical",
        description="Exact microns per pixel, or the scanner's nominal objective.",
    )
    overlap: int = Field(
        default=0, description="Always 0: children must lie inside exactly one parent."
    )

    @field_validator("magnifications")
    @classmethod
    def _check_magnifications(cls, magnifications: tuple[float, ...]) -> tuple[float, ...]:
        if not magnifications:
            raise GridError("no magnifications were given. List at least one, as 1.25, 2.5, 10.")
        wrong = [value for value in magnifications if not (math.isfinite(value) and value > 0)]
        if wrong:
            raise GridError(
                f"magnification {wrong[0]:g} is not a positive number. "
                "Give magnifications as people say them, as 1.25, 2.5, 10."
            )
        for coarse, fine in pairwise(magnifications):
            _whole_ratio(coarse, fine)
        return magnifications

    @field_validator("patch_px")
    @classmethod
    def _check_patch_px(cls, patch_px: int) -> int:
        if patch_px <= 0:
            raise GridError(f"patch_px {patch_px} is not a positive number of pixels. Use 256.")
        return patch_px

    @field_validator("overlap")
    @classmethod
    def _check_overlap(cls, overlap: int) -> int:
        if overlap != 0:
            raise GridError(
                f"overlap {overlap} cannot be used: overlapping patches would have children with "
                "two parents, and zooming needs exactly one. Leave overlap at 0."
            )
        return overlap

    @field_validator("tissue_threshold", "child_tissue")
    @classmethod
    def _check_fraction(cls, fraction: float | None) -> float | None:
        if fraction is not None and not 0 <= fraction <= 1:
            raise GridError(f"tissue fraction {fraction:g} is not between 0 and 1. Use 0.1.")
        return fraction

    @property
    def ratios(self) -> tuple[int, ...]:
        """How many times finer each step is than the one before, linear."""
        return tuple(_whole_ratio(*pair) for pair in pairwise(self.magnifications))


def _whole_ratio(coarse: float, fine: float) -> int:
    """The linear ratio of two magnifications, or the error that says why there is none."""
    ratio = fine / coarse
    if ratio <= 1:
        raise GridError(
            f"magnifications {coarse:g}, {fine:g} do not ascend; list the lowest first and "
            "each once, as 1.25, 2.5."
        )
    if abs(ratio - round(ratio)) > _RATIO_TOLERANCE * ratio:
        raise GridError(
            f"magnifications {coarse:g}, {fine:g} are {ratio:g}x apart; each step must be a "
            f"whole multiple of the one before, as {coarse:g}, {coarse * 2:g}."
        )
    return round(ratio)
