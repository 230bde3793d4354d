"""Row 2, synthetic: what a synthetic slide is, as a frozen, validated spec."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from zoommil.units import mpp_of

Label = Literal["normal", "low_grade", "high_grade", "tumor"]
Side = Annotated[int, Field(ge=512, le=400_000)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

SMALLEST_BLOCK_PX = 512
LARGEST_BLOCK_PX = 4096


class SlideSpec(BaseModel):
    """One synthetic slide. Sizes are level-0 pixels; shares are of the slide or of its tissue."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size_px: tuple[Side, Side] = (16384, 16384)  # width, height
    magnification: float = Field(default=10.0, ge=2.5, le=100.0)  # of level 0
    downsamples: tuple[int, ...] = (1, 4, 16)
    tile_px: int = Field(default=256, ge=64, le=1024, multiple_of=16)
    format: Literal["svs", "tiff"] = "svs"
    quality: int = Field(default=80, ge=30, le=100)

    tissue: Annotated[float, Field(gt=0.0, le=0.85)] = 0.35
    glands: Share = 0.45
    fat: Share = 0.10
    lymphocytes: Share = 0.06
    noise: float = Field(default=1.6, ge=0.0, le=20.0)
    stain_variation: float = Field(default=1.0, ge=0.0, le=3.0)

    classes: tuple[Label, ...] = ("normal", "low_grade", "high_grade")
    label: Label = "normal"
    num_foci: tuple[int, int] = (2, 4)
    num_decoys: tuple[int, int] = (3, 5)
    focus_mm: tuple[float, float] = (0.5, 2.0)

    hint: bool = True
    hint_strength: Share = 0.6
    class_visible_low: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> SlideSpec:
        if self.label not in self.classes:
            raise ValueError(f"label {self.label!r} is not one of the classes {self.classes}")
        first, *rest = self.downsamples or (0,)
        if first != 1 or any(b <= a for a, b in zip(self.downsamples, rest, strict=False)):
            raise ValueError(f"downsamples {self.downsamples} must start at 1 and increase")
        if self.block_px > LARGEST_BLOCK_PX:
            raise ValueError(
                f"downsamples {self.downsamples} and tiles of {self.tile_px} px have no common "
                f"multiple up to {LARGEST_BLOCK_PX}; use powers of two"
            )
        for name in ("num_foci", "num_decoys", "focus_mm"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(f"{name} {low, high} must be a range")
        return self

    @property
    def mpp(self) -> float:
        """Microns per pixel of level 0."""
        return mpp_of(self.magnification)

    @property
    def block_px(self) -> int:
        """The side of the blocks that are rendered at once: whole tiles, whole level pixels."""
        unit = math.lcm(self.tile_px, *self.downsamples)
        return unit * max(1, SMALLEST_BLOCK_PX // unit)

    @property
    def is_lesion(self) -> bool:
        """Whether the foci carry a disease, rather than being harmless look-alikes."""
        return self.label != "normal"

    @property
    def nuclei(self) -> str:
        """The kind of nuclei in the foci."""
        return self.label if self.is_lesion else "benign"
