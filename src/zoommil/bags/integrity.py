"""Row 7, bags: arrays and an open bag file go in, the checksums that prove them intact come out."""

from __future__ import annotations

import hashlib
from typing import Any

import h5py
import numpy as np

from zoommil.files import hash_of


def array_hash(values: np.ndarray) -> str:
    """The SHA-256 of an array's bytes in row order, hexadecimal."""
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view(np.uint8)).hexdigest()


def metadata_hash(file: h5py.File) -> str:
    """The SHA-256 of all names, shapes, types and attributes of a file, features unread."""
    found: dict[str, Any] = {"/": _attributes(file)}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        found[name] = _attributes(item)
        if isinstance(item, h5py.Dataset):
            found[name]["array"] = [list(item.shape), item.dtype.str]

    file.visititems(add)
    return hash_of(found)


def _attributes(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    values = {name: value for name, value in item.attrs.items() if name != "metadata_sha256"}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return value if isinstance(value, (list, bool, int, float)) else str(value)
