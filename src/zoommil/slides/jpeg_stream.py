"""Row 1, slides: the JPEG stream of one TIFF tile comes in, its RGB pixels go out.

A tile's stream may leave its tables to the TIFF, and says nothing reliable about its colours: as in
OpenSlide the TIFF's word decides, also against the markers of the stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

MAX_HALVINGS = 3
"""How often a stream can be halved while it is decoded: blocks of 8 x 8 become one pixel."""

_START, _END, _SCAN, _BASELINE = 0xD8, 0xD9, 0xDA, 0xC0
_NO_FRAMES = {0xC4, 0xC8, 0xCC}  # tables and the like among the numbers of frame headers
_ALONE = {0x01, *range(0xD0, 0xD8)}
_NOTES = {*range(0xE0, 0xF0), 0xFE}
_PLAIN = ((1, 1), (1, 1))
_SAMPLINGS = {((1, 1), *_PLAIN), ((2, 1), *_PLAIN), ((2, 2), *_PLAIN)}
_ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"


@dataclass(frozen=True)
class Frame:
    """What a JPEG stream says about its picture. ``sampling``: factors (across, down) by colour."""

    width: int
    height: int
    bits: int
    is_baseline: bool
    sampling: tuple[tuple[int, int], ...]

    @property
    def is_common(self) -> bool:
        """Whether it is baseline, 8-bit, of three colours at 4:4:4, 4:2:2 or 4:2:0."""
        return self.is_baseline and self.bits == 8 and self.sampling in _SAMPLINGS


class TileDecoder:
    """Decodes the tiles of one TIFF page."""

    def __init__(self, size: tuple[int, int], tables: bytes | None, *, is_ycbcr: bool) -> None:
        """Args: size: (width, height) of every tile; tables: shared ones; is_ycbcr: or else RGB."""
        self._size = size
        transform = b"\x01" if is_ycbcr else b"\x00"
        shared = b"".join(_kept_segments(tables)) if tables else b""
        self._head = b"\xff\xd8" + shared + _ADOBE + transform

    def decode(self, tile: bytes, halvings: int = 0) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of a tile, its sides halved so many times (at most ``MAX_HALVINGS``).

        Raises:
            ValueError: it is damaged, or not of the size or kind it should be.
        """
        import simplejpeg

        self._check(frame_of(tile))
        stream = b"".join((self._head, *_kept_segments(tile)))
        width, height = (side >> halvings for side in self._size)
        pixels = simplejpeg.decode_jpeg(
            stream, min_width=width, min_height=height, min_factor=1 << halvings, strict=True
        )
        assert pixels.shape == (height, width, 3), "sides of tiles are multiples of 8"
        return pixels

    def _check(self, frame: Frame) -> None:
        if (frame.width, frame.height) != self._size:
            raise ValueError(
                f"its JPEG stream is {frame.width} x {frame.height}, "
                f"expected {self._size[0]} x {self._size[1]}"
            )
        if len(frame.sampling) != 3:
            raise ValueError(f"its JPEG stream has {len(frame.sampling)} colours, expected 3")


def frame_of(stream: bytes) -> Frame:
    """What the frame header of a stream says. Raises ValueError where there is none."""
    for marker, begin, end in _segments(stream):
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            bits, height, width, num_colours = struct.unpack_from(">BHHB", stream, begin + 4)
            factors = stream[begin + 11 : end : 3]
            if len(factors) != num_colours:
                break
            sampling = tuple((factor >> 4, factor & 15) for factor in factors)
            return Frame(width, height, bits, marker == _BASELINE, sampling)
    raise ValueError("it is no JPEG stream")


def _kept_segments(stream: bytes) -> list[bytes]:
    """The stream without its start and its notes, which might speak of other colours."""
    return [
        stream[begin:end]
        for marker, begin, end in _segments(stream)
        if marker not in _NOTES and marker != _END
    ]


def _segments(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, begin and end of each segment; that of the first scan ends with the stream."""
    if stream[:2] != b"\xff\xd8":
        raise ValueError("it is no JPEG stream")
    at, size = 2, len(stream)
    while at + 4 <= size:
        if stream[at] != 0xFF:
            raise ValueError("its JPEG header is damaged")
        marker = stream[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == _END:
            return
        if marker in _ALONE:
            end = at + 2
        elif marker == _SCAN:
            end = size
        else:
            end = at + 2 + int.from_bytes(stream[at + 2 : at + 4])
        if end > size or end < at + 2:
            raise ValueError("its JPEG header is cut off")
        yield marker, at, end
        at = end
