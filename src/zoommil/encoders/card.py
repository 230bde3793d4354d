"""Row 5, encoders: what is known of an encoder without loading it; names flow in, cards flow out.

The rows are data (``cards.toml``). Third parties add theirs by an entry point of the group
``zoommil.encoders`` whose object is an :class:`EncoderCard`. Any timm model is ``timm:NAME``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from zoommil.errors import EncoderError
from zoommil.registry import unknown_name

Pooling = Literal["mean", "class", "class+mean", "own"]
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class EncoderCard(BaseModel):
    """Everything about an encoder but its weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str = Field(description="What people call it.")
    network: str = Field(description="module:attribute of what builds it, called with arguments.")
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    dim: int = Field(gt=0, description="Length of a feature vector.")
    input_px: int = Field(gt=0, description="Side of the images it was made for.")
    resize_px: int | None = Field(
        default=None, description="Side to resize to before the centre is cut out, if not input_px."
    )
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    any_size: bool = Field(
        default=False, description="Takes patches of any side as they are, never resized."
    )
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    pooling: Pooling = Field(description="How activations or tokens become one vector.")
    source: str = Field(description="hub:OWNER/NAME or package:MODULE/FILE, where weights are.")
    files: tuple[str, ...] = ("model.safetensors", "pytorch_model.bin")
    names: Literal["", "transformers_dinov2"] = Field(
        default="", description="How the file names its tensors, if not as the network does."
    )
    extra: Literal["demo", "timm"] | None = None
    licence: str
    gated: bool = Field(default=False, description="The hub asks for an accepted licence first.")
    magnification: str = Field(default="", description="What it was trained on, for people.")

    @field_validator("std")
    @classmethod
    def _positive(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(value) <= 0:
            raise ValueError("a standard deviation must be above 0")
        return value

    def identity(self) -> dict[str, Any]:
        """What of the card decides the numbers of a feature, as JSON."""
        left_out = {"title", "source", "files", "names", "extra", "licence", "gated"}
        return self.model_dump(mode="json", exclude={*left_out, "magnification"})


def list_encoders() -> list[str]:
    """The names :func:`~zoommil.encoders.loading.load_encoder` takes, beside ``timm:NAME``."""
    return [*_rows(), *sorted(point.name for point in _plugins() if point.name not in _rows())]


def find_card(name: str) -> EncoderCard:
    """The card of that name.

    Raises:
        UnknownNameError: nobody knows it; the message has the nearest name.
        MissingExtraError: a ``timm:NAME`` without timm.
    """
    rows = _rows()
    if name in rows:
        return EncoderCard(name=name, **rows[name])
    if name.startswith("timm:"):
        from zoommil.encoders.timm_models import card_of_timm

        return card_of_timm(name)
    for point in _plugins():
        if point.name == name:
            return _plugin_card(point)
    raise unknown_name("encoder", name, [*list_encoders(), "timm:NAME"])


def _rows() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("zoommil.encoders") / "cards.toml").read_text(encoding="utf-8"))


def _plugins() -> list[EntryPoint]:
    return list(entry_points(group="zoommil.encoders"))


def _plugin_card(point: EntryPoint) -> EncoderCard:
    try:
        return EncoderCard.model_validate(point.load())
    except (ImportError, AttributeError, ValidationError) as error:
        raise EncoderError(
            f"the encoder {point.name!r} of {point.value!r} is not an EncoderCard "
            f"({type(error).__name__}). Update or remove the package that brings it."
        ) from error
