"""Row 7, bags: one step of a bag goes into one HDF5 group, and comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.integrity import array_hash, dataset_of, put_attributes, read_attributes
from zoommil.errors import BagError
from zoommil.units import magnification_of, nominal_magnification

_INFO_ATTRIBUTES = (
    "magnification",
    "mpp",
    "downsample",
    "patch_px",
    "origin_x",
    "origin_y",
    "side",
    "overlap",
    "encoder",
)


def write_step(group: h5py.Group, bag: Bag, step: int, features: np.ndarray) -> None:
    """Write a step of a bag; ``features`` are its rows in the storage type."""
    info = bag.steps[step] if bag.steps is not None else None
    written = {"features": _write(group, "features", features)}
    if bag.coords is not None:
        written["coords"] = _write(group, "coords", bag.coords[step])
    if bag.valid is not None:
        _write(group, "valid", bag.valid[step].astype(np.uint8))
    if step:
        ratio = bag.ratios[step - 1]
        group.attrs["ratio"] = ratio
        _write(group, "parents", np.arange(len(features), dtype=np.int64) // ratio**2)
    for dataset in written.values():
        dataset.attrs["name"] = bag.slide_id
    if info is None:
        return
    if info.rows_columns is not None:
        _write(group, "rows_columns", info.rows_columns)
    put_attributes(group, {name: getattr(info, name) for name in _INFO_ATTRIBUTES})
    written["features"].attrs["encoder"] = info.encoder
    if "coords" in written:
        written["coords"].attrs.update(trident_attributes(bag, step))


def trident_attributes(bag: Bag, step: int) -> dict[str, Any]:
    """A step's geometry in TRIDENT's spelling, as its ``coords`` carry it."""
    assert bag.steps is not None
    info = bag.steps[step]
    attributes: dict[str, Any] = {
        "patch_size": info.patch_px,
        "patch_size_level0": round(info.side),
        "target_magnification": _whole(info.magnification),
        "overlap": info.overlap,
        "name": bag.slide_id,
    }
    if bag.slide_mpp is not None:
        nominal = nominal_magnification(bag.slide_mpp) or magnification_of(bag.slide_mpp)
        attributes["level0_magnification"] = _whole(nominal)
    if bag.slide_size is not None:
        attributes["level0_width"], attributes["level0_height"] = bag.slide_size
    return attributes


def _write(group: h5py.Group, name: str, values: np.ndarray) -> h5py.Dataset:
    dataset = group.create_dataset(name, data=values, track_times=False)
    put_attributes(dataset, {"sha256": array_hash(values)})
    return dataset


def read_info(group: h5py.Group) -> StepInfo:
    """Where a step's patches lie."""
    attributes = read_attributes(group)
    values = {name: attributes[name] for name in _INFO_ATTRIBUTES}
    grid = read_checked(dataset_of(group, "rows_columns")) if "rows_columns" in group else None
    return StepInfo(**values, rows_columns=grid)


def read_all(groups: Sequence[h5py.Group], name: str) -> list[np.ndarray] | None:
    """One dataset of every group, None when they have none of that name."""
    if not all(name in group for group in groups):
        return None
    return [read_checked(dataset_of(group, name)) for group in groups]


def read_checked(dataset: h5py.Dataset) -> np.ndarray:
    """A dataset's values. Raises BagError when they do not match their checksum."""
    values = dataset[()]
    if read_attributes(dataset)["sha256"] != array_hash(values):
        raise BagError(
            f"{dataset.file.filename!r} is damaged: {dataset.name} does not match its checksum. "
            "Delete it and run zoommil extract again."
        )
    return values


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
