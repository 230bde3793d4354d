"""Row 7, bags: the ZoomMIL authors' HDF5 of several magnifications to bags and back.

Per magnification ``'{mag}x_patches'`` (N_m, D) float32 and ``'{mag}x_coords'`` (N_m, 2 * depth):
the path to each patch, (h, w) at the lowest magnification, then (dh, dw) of every step. Rows are
in the order of this package's bags (``methods.md`` 1.2).
"""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import Int

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.checks import count_ratios
from zoommil.bags.formats.foreign import need_array, open_foreign, write_foreign
from zoommil.bags.formats.format import FeatureFormat, ImportOptions, import_provenance
from zoommil.errors import BagError
from zoommil.units import mpp_of, nominal_magnification

logger = logging.getLogger(__name__)

PATCH_PX = 256


class AuthorsFormat(FeatureFormat):
    """All magnifications of a slide in one file."""

    name = "authors"
    keeps_all_steps = True

    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The bag in a file.

        The file says nothing of the slide. With ``slide_size`` and ``mpp`` (or
        ``level0_magnification``) the corners are those of the authors' centred padding at the
        highest magnification; their lower levels may be off by some pixels. Without, the bag has
        features only.
        """
        with open_foreign(path, self.name) as file:
            magnifications = _magnifications(file, path)
            names = [_key(magnification) for magnification in magnifications]
            features = [need_array(file, f"{name}_patches", path, self.name) for name in names]
            paths = [need_array(file, f"{name}_coords", path, self.name) for name in names]
        if features[0].ndim != 2:
            raise BagError(
                f"{str(path)!r} holds pixels of patches, not features; run the authors' "
                "preprocessing in its features mode, or extract from the slide."
            )
        slide_id = options.slide_id or path.stem
        ratios = count_ratios([len(rows) for rows in features], slide_id)
        grids = [_grid_of(steps, ratios[:depth], path) for depth, steps in enumerate(paths)]
        steps, scale = _place(magnifications, grids, options)
        if steps is None:
            logger.warning(
                "%s says nothing of its slide: features only. Pass slide_size and mpp for corners.",
                path,
            )
        attributes = {"magnifications": magnifications}
        return Bag(
            features=features,
            slide_id=slide_id,
            steps=steps,
            provenance=import_provenance(path, self.name, scale, attributes),
            slide_mpp=options.mpp,
            slide_size=options.slide_size,
        )

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:
        """Write all steps of a bag (or one). Raises BagError without rows and columns."""
        bag = bag if step is None else bag.select([step])
        if bag.valid is not None and not all(valid.all() for valid in bag.valid):
            raise BagError(
                f"bag {bag.slide_id!r} has patches that were not encoded, which the authors' files "
                "cannot say. Extract it without child_tissue."
            )
        grids = [info.rows_columns for info in bag.steps or ()]
        if not grids or any(grid is None for grid in grids):
            raise BagError(
                f"bag {bag.slide_id!r} does not say the rows and columns of its patches. "
                "Extract it from the slide."
            )
        with write_foreign(path) as file:
            for depth, info in enumerate(bag.steps or ()):
                assert info.rows_columns is not None
                steps = _path_of(info.rows_columns, bag.ratios[:depth])
                name = _key(info.magnification)
                file.create_dataset(f"{name}_patches", data=bag.features[depth], track_times=False)
                file.create_dataset(f"{name}_coords", data=steps, track_times=False)


def _key(magnification: float) -> str:
    return f"{float(magnification)}x"


def _magnifications(file: h5py.File, path: Path) -> list[float]:
    found = [re.fullmatch(r"(\d+(?:\.\d+)?)x_patches", str(name)) for name in file]
    magnifications = sorted(float(match[1]) for match in found if match)
    if not magnifications:
        raise BagError(
            f"{str(path)!r} is no file of the ZoomMIL authors: it has no '10.0x_patches' or the "
            f"like, only {', '.join(file) or 'nothing'}."
        )
    return magnifications


def _grid_of(
    steps: Int[np.ndarray, "patch _"], ratios: tuple[int, ...], path: Path
) -> Int[np.ndarray, "patch 2"]:
    """Row and column from the path: fold each (dh, dw) in by its ratio."""
    if steps.ndim != 2 or steps.shape[1] != 2 * (len(ratios) + 1):
        raise BagError(
            f"{str(path)!r}: coordinates have shape {steps.shape}; expected "
            f"{2 * (len(ratios) + 1)} columns, two per magnification from the lowest."
        )
    grid = steps[:, :2].astype(np.int64)
    for depth, ratio in enumerate(ratios, start=1):
        grid = grid * ratio + steps[:, 2 * depth : 2 * depth + 2]
    return grid


def _path_of(
    grid: Int[np.ndarray, "patch 2"], ratios: tuple[int, ...]
) -> Int[np.ndarray, "patch _"]:
    """The inverse of ``_grid_of``."""
    columns = []
    for ratio in reversed(ratios):
        columns.insert(0, grid % ratio)
        grid = grid // ratio
    return np.concatenate([grid, *columns], axis=1)


def _place(
    magnifications: list[float], grids: list[np.ndarray], options: ImportOptions
) -> tuple[list[StepInfo] | None, str]:
    """The steps at level 0, by the authors' integer downsampling of the nominal magnification."""
    level0 = options.level0_magnification
    if level0 is None and options.mpp is not None:
        level0 = nominal_magnification(options.mpp)
    if level0 is None or options.slide_size is None:
        return None, "unknown"
    patch_px = options.patch_px or PATCH_PX
    origin = _padding_origin(magnifications, level0, patch_px, options.slide_size)
    infos = []
    for magnification, grid in zip(magnifications, grids, strict=True):
        downsample = level0 / magnification
        values: dict[str, Any] = {
            "magnification": magnification,
            "mpp": options.mpp * downsample if options.mpp else mpp_of(magnification),
            "downsample": downsample,
            "side": patch_px * downsample,
            "encoder": options.encoder or "",
        }
        infos.append(
            StepInfo(
                patch_px=patch_px,
                origin_x=origin[0],
                origin_y=origin[1],
                rows_columns=grid,
                **values,
            )
        )
    return infos, "nominal"


def _padding_origin(
    magnifications: list[float], level0: float, patch_px: int, slide_size: tuple[int, int]
) -> tuple[float, float]:
    """Where row 0, column 0 starts: half of the padding lies left of and above the slide.

    The highest level is padded to a multiple of the patch times 2 per further magnification.
    """
    downsample = level0 / magnifications[-1]
    multiple = patch_px * 2 ** (len(magnifications) - 1)
    starts = []
    for size in slide_size:
        length = math.floor(size / downsample)
        starts.append(-((-length % multiple) // 2) * downsample)
    return starts[0], starts[1]
