"""Row 7, bags: a :class:`Bag` goes in, one HDF5 file comes out, and back.

One group per step (``1.25x``, ``10x``; ``step_0`` without step information), each readable alone
by tools that expect ``features`` and ``coords``:

    /            attributes: format, version, slide_id, steps, dtype, key, provenance (JSON), ...
    /10x         attributes: magnification, mpp, downsample, origin_x, origin_y, side, ...
    /10x/features      (N, D) float16 or float32, contiguous: rows can be memory-mapped
    /10x/coords        (N, 2) int64, level-0 top-left x, y, with TRIDENT's attributes
    /10x/rows_columns  (N, 2) int64, place on the grid (origin and side give exact corners)
    /10x/parents       (N,)   int64, row of the step before that each row lies in
    /10x/valid         (N,)   uint8, where some patches were not encoded

Identical content gives identical bytes: no times, no host names, a fixed file version.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from zoommil.bags.bag import Bag, find_steps
from zoommil.bags.checks import as_storage, check_storage_type, count_ratios, select_ratios
from zoommil.bags.integrity import (
    dataset_of,
    group_of,
    metadata_hash,
    put_attributes,
    read_attributes,
)
from zoommil.bags.step_group import read_all, read_checked, read_info, write_step
from zoommil.errors import BagError
from zoommil.files import atomic_path, canonical_json, reserve

_PLACE_BYTES, _HEAD_BYTES = 64, 1 << 16  # beside a row's features; beside all rows

FORMAT = "zoommil-bag"
VERSION = 1
_ALIGNMENT = 64  # bytes; every dataset starts on a multiple, so memory maps are aligned
_READ_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)


@dataclass(frozen=True)
class BagHeader:
    """What a bag file holds, read without its features.

    Attributes:
        slide_id: the slide's id.
        key: hash of the provenance.
        provenance: where the features came from.
        dtype: "float16" or "float32".
        groups: name of each step's group, lowest magnification first.
        magnifications: of each step, or None when the file does not say.
        counts, widths: rows and columns of each step's features.
        ratios: linear ratio of each step to the one before.
    """

    slide_id: str
    key: str
    provenance: dict[str, Any]
    dtype: str
    groups: tuple[str, ...]
    magnifications: tuple[float, ...] | None
    counts: tuple[int, ...]
    widths: tuple[int, ...]
    ratios: tuple[int, ...]


def write_bag(bag: Bag, path: Path | str, dtype: str | None = None) -> None:
    """Write a bag atomically, features as ``dtype`` or as the bag's own storage type.

    Raises:
        BagError: a value that float16 cannot hold, or provenance that JSON cannot.
        OutputError: the folder cannot be written.
    """
    dtype = check_storage_type(dtype or bag.dtype)
    features = [
        as_storage(rows, dtype, f"bag {bag.slide_id!r}, step {step}")
        for step, rows in enumerate(bag.features)
    ]
    attributes = _file_attributes(bag, dtype)
    num_bytes = sum(rows.nbytes + _PLACE_BYTES * len(rows) for rows in features) + _HEAD_BYTES
    with atomic_path(path) as temporary:
        reserve(temporary, num_bytes)
        with h5py.File(
            temporary,
            "w",
            libver=("v110", "v110"),
            alignment_threshold=1,
            alignment_interval=_ALIGNMENT,
        ) as file:
            put_attributes(file, attributes)
            for step, rows in enumerate(features):
                write_step(file.create_group(attributes["steps"][step]), bag, step, rows)
            put_attributes(file, {"metadata_sha256": metadata_hash(file)})


def read_bag(
    path: Path | str,
    steps: Sequence[int] | None = None,
    *,
    magnifications: Sequence[float] | None = None,
) -> Bag:
    """The bag in a file, or only some of its steps; the others' features are not read.

    Raises:
        BagError: the file is missing, truncated, damaged, of another version or no bag at all.
    """
    with _open(path) as file:
        header = _header(file)
        chosen = _chosen_steps(header, steps, magnifications)
        groups = [group_of(file, header.groups[step]) for step in chosen]
        provenance = header.provenance
        if chosen != list(range(len(header.groups))):
            provenance = {**provenance, "selected_steps": chosen}
        level0 = read_attributes(file)
        steps_found = [read_info(group) for group in groups] if header.magnifications else None
        features = [read_checked(dataset_of(group, "features")) for group in groups]
        coords, valid = read_all(groups, "coords"), read_all(groups, "valid")
    has_size = "level0_width" in level0
    return Bag(
        features=features,
        coords=coords,
        slide_id=header.slide_id,
        steps=steps_found,
        provenance=provenance,
        valid=valid,
        dtype=header.dtype,
        slide_mpp=level0.get("level0_mpp"),
        slide_size=(level0["level0_width"], level0["level0_height"]) if has_size else None,
    )


def read_header(path: Path | str) -> BagHeader:
    """What a bag file holds, without reading features. Raises BagError as ``read_bag``."""
    with _open(path) as file:
        return _header(file)


def bag_key(path: Path | str) -> str | None:
    """The key (hash of the provenance) of an intact bag file; None of anything else."""
    try:
        return read_header(path).key
    except BagError:
        return None


def open_features(path: Path | str, step: int) -> np.memmap:
    """A step's features in the storage type, memory-mapped: rows are read when they are used.

    Raises:
        BagError: as ``read_bag``, or a file that another tool has repacked.
    """
    with _open(path) as file:
        header = _header(file)
        (chosen,) = _chosen_steps(header, [step], None)
        dataset = dataset_of(group_of(file, header.groups[chosen]), "features")
        offset, shape, dtype = dataset.id.get_offset(), dataset.shape, dataset.dtype
    if offset is None:
        raise BagError(
            f"{str(path)!r} was repacked by another tool and cannot be memory-mapped. "
            "Write it again with write_bag(read_bag(path), path)."
        )
    return np.memmap(path, mode="r", dtype=dtype, shape=shape, offset=offset)


def _file_attributes(bag: Bag, dtype: str) -> dict[str, Any]:
    names = [f"step_{step}" for step in range(bag.num_steps)]
    if bag.steps is not None:
        names = [info.label for info in bag.steps]
    try:
        provenance = canonical_json(bag.provenance)
    except (TypeError, ValueError) as error:
        raise BagError(
            f"provenance of bag {bag.slide_id!r} is not plain JSON ({error}). "
            "Use strings, finite numbers, booleans, lists and dictionaries."
        ) from error
    attributes: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "slide_id": bag.slide_id,
        "dtype": dtype,
        "steps": names,
        "has_geometry": bag.steps is not None,
        "key": bag.key,
        "provenance": provenance,
    }
    if bag.slide_mpp is not None:
        attributes["level0_mpp"] = bag.slide_mpp
    if bag.slide_size is not None:
        attributes["level0_width"], attributes["level0_height"] = bag.slide_size
    return attributes


@contextlib.contextmanager
def _open(path: Path | str) -> Iterator[h5py.File]:
    """The file, checked to be a bag of this version; whatever goes wrong is a BagError."""
    if not Path(path).is_file():
        raise BagError(f"bag file {str(path)!r} does not exist. Run zoommil extract to make it.")
    try:
        with h5py.File(path, "r") as file:
            _check_format(file, path)
            yield file
    except _READ_ERRORS as error:
        reason = " ".join(str(error).split())
        raise BagError(
            f"{str(path)!r} is not an intact bag file: truncated, damaged or not HDF5 "
            f"({reason}). Delete it and run zoommil extract again."
        ) from error


def _check_format(file: h5py.File, path: Path | str) -> None:
    attributes = read_attributes(file)
    if attributes.get("format") != FORMAT:
        raise BagError(
            f"{str(path)!r} is an HDF5 file but not a bag. Import other tools' features with "
            "zoommil convert."
        )
    version = int(attributes["version"])
    if version != VERSION:
        raise BagError(
            f"{str(path)!r} is a bag file of version {version}; this zoommil reads version "
            f"{VERSION}. Install the zoommil that wrote it, or extract again."
        )
    if attributes["metadata_sha256"] != metadata_hash(file):
        raise BagError(
            f"{str(path)!r} is damaged: its description does not match its checksum. "
            "Delete it and run zoommil extract again."
        )


def _header(file: h5py.File) -> BagHeader:
    attributes = read_attributes(file)
    groups = tuple(attributes["steps"])
    shapes = [dataset_of(group_of(file, name), "features").shape for name in groups]
    counts = tuple(shape[0] for shape in shapes)
    magnifications = None
    if attributes["has_geometry"]:
        found = [read_attributes(group_of(file, name)) for name in groups]
        magnifications = tuple(float(step["magnification"]) for step in found)
    return BagHeader(
        slide_id=attributes["slide_id"],
        key=attributes["key"],
        provenance=json.loads(attributes["provenance"]),
        dtype=attributes["dtype"],
        groups=groups,
        magnifications=magnifications,
        counts=counts,
        widths=tuple(shape[1] for shape in shapes),
        ratios=count_ratios(counts, attributes["slide_id"]),
    )


def _chosen_steps(
    header: BagHeader, steps: Sequence[int] | None, magnifications: Sequence[float] | None
) -> list[int]:
    number = len(header.groups)
    if magnifications is not None:
        if header.magnifications is None:
            raise BagError(
                f"bag {header.slide_id!r} has no magnifications. Pass steps=... by index."
            )
        steps = find_steps(header.magnifications, magnifications)
    if steps is None:
        return list(range(number))
    chosen = [step + number if step < 0 else step for step in steps]
    select_ratios(header.ratios, chosen)
    return chosen
