"""Row 1, slides: one page of a TIFF file: a box comes in, RGB pixels go out.

Only the tiles or strips ("segments") that the box touches are decoded; an uncompressed page in one
piece is mapped into memory instead. The orientation tag is applied, so boxes are upright.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import tifffile
from jaxtyping import UInt8

from zoommil.errors import SlideError, SlideReadError
from zoommil.slides.alpha import on_white
from zoommil.slides.cache import BlockCache
from zoommil.slides.image_array import BLOCK_PX, check_whole

_SMALLEST_BLOCK_PX = 128
_LARGEST_BLOCK_PIXELS = 2048 * 2048
_SEGMENT_CACHE_BYTES = 32 << 20
_TRANSPOSED = 5  # from this orientation on, the file's rows are the picture's columns
_MIRRORED = {2, 3, 6, 7}
_FLIPPED = {3, 4, 7, 8}
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_ASSOCIATED, _UNASSOCIATED = 1, 2
_JPEG = 7
_DECODED_TO_RGB = {6, 7, 33003, 33004, 33005, 34712, 34933, 34934}  # JPEG and its kin

CountBytes = Callable[[int], None]


class TiffPageImage:
    """A page as an upright RGB image of which any box can be read."""

    def __init__(
        self, page: tifffile.TiffPage, name: str, index: int, lock: threading.Lock
    ) -> None:
        """Args: page: of an open file; name, index: for messages; lock: guards the file."""
        self._page = page
        self._name = name
        self._index = index
        self._lock = lock
        self._orientation = orientation_of(page)
        self._raw_size = (page.imagewidth, page.imagelength)
        _check_supported(page, name)
        _check_complete(page, name)
        self._mapped = _map_pixels(page)
        self._segment_size = self._find_segment_size()
        block_size = self._find_block_size()
        self._is_aligned = self._orientation == 1 and all(
            block % segment == 0 or block >= side
            for block, segment, side in zip(
                block_size, self._segment_size, self._raw_size, strict=True
            )
        )
        segment_bytes = self._segment_size[0] * self._segment_size[1] * 3
        self._segments = BlockCache(max(_SEGMENT_CACHE_BYTES, segment_bytes))
        self.size = self._upright(self._raw_size)
        self.tile_size = self._upright(self._segment_size)
        self.block_size = self._upright(block_size)

    def read(
        self, x: int, y: int, width: int, height: int, count_bytes: CountBytes
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of an upright box inside the page. Raises SlideReadError."""
        if self._orientation in _MIRRORED:
            x = self.size[0] - x - width
        if self._orientation in _FLIPPED:
            y = self.size[1] - y - height
        (raw_x, raw_y), raw_size = self._upright((x, y)), self._upright((width, height))
        pixels = self._read_raw(raw_x, raw_y, *raw_size, count_bytes)
        if self._orientation >= _TRANSPOSED:
            pixels = pixels.transpose(1, 0, 2)
        if self._orientation in _MIRRORED:
            pixels = pixels[:, ::-1]
        if self._orientation in _FLIPPED:
            pixels = pixels[::-1]
        return np.ascontiguousarray(pixels)

    def _upright(self, pair: tuple[int, int]) -> tuple[int, int]:
        """A pair of the file's axes as one of the picture's axes, or the other way round."""
        return (pair[1], pair[0]) if self._orientation >= _TRANSPOSED else pair

    def _find_segment_size(self) -> tuple[int, int]:
        if self._mapped is not None:
            return BLOCK_PX, BLOCK_PX
        page = self._page
        if page.is_tiled:
            size = page.tilewidth, page.tilelength
        else:
            size = page.imagewidth, min(page.imagelength, page.rowsperstrip)
        check_whole(self._name, *size)
        return size

    def _find_block_size(self) -> tuple[int, int]:
        """Whole segments, neither very small nor very large."""
        width, height = self._segment_size
        if width * height > _LARGEST_BLOCK_PIXELS:
            return BLOCK_PX, BLOCK_PX
        return tuple(  # pyright: ignore[reportReturnType]
            side if side >= _SMALLEST_BLOCK_PX else side * -(-_SMALLEST_BLOCK_PX // side)
            for side in (width, height)
        )

    def _read_raw(
        self, x: int, y: int, width: int, height: int, count_bytes: CountBytes
    ) -> UInt8[np.ndarray, "height width 3"]:
        if self._mapped is not None:
            count_bytes(width * height * self._mapped[0, 0].nbytes)
            return _to_rgb(self._page, self._mapped[y : y + height, x : x + width])
        segment_width, segment_height = self._segment_size
        cells = [
            (column, row)
            for row in range(y // segment_height, -(-(y + height) // segment_height))
            for column in range(x // segment_width, -(-(x + width) // segment_width))
        ]

        def decode(wanted: list[tuple[int, int]]) -> dict[tuple[int, int], np.ndarray]:
            return {cell: self._decode_segment(*cell, count_bytes) for cell in wanted}

        segments = self._segments.fetch(cells, decode, keep=not self._is_aligned)
        pixels = np.empty((height, width, 3), np.uint8)
        for (column, row), segment in segments.items():
            left, top = column * segment_width, row * segment_height
            x0, y0 = max(x, left), max(y, top)
            x1 = min(x + width, left + segment.shape[1])
            y1 = min(y + height, top + segment.shape[0])
            pixels[y0 - y : y1 - y, x0 - x : x1 - x] = segment[
                y0 - top : y1 - top, x0 - left : x1 - left
            ]
        return pixels

    def _decode_segment(
        self, column: int, row: int, count_bytes: CountBytes
    ) -> UInt8[np.ndarray, "height width 3"]:
        """One tile or strip, cut to the page. Where the file has none it is blank: white."""
        across = -(-self._raw_size[0] // self._segment_size[0])
        down = -(-self._raw_size[1] // self._segment_size[1])
        num_planes = 1 if self._page.planarconfig == 1 else self._page.samplesperpixel
        left, top = column * self._segment_size[0], row * self._segment_size[1]
        width = min(self._segment_size[0], self._raw_size[0] - left)
        height = min(self._segment_size[1], self._raw_size[1] - top)
        planes = []
        for plane in range(num_planes):
            index = (plane * down + row) * across + column
            try:
                planes.append(self._decode_plane(index, count_bytes))
            except Exception as error:  # codecs raise kinds of their own
                raise SlideReadError(
                    f"{self._name!r}, level {self._index}: the box (x {left}, y {top}, "
                    f"{width} x {height} px of that level as stored) cannot be decoded: {error}. "
                    "The file is damaged there: copy it again, or leave it out."
                ) from error
        if any(plane is None for plane in planes):
            return np.full((height, width, 3), 255, np.uint8)
        samples = planes[0] if num_planes == 1 else np.concatenate(planes, axis=2)
        return _to_rgb(self._page, samples[:height, :width])

    def _decode_plane(self, index: int, count_bytes: CountBytes) -> np.ndarray | None:
        page = self._page
        offset, num_bytes = page.dataoffsets[index], page.databytecounts[index]
        if num_bytes == 0:
            return None
        handle = page.parent.filehandle
        with self._lock:
            handle.seek(offset)
            data = handle.read(num_bytes)
        if len(data) < num_bytes:
            raise ValueError(f"the file ends {num_bytes - len(data)} bytes early")
        count_bytes(num_bytes)
        if page.compression == _JPEG:
            _check_jpeg(data, page.jpegtables)
        segment = page.decode(data, index, jpegtables=page.jpegtables)[0]
        if segment is None:
            return None
        return segment.reshape(segment.shape[-3:])


def _check_jpeg(data: bytes, tables: bytes | None) -> None:
    """Refuse a damaged JPEG stream, which the codec would fill up with gray. ValueError."""
    import simplejpeg

    whole = tables[:-2] + data[2:] if tables else data
    simplejpeg.decode_jpeg(whole, colorspace="GRAY", strict=True, min_factor=8)


def orientation_of(page: tifffile.TiffPage) -> int:
    """The orientation tag, 1 (upright) to 8."""
    tag = page.tags.get("Orientation")
    value = int(tag.value) if tag is not None else 1
    return value if 1 <= value <= 8 else 1


def _check_supported(page: tifffile.TiffPage, name: str) -> None:
    """Refuse what cannot be shown as 8-bit RGB. Raises SlideError."""
    kind = np.dtype(page.dtype) if page.dtype is not None else None
    if kind not in (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(bool)):
        raise SlideError(f"{name!r} has pixels of type {kind}; expected 8 or 16 bits per channel.")
    known = {_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE}
    is_colour = page.photometric == _YCBCR and page.compression in _DECODED_TO_RGB
    if page.photometric not in known and not is_colour:
        raise SlideError(
            f"{name!r} has colours of kind {page.photometric!s}; "
            "expected gray, palette or RGB. Convert it to RGB."
        )
    if page.imagedepth != 1 or (page.samplesperpixel < 3 and page.photometric in {_RGB, _YCBCR}):
        raise SlideError(f"{name!r} is not a picture of one plane with one or three colours.")
    if page.compression not in tifffile.TIFF.DECOMPRESSORS:
        raise SlideError(
            f"{name!r} is compressed in a way ({page.compression!s}) that cannot be decoded. "
            "Convert it to a common one (JPEG, LZW, deflate)."
        )


def _check_complete(page: tifffile.TiffPage, name: str) -> None:
    """Refuse a file that ends before its pixels do. Raises SlideError."""
    end = max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=True)), default=0)
    size = page.parent.filehandle.size
    if end > size:
        raise SlideError(
            f"{name!r} is truncated: {size:,} bytes, but its pixels end at {end:,}. "
            "Copy the file again."
        )


def _map_pixels(page: tifffile.TiffPage) -> np.ndarray | None:
    """The page's pixels in the file itself, where they lie there in one piece as they are."""
    if not page.is_memmappable or page.planarconfig != 1 or page.dtype is None:
        return None
    return np.memmap(
        page.parent.filehandle.path,
        dtype=np.dtype(page.dtype).newbyteorder(page.parent.byteorder),
        mode="r",
        offset=page.dataoffsets[0],
        shape=(page.imagelength, page.imagewidth, page.samplesperpixel),
    )


def _to_rgb(page: tifffile.TiffPage, samples: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """Decoded samples of any supported kind as RGB on white."""
    if page.photometric == _PALETTE:
        assert page.colormap is not None
        return (page.colormap[:, samples[..., 0]] >> 8).astype(np.uint8).transpose(1, 2, 0).copy()
    if samples.dtype == bool:
        samples = samples.astype(np.uint8) * 255
    elif samples.dtype != np.uint8:
        samples = (samples >> 8).astype(np.uint8)
    num_colours = 1 if page.photometric in {_WHITE_IS_ZERO, _BLACK_IS_ZERO} else 3
    colours = samples[..., :num_colours]
    if page.photometric == _WHITE_IS_ZERO:
        colours = 255 - colours
    colours = np.repeat(colours, 3, axis=2) if num_colours == 1 else colours
    extra = page.extrasamples[0] if page.extrasamples else 0
    if extra in {_ASSOCIATED, _UNASSOCIATED} and samples.shape[2] > num_colours:
        alpha = samples[..., num_colours : num_colours + 1]
        rgba = np.ascontiguousarray(np.concatenate([colours, alpha], axis=2))
        return on_white(rgba, is_premultiplied=extra == _ASSOCIATED)
    return np.array(colours)
