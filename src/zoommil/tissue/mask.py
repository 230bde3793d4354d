"""Row 3, tissue: where a slide has tissue, as a raster over its level-0 frame."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from zoommil.slides.slide import Slide
from zoommil.tissue.spec import TissueSpec
from zoommil.tissue.thumbnail import thumbnail_shape, usable_mpp


@dataclass(frozen=True)
class SlideFrame:
    """The geometry of the slide a mask belongs to.

    Attributes:
        slide_id: its id.
        size: level-0 width and height.
        bounds: level-0 x, y, width, height of what was scanned.
        mpp: microns per level-0 pixel.
    """

    slide_id: str
    size: tuple[int, int]
    bounds: tuple[int, int, int, int]
    mpp: float

    @classmethod
    def of(cls, slide: Slide) -> SlideFrame:
        """The frame of a slide."""
        width, height = slide.size
        x, y, bounds_width, bounds_height = slide.bounds
        bounds = (int(x), int(y), int(bounds_width), int(bounds_height))
        return cls(slide.slide_id, (int(width), int(height)), bounds, float(slide.mpp))


@dataclass(frozen=True, eq=False)
class TissueMask:
    """Where there is tissue.

    Attributes:
        mask: True where there is; pixel (row, column) covers the level-0 square of side
            ``downsample`` at ``origin + (column, row) * downsample``. Outside there is none.
        origin: level-0 (x, y) of the mask's corner.
        downsample: level-0 pixels per mask pixel.
        frame: the slide it belongs to.
        method: how it was made: otsu, paper, everything, image or geojson.
        spec: what was asked for.
        warnings: what a reader of the results should know, one line each.
        source_hash: SHA-256 of the file it was read from, if it was.
        thumbnail: the picture it was found on, if there was one.
    """

    mask: Bool[np.ndarray, "height width"]
    origin: tuple[float, float]
    downsample: float
    frame: SlideFrame
    method: str
    spec: TissueSpec = field(default_factory=TissueSpec)
    warnings: tuple[str, ...] = ()
    source_hash: str | None = None
    thumbnail: UInt8[np.ndarray, "height width 3"] | None = field(default=None, repr=False)

    @classmethod
    def everything(cls, slide: Slide) -> TissueMask:
        """A mask that calls all of the slide tissue; no pixel is read."""
        spec = TissueSpec(method="everything")
        mpp = usable_mpp(slide, spec.mpp)
        return cls(
            mask=np.ones(thumbnail_shape(slide, mpp), dtype=bool),
            origin=(float(slide.bounds[0]), float(slide.bounds[1])),
            downsample=slide.downsample_of(mpp),
            frame=SlideFrame.of(slide),
            method="everything",
            spec=spec,
        )

    @property
    def area_um2(self) -> float:
        """The area of the tissue in square microns."""
        return float(self.mask.sum()) * (self.downsample * self.frame.mpp) ** 2

    @property
    def is_empty(self) -> bool:
        """Whether there is no tissue at all."""
        return not self.mask.any()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the mask's pixels and place, hexadecimal."""
        place = f"{self.mask.shape} {self.origin} {self.downsample!r}".encode()
        return hashlib.sha256(place + np.packbits(self.mask).tobytes()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """What decides this mask, as JSON values: the spec, and the hash of a given file."""
        return tissue_identity(self.spec, self.source_hash)

    def fraction(self, boxes: Float[np.ndarray, "box 4"]) -> Float[np.ndarray, " box"]:
        """The fraction of each level-0 box that is tissue; parts outside the mask are not.

        Exact for boxes that cut mask pixels: between the entries of a summed-area table the
        covered area is bilinear.
        """
        if self.method == "everything":
            return np.ones(len(boxes))
        corners = (boxes[:, :2] - np.asarray(self.origin)) / self.downsample
        sides = boxes[:, 2:] / self.downsample
        left, top = corners.T
        right, bottom = (corners + sides).T
        covered = (
            self._area_before(right, bottom)
            - self._area_before(left, bottom)
            - self._area_before(right, top)
            + self._area_before(left, top)
        )
        return np.clip(covered / (sides[:, 0] * sides[:, 1]), 0.0, 1.0)

    def to_geojson(self, frame: Literal["slide", "bounds"] = "slide") -> dict[str, Any]:
        """The tissue as a QuPath feature collection, polygons with holes in level-0 pixels.

        Args:
            frame: ``bounds`` subtracts the corner of the slide's bounds, as QuPath shows it.
        """
        from zoommil.tissue.geojson import feature_collection

        return feature_collection(self, frame)

    def save(self, folder: Path | str) -> Path:
        """Write picture, mask and outlines of this slide under a folder; the GeoJSON's path.

        ``masks/<id>.png``, ``contours_geojson/<id>.geojson`` and, when the mask has a thumbnail,
        ``thumbnails/<id>.jpg`` and ``contours/<id>.png`` (the mask over it).
        """
        from zoommil.tissue.saving import save_mask

        return save_mask(self, Path(folder))

    @cached_property
    def _table(self) -> Int[np.ndarray, "_ _"]:
        table = np.zeros((self.mask.shape[0] + 1, self.mask.shape[1] + 1), dtype=np.int64)
        np.cumsum(self.mask, axis=0, dtype=np.int64, out=table[1:, 1:])
        np.cumsum(table[1:, 1:], axis=1, out=table[1:, 1:])
        return table

    def _area_before(
        self, x: Float[np.ndarray, " box"], y: Float[np.ndarray, " box"]
    ) -> Float[np.ndarray, " box"]:
        """The tissue area left of and above points, in mask pixels."""
        height, width = self.mask.shape
        x, y = np.clip(x, 0, width), np.clip(y, 0, height)
        column = np.minimum(x.astype(np.int64), width - 1)
        row = np.minimum(y.astype(np.int64), height - 1)
        right, down = x - column, y - row
        table = self._table
        upper = table[row, column] * (1 - right) + table[row, column + 1] * right
        lower = table[row + 1, column] * (1 - right) + table[row + 1, column + 1] * right
        return upper * (1 - down) + lower * down


def tissue_identity(spec: TissueSpec, mask_hash: str | None = None) -> dict[str, Any]:
    """What decides a mask before it is made, as JSON values.

    Args:
        spec: how tissue is found.
        mask_hash: SHA-256 of the mask's file when one is given; it replaces the method.
    """
    if mask_hash is None:
        settings = spec.model_dump(mode="json")
        named = ("otsu", "paper")
        return {key: settings[key] for key in settings if key not in named or key == spec.method}
    return {"mask_sha256": mask_hash, "mpp": spec.mpp, "mask_frame": spec.mask_frame}
