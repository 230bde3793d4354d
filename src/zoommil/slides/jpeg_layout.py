"""Row 1, slides: a TIFF and its levels come in; where their JPEG tiles lie goes out.

Only what is surely read as OpenSlide reads it: tiled baseline JPEG of 8-bit RGB or YCbCr in the
formats ``aperio`` and ``generic-tiff``. Anything else is refused, and left to OpenSlide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from jaxtyping import Int64

from zoommil.errors import SlideError
from zoommil.slides.image_tiff_page import orientation_of
from zoommil.slides.jpeg_stream import MAX_HALVINGS, TileDecoder, frame_of
from zoommil.slides.shared_file import SharedFile

APERIO, PLAIN_TIFF = "aperio", "generic-tiff"
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_JPEG, _RGB, _YCBCR = 7, 2, 6
_REDUCED = 1
_SMALLEST_TILE_PX, _LARGEST_TILE_PX, _TILE_STEP_PX = 64, 2048, 16
_MAX_PAGES = 64


@dataclass(frozen=True, eq=False)
class TilePage:
    """One level of the file: its tiles' places row by row, 0 bytes where there is none."""

    size: tuple[int, int]
    tile_size: tuple[int, int]
    offsets: Int64[np.ndarray, " tile"]
    num_bytes: Int64[np.ndarray, " tile"]
    decoder: TileDecoder

    def place(self, column: int, row: int) -> tuple[int, int]:
        """Offset and number of bytes of a tile."""
        index = row * -(-self.size[0] // self.tile_size[0]) + column
        return int(self.offsets[index]), int(self.num_bytes[index])


class _UnsuitedError(Exception):
    """What keeps a file from being read this way."""


def is_tiff(path: Path) -> bool:
    """Whether a file begins as TIFF does."""
    with path.open("rb") as stream:
        return stream.read(4).startswith(_TIFF_MAGIC)


def read_layout(path: Path, vendor: str, sizes: Sequence[tuple[int, int]]) -> tuple[TilePage, ...]:
    """The tiles of every level.

    Args:
        path: of the file.
        vendor: the format as OpenSlide calls it.
        sizes: (width, height) of each level as OpenSlide reports it.

    Raises:
        SlideError: it is not a file that this can read just as OpenSlide does.
    """
    try:
        if vendor not in (APERIO, PLAIN_TIFF):
            raise _UnsuitedError(f"its format is {vendor}")
        with tifffile.TiffFile(path) as file:
            pages = [_tile_page(page) for page in _pages_of_levels(file, vendor, sizes)]
        _check_missing(pages, vendor)
        stream = SharedFile(path)
        for page in pages:
            _check_first_tile(page, stream)
    except _UnsuitedError as reason:
        raise _unsuited(path, reason) from None
    except Exception as error:  # tifffile raises many kinds on damaged structures
        raise _unsuited(path, error) from error
    return tuple(pages)


def _unsuited(path: Path, reason: Exception) -> SlideError:
    return SlideError(
        f"{path.name!r} is not a slide of plain JPEG tiles ({reason}). "
        'Use reader="openslide", or "auto".'
    )


def _pages_of_levels(
    file: tifffile.TiffFile, vendor: str, sizes: Sequence[tuple[int, int]]
) -> list[tifffile.TiffPage]:
    """The page of each of OpenSlide's levels, where there can be no doubt about it."""
    if len(file.pages) > _MAX_PAGES:
        raise _UnsuitedError(f"it has {len(file.pages)} pages")
    tiled: list[tifffile.TiffPage] = []
    for index in range(len(file.pages)):
        page = file.pages[index]
        if not isinstance(page, tifffile.TiffPage):
            raise _UnsuitedError("its pages cannot be told apart")
        is_level = vendor == APERIO or index == 0 or page.subfiletype & _REDUCED
        if page.is_tiled and is_level:
            tiled.append(page)
    found = []
    for size in sizes:
        matches = [page for page in tiled if (page.imagewidth, page.imagelength) == size]
        if len(matches) != 1:
            raise _UnsuitedError(f"{len(matches)} of its pages are {size[0]} x {size[1]}")
        found.append(matches[0])
    return found


def _tile_page(page: tifffile.TiffPage) -> TilePage:
    if page.compression != _JPEG or page.photometric not in (_RGB, _YCBCR):
        raise _UnsuitedError(f"a level has {page.compression!s} {page.photometric!s} tiles")
    if (page.bitspersample, page.samplesperpixel, page.planarconfig) != (8, 3, 1):
        raise _UnsuitedError("a level does not have three colours of 8 bits in one plane")
    if page.imagedepth != 1 or page.subifds is not None or orientation_of(page) != 1:
        raise _UnsuitedError("a level is not simply one upright picture")
    tile_size = (page.tilewidth, page.tilelength)
    for side in tile_size:
        if side % _TILE_STEP_PX or not _SMALLEST_TILE_PX <= side <= _LARGEST_TILE_PX:
            raise _UnsuitedError(f"a level has tiles of {tile_size[0]} x {tile_size[1]}")
    num_tiles = -(-page.imagewidth // tile_size[0]) * -(-page.imagelength // tile_size[1])
    offsets = np.array(page.dataoffsets, np.int64)
    num_bytes = np.array(page.databytecounts, np.int64)
    if len(offsets) != num_tiles or len(num_bytes) != num_tiles:
        raise _UnsuitedError(f"a level has {len(offsets)} tiles, expected {num_tiles}")
    return TilePage(
        (page.imagewidth, page.imagelength),
        tile_size,
        offsets,
        num_bytes,
        TileDecoder(tile_size, page.jpegtables, is_ycbcr=page.photometric == _YCBCR),
    )


def _check_missing(pages: Sequence[TilePage], vendor: str) -> None:
    """OpenSlide paints missing tiles of an Aperio slide from a finer level: leave that to it."""
    if vendor == APERIO and len(pages) > 1 and any((page.num_bytes == 0).any() for page in pages):
        raise _UnsuitedError("tiles are missing")


def _check_first_tile(page: TilePage, stream: SharedFile) -> None:
    """One tile is enough to see a writer's habits, also those that only a strict decoder minds."""
    present = np.flatnonzero(page.num_bytes)
    if not present.size:
        raise _UnsuitedError("a level has no tiles")
    first = present[0]
    tile = stream.read(int(page.offsets[first]), int(page.num_bytes[first]))
    if not frame_of(tile).is_common:
        raise _UnsuitedError("a level's tiles are not baseline JPEG of a common kind")
    page.decoder.decode(tile, MAX_HALVINGS)
