"""Row 7, bags: the contract of a feature format, and how one tool's rows become a placed bag.

A format reads a file into a :class:`Bag` and writes one step of a bag (or all, where the tool
knows several magnifications). Coordinates in a bag are level-0 top-left pixels, always.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32
from pydantic import BaseModel, ConfigDict, Field

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.checks import as_array
from zoommil.errors import BagError
from zoommil.files import file_hash
from zoommil.units import magnification_of, mpp_of


class ImportOptions(BaseModel):
    """What a file of another tool does not say, told by the user.

    Attributes:
        slide_id: the slide's id; the file name without extension otherwise.
        mpp: microns per pixel of the slide's level 0.
        slide_size: (width, height) of level 0.
        patch_px: the patch's side in its own pixels.
        side: the patch's side in level-0 pixels.
        magnification: of the patches.
        level0_magnification: nominal magnification of level 0.
        encoder: which encoder's features to take, where a file has several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slide_id: str | None = None
    mpp: float | None = Field(None, gt=0)
    slide_size: tuple[int, int] | None = None
    patch_px: int | None = Field(None, gt=0)
    side: float | None = Field(None, gt=0)
    magnification: float | None = Field(None, gt=0)
    level0_magnification: float | None = Field(None, gt=0)
    encoder: str | None = None


@dataclass(frozen=True)
class Found:
    """What a file of one magnification says.

    Attributes:
        features: the rows.
        corners: level-0 top-left x, y, real numbers; None when the file has none.
        patch_px, side, overlap, magnification, mpp: of the patches; mpp is the patch's.
        level0_mpp, slide_size: of the slide.
        origin: level-0 corner of row 0, column 0, when the file says.
        encoder: name of the encoder.
        attributes: what to keep for provenance.
    """

    features: np.ndarray
    corners: np.ndarray | None
    patch_px: int | None = None
    side: float | None = None
    overlap: int = 0
    magnification: float | None = None
    mpp: float | None = None
    level0_mpp: float | None = None
    slide_size: tuple[int, int] | None = None
    origin: tuple[float, float] | None = None
    encoder: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OneStep:
    """One step of a bag as other tools know it: encoded patches only."""

    features: Float32[np.ndarray, "patch feature"]
    corners: Float[np.ndarray, "patch 2"] | None
    info: StepInfo | None


class FeatureFormat(abc.ABC):
    """Reads and writes one tool's feature files."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = (".h5",)
    can_write: ClassVar[bool] = True
    keeps_all_steps: ClassVar[bool] = False

    @abc.abstractmethod
    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The bag in a file. Raises BagError saying what is missing and how to tell it."""

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:  # noqa: ARG002
        """Write a bag, atomically; ``step`` where the tool knows one magnification only."""
        raise BagError(
            f"{str(path)!r} cannot be written: {self.name} files are only read. Write as trident."
        )

    def output_paths(self, folder: Path, bag: Bag, step: int | None) -> list[Path]:  # noqa: ARG002
        """Where the tool's users expect a slide's file below an output folder."""
        return [folder / f"{bag.slide_id}{self.suffixes[0]}"]


def placed_bag(found: Found, path: Path, options: ImportOptions, format_name: str) -> Bag:
    """The one-step bag of what a file says, completed by what the user says."""
    features = as_array(found.features)
    if features.ndim == 3 and len(features) == 1:  # one slide as a batch
        features = features[0]
    info, scale = _info_of(found, options)
    corners = None if found.corners is None else np.asarray(found.corners, np.float64)
    coords = None if corners is None else np.floor(corners + 0.5).astype(np.int64)
    return Bag(
        features=(features,),
        coords=None if coords is None else (coords,),
        slide_id=options.slide_id or path.stem,
        steps=None if info is None else (info,),
        provenance=import_provenance(path, format_name, scale, found.attributes),
        slide_mpp=options.mpp or found.level0_mpp,
        slide_size=options.slide_size or found.slide_size,
    )


def import_provenance(
    path: Path, format_name: str, scale: str, attributes: dict[str, Any]
) -> dict[str, Any]:
    """Where an imported bag came from: the file by name and hash, and what it said."""
    return {
        "imported": {
            "format": format_name,
            "file": path.name,
            "file_sha256": file_hash(path),
            "scale": scale,
            "attributes": attributes,
        }
    }


def one_step(bag: Bag, step: int | None, format_name: str) -> OneStep:
    """The step to write, without rows that were never encoded.

    Raises:
        BagError: several steps and none chosen.
    """
    if step is None and bag.num_steps > 1:
        raise BagError(
            f"bag {bag.slide_id!r} has {bag.num_steps} steps and a {format_name} file holds one. "
            "Choose it with magnification=... (--magnification), or step=-1 for the highest."
        )
    chosen = bag.select([step or 0])
    keep = slice(None) if chosen.valid is None else chosen.valid[0]
    info = None if chosen.steps is None else chosen.steps[0]
    corners = None
    if info is not None and info.rows_columns is not None:
        corners = info.boxes[keep, :2]
    elif chosen.coords is not None:
        corners = chosen.coords[0][keep].astype(np.float64)
    return OneStep(chosen.features[0][keep], corners, info)


def placed_step(bag: Bag, step: int | None, format_name: str) -> tuple[OneStep, StepInfo]:
    """As ``one_step``, of a bag that says where its patches lie. Raises BagError otherwise."""
    found = one_step(bag, step, format_name)
    if found.info is None or found.corners is None:
        raise BagError(
            f"bag {bag.slide_id!r} does not say where its patches lie, which a {format_name} file "
            "must. Extract it from the slide, or import it again with mpp=... and side=..."
        )
    return found, found.info


def _info_of(found: Found, options: ImportOptions) -> tuple[StepInfo | None, str]:
    """Where the patches lie, and whether that is physical, nominal or unknown."""
    side, patch_px = options.side or found.side, options.patch_px or found.patch_px
    level0_mpp = options.mpp or found.level0_mpp
    magnification = options.magnification or found.magnification
    if side is None or patch_px is None or found.corners is None:
        return None, "unknown"
    mpp, scale = found.mpp, "physical"
    if mpp is None and level0_mpp is not None:
        mpp = level0_mpp * side / patch_px
    if mpp is None and magnification is not None:
        mpp, scale = mpp_of(magnification), "nominal"
    if mpp is None:
        return None, "unknown"
    origin, grid = find_grid(found.corners, side, found.origin if not found.overlap else None)
    info = StepInfo(
        magnification=magnification or magnification_of(mpp),
        mpp=mpp,
        downsample=side / patch_px,
        patch_px=patch_px,
        origin_x=origin[0],
        origin_y=origin[1],
        side=side,
        rows_columns=None if found.overlap else grid,
        overlap=found.overlap,
        encoder=options.encoder or found.encoder,
    )
    return info, scale


def find_grid(
    corners: np.ndarray, side: float, origin: tuple[float, float] | None
) -> tuple[tuple[float, float], np.ndarray | None]:
    """The grid's origin and each patch's (row, column); (0, 0) and None when there is no grid.

    Some tools start a grid in every piece of tissue: their patches are on none of the slide's.
    """
    if origin is None:
        first = corners.min(axis=0)
        shift = np.floor((first + 0.5) / side) * side
        origin = (float(first[0] - shift[0]), float(first[1] - shift[1]))
    columns_rows = np.rint((corners - np.array(origin)) / side)
    off = np.abs(corners - (np.array(origin) + columns_rows * side)).max()
    if off > 0.5 + 1e-6:
        return (0.0, 0.0), None
    return origin, columns_rows[:, ::-1].astype(np.int64)
