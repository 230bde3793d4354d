"""Row 3, tissue: how tissue is looked for; options come in, a validated TissueSpec comes out."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zoommil.registry import Registry, unknown_name

METHODS = Registry(
    "tissue_method",
    {
        "otsu": "zoommil.tissue.otsu:otsu_mask",
        "paper": "zoommil.tissue.paper:paper_mask",
        "everything": "zoommil.tissue.everything:everything_mask",
    },
)

MaskFrame = Literal["auto", "slide", "bounds"]


class OtsuSettings(BaseModel):
    """Of the default method; contrast is in grey levels (0-255) against the glass."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    smoothing_um: float = Field(
        default=16.0, ge=0, description="Sd of the smoothing before thresholding."
    )
    min_contrast: float = Field(
        default=5.0,
        gt=0,
        description="Fainter than this is never tissue: keeps a white slide empty.",
    )
    max_contrast: float = Field(
        default=8.0,
        gt=0,
        description="Stronger than this is always tissue: keeps pale tissue beside dark.",
    )
    min_area_um2: float = Field(
        default=10_000.0, ge=0, description="Smaller pieces are dropped (10 000 = 0.1 mm x 0.1 mm)."
    )
    max_hole_um2: float = Field(
        default=50_000.0, ge=0, description="Smaller holes are filled (lumens, vessels, fat cells)."
    )
    margin_um: float = Field(default=0.0, ge=0, description="Grown by this much at the end.")
    exclude_ink: bool = Field(
        default=True,
        description="Leave out pen ink: saturated blue, green, red (black always is). Turn off for "
        "stains of those colours, such as trichrome.",
    )


class PaperSettings(BaseModel):
    """Of the published method, in the physical sizes its three data sets come down to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sigma_um: float = Field(default=160.0, gt=0, description="Sd of the Gaussian.")
    kernel_um: float = Field(default=800.0, gt=0, description="Side of the square of the dilation.")
    min_size_px: int = Field(default=10, ge=0, description="Smaller components end the search.")
    background_grey: float = Field(
        default=228.0, description="A brighter component ends the search."
    )


PAPER_PRESETS = MappingProxyType(
    {
        "crc": PaperSettings(sigma_um=80.0, kernel_um=56.0),
        "bright": PaperSettings(sigma_um=160.0, kernel_um=800.0),
        "camelyon16": PaperSettings(sigma_um=160.0, kernel_um=800.0),
    }
)


class TissueSpec(BaseModel):
    """How tissue is found, the same for every slide of a study."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str = Field(default="otsu", description="otsu, paper or everything.")
    mpp: float = Field(default=8.0, gt=0, description="Microns per pixel of the mask.")
    mask_frame: MaskFrame = Field(
        default="auto",
        description="What a given mask is aligned to: the whole slide, or its bounds as in QuPath.",
    )
    otsu: OtsuSettings = OtsuSettings()
    paper: PaperSettings = Field(
        default=PaperSettings(),
        description="Settings, or one of the names crc, bright, camelyon16.",
    )

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if method not in METHODS.names():
            raise unknown_name("tissue method", method, METHODS.names())
        return method

    @field_validator("paper", mode="before")
    @classmethod
    def _named_settings(cls, paper: Any) -> Any:
        if not isinstance(paper, str):
            return paper
        if paper not in PAPER_PRESETS:
            raise unknown_name("tissue settings", paper, PAPER_PRESETS)
        return PAPER_PRESETS[paper]
