"""Row 3, tissue: where a mask's pixels lie on its slide, as this package's mask files say it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zoommil.errors import TissueError

RASTER_KEY = "zoommil_mask"


class Raster(BaseModel):
    """The place of a mask: text of a PNG, extra member of a GeoJSON file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    origin: tuple[float, float]
    downsample: float = Field(gt=0)
    width: int = Field(gt=0)
    height: int = Field(gt=0)
    slide_size: tuple[int, int]
    frame: Literal["slide", "bounds"] = "slide"

    @classmethod
    def parse(cls, content: Any, name: str, slide_id: str, size: tuple[int, int]) -> Raster:
        """The place that a file's text states.

        Raises:
            TissueError: it makes no sense, or is of a slide of another size.
        """
        try:
            valid = cls.model_validate_json if isinstance(content, str) else cls.model_validate
            raster = valid(content)
        except ValidationError as error:
            raise TissueError(
                f"mask {name!r} has a damaged {RASTER_KEY!r} entry. Remove the entry, or make the "
                "mask again."
            ) from error
        if raster.slide_size != size:
            raise TissueError(
                f"mask {name!r} was made on a slide of {raster.slide_size[0]} x "
                f"{raster.slide_size[1]}, {slide_id!r} has {size[0]} x {size[1]}. "
                "Give the mask of this slide."
            )
        return raster
