"""Row 7, bags: arrays and an open bag file go in, the checksums that prove them intact come out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from zoommil.files import hash_of


def array_hash(values: np.ndarray) -> str:
    """The SHA-256 of an array's bytes in row order, hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(values).data.cast("B")).hexdigest()


def metadata_hash(file: h5py.File) -> str:
    """The SHA-256 of all names, shapes, types and attributes of a file, features unread.

    Strings meant for other tools only are left out: HDF5 keeps them in a heap without checksums,
    and may loop for ever when it reads a damaged one.
    """
    found: dict[str, Any] = {"/": read_attributes(file)}
    found["/"].pop("metadata_sha256", None)

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        found[name] = read_attributes(item)
        if isinstance(item, h5py.Dataset):
            found[name]["array"] = [list(item.shape), item.dtype.str]

    file.visititems(add)
    return hash_of(found)


def put_attributes(item: h5py.Group | h5py.Dataset, values: Mapping[str, Any]) -> None:
    """Write attributes; strings and lists of strings with a fixed length, outside that heap."""
    for name, value in values.items():
        if isinstance(value, str):
            data = value.encode()
            dtype = h5py.string_dtype("utf-8", max(1, len(data)))
            item.attrs.create(name, np.array(data, dtype=dtype), dtype=dtype)
        elif isinstance(value, list):
            data = [text.encode() for text in value]
            dtype = h5py.string_dtype("utf-8", max(map(len, data)))
            item.attrs.create(name, np.array(data, dtype=dtype), dtype=dtype)
        else:
            item.attrs[name] = value


def read_attributes(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """All attributes as plain Python values, other tools' strings left out."""
    found = {}
    for name in item.attrs:
        kind = h5py.check_string_dtype(item.attrs.get_id(name).dtype)
        if kind is None or kind.length is not None:
            found[name] = _plain(item.attrs[name])
    return found


def dataset_of(group: h5py.Group, name: str) -> h5py.Dataset:
    """The dataset of that name. Raises KeyError when it is something else."""
    item = group[name]
    if not isinstance(item, h5py.Dataset):
        raise KeyError(f"{name} is not an array")
    return item


def group_of(file: h5py.File, name: str) -> h5py.Group:
    """The group of that name. Raises KeyError when it is something else."""
    item = file[name]
    if not isinstance(item, h5py.Group):
        raise KeyError(f"{name} is not a group")
    return item


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return value.item() if isinstance(value, np.generic) else value
