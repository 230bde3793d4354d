"""TIFF files of JPEG tiles for tests, of every kind that scanners write, put together by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile

from zoommil.slides.levels import Level
from zoommil.slides.slide import Slide

APERIO = "Aperio Image Library v12\r\n{width}x{height} [0,0] |AppMag = 40|MPP = 0.25"
PADDING = 7  # what tiles hold outside the picture


@dataclass(frozen=True)
class Form:
    """How a file is written: colours, subsampling, where tables lie, size of tiles, format."""

    colours: str = "ycbcr"
    subsampling: str = "420"
    has_tables: bool = False
    tile: tuple[int, int] = (128, 128)
    is_aperio: bool = False
    is_big: bool = False
    keeps_notes: bool = True

    def __str__(self) -> str:
        parts = [self.colours, self.subsampling, f"{self.tile[0]}x{self.tile[1]}"]
        flags = {"tables": self.has_tables, "aperio": self.is_aperio, "big": self.is_big}
        return "-".join(parts + [name for name, is_set in flags.items() if is_set])


def soft_picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """A picture with edges and colours that JPEG keeps roughly, (height, width, 3)."""
    import cv2

    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 12 + 2, width // 12 + 2, 3), dtype=np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(smooth.astype(int) + rng.integers(-8, 9, smooth.shape), 0, 255).astype(np.uint8)


def write_jpeg_tiff(
    path: Path, levels: Sequence[np.ndarray], form: Form | None = None, missing=(), **options
) -> Path:
    """A pyramid of JPEG tiles.

    Args:
        path: of the file.
        levels: finest first.
        form: how it is written; None: the usual one.
        missing: (level, column, row) of tiles to leave out.
        options: for the writer of every level.
    """
    form = form or Form()
    height, width = levels[0].shape[:2]
    description = APERIO.format(width=width, height=height) if form.is_aperio else None
    with tifffile.TiffWriter(path, bigtiff=form.is_big) as writer:
        for index, level in enumerate(levels):
            absent = {(column, row) for where, column, row in missing if where == index}
            streams = [b"" if cell in absent else data for cell, data in _tiles(level, form)]
            tables = None
            if form.has_tables:
                tables = b"\xff\xd8" + tables_and_rest(next(filter(None, streams)))[0] + b"\xff\xd9"
                streams = [tables_and_rest(data)[1] if data else data for data in streams]
            writer.write(
                iter(streams),
                shape=level.shape,
                dtype=np.uint8,
                tile=form.tile[::-1],
                compression="jpeg",
                compressionargs={"outcolorspace": form.colours},
                photometric=form.colours,
                subsampling=_factors(form) if form.colours == "ycbcr" else None,
                jpegtables=tables,
                subfiletype=int(index > 0 and not form.is_aperio),
                description=description if index == 0 else None,
                resolution=(4e4, 4e4),
                resolutionunit=3,
                metadata=None,
                **options,
            )
    return path


def encoded(pixels: np.ndarray, colours: str, subsampling: str, quality: int = 85) -> bytes:
    """One JPEG stream."""
    return imagecodecs.jpeg8_encode(
        np.ascontiguousarray(pixels),
        level=quality,
        colorspace="rgb",
        outcolorspace=colours,
        subsampling=subsampling,
    )


def tables_and_rest(stream: bytes) -> tuple[bytes, bytes]:
    """The quantisation and Huffman tables of a stream, and the stream without them."""
    at, tables, rest = 2, b"", b"\xff\xd8"
    while stream[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(stream[at + 2 : at + 4])
        if stream[at + 1] in (0xDB, 0xC4):
            tables += stream[at:end]
        else:
            rest += stream[at:end]
        at = end
    return tables, rest + stream[at:]


def without_notes(stream: bytes) -> bytes:
    """A stream without what it says of its colours."""
    at, rest = 2, b"\xff\xd8"
    while stream[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(stream[at + 2 : at + 4])
        if not 0xE0 <= stream[at + 1] <= 0xEF:
            rest += stream[at:end]
        at = end
    return rest + stream[at:]


def place_of_tile(path: Path, level: int, column: int, row: int) -> tuple[int, int]:
    """Offset and number of bytes of a tile."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        index = row * -(-page.imagewidth // page.tilewidth) + column
        return page.dataoffsets[index], page.databytecounts[index]


def whole_level(slide: Slide, level: Level | int) -> np.ndarray:
    """All pixels of a stored level, at its own resolution."""
    described = slide.describe().levels[level if isinstance(level, int) else level.stored_index]
    return slide.read(0, 0, *described.size, slide.mpp * described.downsample)


def _tiles(level: np.ndarray, form: Form) -> Iterator[tuple[tuple[int, int], bytes]]:
    width, height = form.tile
    rows, columns = -(-level.shape[0] // height), -(-level.shape[1] // width)
    margins = ((0, rows * height - level.shape[0]), (0, columns * width - level.shape[1]), (0, 0))
    padded = np.pad(level, margins, constant_values=PADDING)
    for row in range(rows):
        for column in range(columns):
            y, x = row * height, column * width
            data = encoded(padded[y : y + height, x : x + width], form.colours, form.subsampling)
            yield (column, row), data if form.keeps_notes else without_notes(data)


def _factors(form: Form) -> tuple[int, int]:
    return {"444": (1, 1), "422": (2, 1), "420": (2, 2)}[form.subsampling]
