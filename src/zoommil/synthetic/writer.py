"""Row 2, synthetic: encoded tiles go in, in any order of levels; a tiled-JPEG BigTIFF comes out.

Tiles are appended to the file as they come, the directories are written at the end. Tiles of bare
glass are stored once and shared.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np
from jaxtyping import UInt8

_SHORT, _LONG, _RATIONAL, _ASCII, _LONG8 = 3, 4, 5, 2, 16
_SIZES = {_SHORT: 2, _LONG: 4, _RATIONAL: 8, _ASCII: 1, _LONG8: 8}
_CODES = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}


@dataclass(frozen=True)
class LevelLayout:
    """The geometry of one level of the file, in its own pixels."""

    width: int
    height: int
    downsample: int
    tile_px: int

    @property
    def columns(self) -> int:
        """Tiles per row."""
        return -(-self.width // self.tile_px)

    @property
    def rows(self) -> int:
        """Tiles per column."""
        return -(-self.height // self.tile_px)


def level_layouts(
    width: int, height: int, downsamples: Sequence[int], tile_px: int
) -> tuple[LevelLayout, ...]:
    """The levels of a pyramid; partial pixels at the far edges are dropped, as scanners do."""
    return tuple(
        LevelLayout(max(1, width // d), max(1, height // d), d, tile_px) for d in downsamples
    )


def encode_tile(pixels: UInt8[np.ndarray, "height width 3"], quality: int) -> bytes:
    """One JPEG stream (4:2:0) of one tile."""
    import simplejpeg

    return simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality=quality, colorspace="RGB", colorsubsampling="420"
    )


class PyramidWriter:
    """Collects tiles of all levels and ends as a file that OpenSlide opens."""

    def __init__(
        self,
        stream: BufferedIOBase,
        levels: Sequence[LevelLayout],
        mpp: float,
        descriptions: Sequence[str],
    ) -> None:
        self._stream = stream
        self._levels = tuple(levels)
        self._mpp = mpp
        self._descriptions = tuple(descriptions)
        self._places = [np.zeros((level.rows * level.columns, 2), np.uint64) for level in levels]
        self._shared: dict[bytes, int] = {}
        stream.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0))

    def add(
        self, level: int, column: int, row: int, tile: bytes, *, is_shared: bool = False
    ) -> None:
        """Append one tile; a shared one is stored at its first use only."""
        where = self._shared.get(tile) if is_shared else None
        if where is None:
            where = self._stream.tell()
            self._stream.write(tile)
            if is_shared:
                self._shared[tile] = where
        self._places[level][row * self._levels[level].columns + column] = (where, len(tile))

    def finish(self) -> None:
        """Write the directories and the pointer to the first of them."""
        pointer_at = 8
        for index, level in enumerate(self._levels):
            assert self._places[index].all(), f"level {index} misses tiles"
            entries = self._entries(index, level)
            at = self._write_directory(entries, pointer_at)
            pointer_at = at
        self._stream.seek(0, 2)

    def _entries(self, index: int, level: LevelLayout) -> list[tuple[int, int, object]]:
        per_cm = 10_000.0 / (self._mpp * self._levels[0].width / level.width)
        ratio = (round(per_cm * 10_000), 10_000)
        offsets, counts = self._places[index].T
        entries: list[tuple[int, int, object]] = [
            (254, _LONG, [0 if index == 0 else 1]),
            (256, _LONG, [level.width]),
            (257, _LONG, [level.height]),
            (258, _SHORT, [8, 8, 8]),
            (259, _SHORT, [7]),
            (262, _SHORT, [6]),
            (277, _SHORT, [3]),
            (282, _RATIONAL, ratio),
            (283, _RATIONAL, ratio),
            (284, _SHORT, [1]),
            (296, _SHORT, [3]),
            (322, _LONG, [level.tile_px]),
            (323, _LONG, [level.tile_px]),
            (324, _LONG8, offsets),
            (325, _LONG, counts),
            (530, _SHORT, [2, 2]),
        ]
        if self._descriptions[index]:
            entries.append((270, _ASCII, self._descriptions[index]))
        return sorted(entries, key=lambda entry: entry[0])

    def _write_directory(self, entries: list[tuple[int, int, object]], pointer_at: int) -> int:
        """Where the next link goes; this directory is linked at ``pointer_at``."""
        stream = self._stream
        stream.seek(0, 2)
        records = []
        for tag, kind, value in entries:
            data = _pack(kind, value)
            count = len(data) // _SIZES[kind]
            if len(data) > 8:
                stream.write(b"\0" * (-stream.tell() % 8))
                field = struct.pack("<Q", stream.tell())
                stream.write(data)
            else:
                field = data.ljust(8, b"\0")
            records.append(struct.pack("<HHQ", tag, kind, count) + field)
        stream.write(b"\0" * (-stream.tell() % 8))
        at = stream.tell()
        stream.write(struct.pack("<Q", len(records)) + b"".join(records) + struct.pack("<Q", 0))
        next_link = stream.tell() - 8
        stream.seek(pointer_at)
        stream.write(struct.pack("<Q", at))
        return next_link


def _pack(kind: int, value: object) -> bytes:
    if kind == _ASCII:
        return str(value).encode("ascii") + b"\0"
    numbers = np.asarray(value)
    if kind == _RATIONAL:
        return numbers.astype("<u4").tobytes()
    return numbers.astype("<" + {"H": "u2", "I": "u4", "Q": "u8"}[_CODES[kind]]).tobytes()
