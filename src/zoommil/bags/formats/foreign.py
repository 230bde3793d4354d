"""Row 7, bags: other tools' HDF5 files are opened and made here; damage is one clear error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from zoommil.bags.bag import Bag, StepInfo
from zoommil.errors import BagError
from zoommil.files import atomic_path

_KEPT = (
    "patch_size", "patch_size_level0", "level0_magnification", "target_magnification", "overlap",
    "level0_width", "level0_height", "patch_level", "downsample", "encoder", "extractor",
    "tile_size_um", "tile_size_px", "unit", "feat_type", "code_hash", "stamp_version",
)  # fmt: skip
_EXACT = ("side", "origin_x", "origin_y", "mpp", "level0_mpp", "magnification", "patch_px")


@contextlib.contextmanager
def open_foreign(path: Path, format_name: str) -> Iterator[h5py.File]:
    """A tool's HDF5 file for reading. Raises BagError when it is missing, damaged or not HDF5."""
    if not path.is_file():
        raise BagError(f"{str(path)!r} does not exist or is not a file; expected {format_name}'s.")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise BagError(
            f"{str(path)!r} cannot be read as {format_name}'s HDF5 ({reason}). "
            "Check that it was written to its end."
        ) from error


@contextlib.contextmanager
def write_foreign(path: Path) -> Iterator[h5py.File]:
    """A new HDF5 file that appears under its name when the block ends well."""
    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        yield file


def need_array(group: h5py.Group, name: str, path: Path, format_name: str) -> np.ndarray:
    """A dataset's values. Raises BagError naming what the file has instead."""
    item = group.get(name)
    if not isinstance(item, h5py.Dataset):
        raise BagError(
            f"{str(path)!r} is no {format_name} feature file: it has no {name!r}, only "
            f"{', '.join(group) or 'nothing'}."
        )
    return np.asarray(item[()])


def plain_attributes(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """All attributes as plain Python values."""
    found = {}
    for name, value in item.attrs.items():
        if isinstance(value, np.generic | np.ndarray):
            value = value.tolist()  # noqa: PLW2901
        found[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found


def kept_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Those worth keeping in the provenance: no paths, no times."""
    return {name: attributes[name] for name in _KEPT if name in attributes}


def exact_attributes(bag: Bag, info: StepInfo) -> dict[str, Any]:
    """Real-numbered geometry that other tools round, under names that they ignore."""
    values = {name: getattr(info, name) for name in _EXACT if hasattr(info, name)}
    if bag.slide_mpp is not None:
        values["level0_mpp"] = bag.slide_mpp
    return {f"zoommil_{name}": value for name, value in values.items()}


def read_exact(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What ``exact_attributes`` wrote, by its plain names; empty in other tools' own files."""
    names = {name: f"zoommil_{name}" for name in _EXACT}
    return {name: attributes[key] for name, key in names.items() if key in attributes}


def found_arguments(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``Found`` from exact geometry, where a file of this package's has it."""
    exact = read_exact(attributes)
    if "side" not in exact:
        return {}
    origin = (exact.pop("origin_x"), exact.pop("origin_y"))
    return {**exact, "origin": origin}
