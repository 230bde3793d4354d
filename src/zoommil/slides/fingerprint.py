"""Row 1, slides: a file or array comes in, a SHA-256 that tells it from every other goes out.

The size and blocks sampled evenly over the content, first and last included: milliseconds on a
file of many gigabytes. A MIRAX slide (a small file beside a folder of the same name that holds the
pixels) adds the names and sizes of the files in that folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

_NUM_BLOCKS = 33
_BLOCK_BYTES = 1 << 15
_INDEX_SUFFIX = ".mrxs"


def fingerprint_of_file(path: Path) -> str:
    """The fingerprint of a slide file and its companion folder, hexadecimal."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as stream:

        def read_at(offset: int) -> bytes:
            stream.seek(offset)
            return stream.read(_BLOCK_BYTES)

        _add_samples(digest, size, read_at)
    companions = path.with_suffix("")
    if path.suffix.lower() == _INDEX_SUFFIX and companions.is_dir():
        for companion in sorted(companions.iterdir()):
            if companion.is_file():
                digest.update(f"{companion.name}\0{companion.stat().st_size}\0".encode())
    return digest.hexdigest()


def fingerprint_of_array(pixels: np.ndarray) -> str:
    """The fingerprint of an image that has no file, hexadecimal."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    flat = np.ascontiguousarray(pixels).reshape(-1)

    def read_at(offset: int) -> bytes:
        return flat[offset : offset + _BLOCK_BYTES].tobytes()

    _add_samples(digest, pixels.nbytes, read_at)
    return digest.hexdigest()


def _add_samples(digest, size: int, read_at: Callable[[int], bytes]) -> None:
    digest.update(f"{size}\0".encode())
    last = max(0, size - _BLOCK_BYTES)
    for offset in dict.fromkeys(last * step // (_NUM_BLOCKS - 1) for step in range(_NUM_BLOCKS)):
        digest.update(read_at(offset))
