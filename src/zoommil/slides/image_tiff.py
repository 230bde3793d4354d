"""Row 1, slides: plain TIFF files as image sources, decoded tile by tile or strip by strip.

Whatever compression ``tifffile`` knows; pyramids in reduced pages or SubIFDs; orientation tags;
gray, palette, RGB, alpha; 8 and 16 bits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tifffile
from jaxtyping import UInt8

from zoommil.errors import SlideError
from zoommil.slides.image_tiff_page import TiffPageImage, orientation_of
from zoommil.slides.levels import Level, stored_level

_MAX_PAGES = 64
_REDUCED = 1
_SAME_SHAPE = 0.05
_UNITS = {2: "inch", 3: "centimeter"}
_APERIO_MPP = re.compile(r"\|\s*MPP\s*=\s*([\d.,]+)")
_OME_SIZE = re.compile(r'PhysicalSize([XY])="([\d.eE+-]+)"')
_OME_UNIT = re.compile(r'PhysicalSize[XY]Unit="([^"]+)"')
_MICRONS = {"µm", "μm", "um", "&#181;m", "micron", "&#xb5;m"}


class TiffImage:
    """A TIFF file that is not of a scanner's own format."""

    def __init__(self, path: Path) -> None:
        """Args: path: of the file. Raises SlideError where tifffile cannot read its structure."""
        self.vendor = "tiff"
        self.warnings: tuple[str, ...] = ()
        self.count_bytes: Callable[[int], None] = lambda _: None
        try:
            self._file = tifffile.TiffFile(path)
        except Exception as error:  # tifffile raises many kinds on damaged structures
            raise _unopenable(path, error) from error
        try:
            self._open_pages(path)
        except SlideError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise _unopenable(path, error) from error

    def read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Decode one block of a page."""
        width, height = level.block_size(column, row)
        x, y = column * level.block_width, row * level.block_height
        return self._pages[level.stored_index].read(x, y, width, height, self.count_bytes)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open_pages(self, path: Path) -> None:
        lock = threading.Lock()
        pages = _pyramid_pages(self._file)
        self._pages = [
            TiffPageImage(page, path.name, index, lock) for index, page in enumerate(pages)
        ]
        self.size = self._pages[0].size
        self.properties = _properties_of(pages[0])
        self.levels: Sequence[Level] = self._levels()

    def _levels(self) -> tuple[Level, ...]:
        levels: list[Level] = []
        for index, page in enumerate(self._pages):
            level = stored_level(index, self.size, page.size, page.tile_size, page.block_size)
            if not levels or level.downsample > levels[-1].downsample:
                levels.append(level)
        return tuple(levels)


def has_own_layout(path: Path) -> bool:
    """Whether a TIFF says things that OpenSlide's generic reader does not heed.

    That is an orientation other than upright, or levels in SubIFDs (OME-TIFF).
    """
    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            return page.subifds is not None or orientation_of(page) != 1
    except Exception:  # damaged: let whoever opens it say so
        return False


def _pyramid_pages(file: tifffile.TiffFile) -> list[tifffile.TiffPage]:
    """The first page and the reduced versions of it, in the file's order, largest first."""
    first = file.pages.first
    others = [page for page in first.pages or () if isinstance(page, tifffile.TiffPage)]
    for index in range(1, min(len(file.pages), _MAX_PAGES)):
        page = file.pages[index]
        if isinstance(page, tifffile.TiffPage) and page.subfiletype & _REDUCED:
            others.append(page)
    pyramid = [first]
    for page in sorted(others, key=lambda page: -page.imagewidth):
        aspect = (page.imagewidth / page.imagelength) / (first.imagewidth / first.imagelength)
        is_smaller = page.imagewidth < pyramid[-1].imagewidth
        if is_smaller and abs(aspect - 1) < _SAME_SHAPE and page.is_tiled == first.is_tiled:
            pyramid.append(page)
    return pyramid


def _properties_of(page: tifffile.TiffPage) -> dict[str, str]:
    """What the tags say about resolution, named as OpenSlide names it."""
    properties: dict[str, str] = {}
    for name in ("XResolution", "YResolution"):
        tag = page.tags.get(name)
        if tag is not None and tag.value[1]:
            properties[f"tiff.{name}"] = repr(tag.value[0] / tag.value[1])
    unit = page.tags.get("ResolutionUnit")
    properties["tiff.ResolutionUnit"] = _UNITS.get(int(unit.value) if unit else 2, "none")
    description = page.description or ""
    if description:
        properties["tiff.ImageDescription"] = description[:10_000]
    aperio = _APERIO_MPP.search(description)
    if aperio:
        properties["aperio.MPP"] = aperio[1]
    if set(_OME_UNIT.findall(description)) <= _MICRONS:
        for axis, value in _OME_SIZE.findall(description):
            properties.setdefault(f"ome.PhysicalSize{axis}", value)
    return properties


def _unopenable(path: Path, error: Exception) -> SlideError:
    return SlideError(
        f"{path.name!r} cannot be opened as TIFF ({type(error).__name__}: {error}). "
        "The file is damaged or of a kind that is not supported."
    )
