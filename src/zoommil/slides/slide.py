"""Row 1, slides: the contract of all readers: a box and a resolution come in, RGB pixels go out.

A reader is a subclass that knows how to decode one block of one level of its file. Everything else
is the same for all of them and lives here: the cache, the virtual levels, the choice of the level,
white outside the slide, resampling, and counting what was read.
"""

from __future__ import annotations

import logging
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.errors import ResolutionError, SlideError
from zoommil.slides.cache import BlockCache
from zoommil.slides.description import LevelDescription, ReadPlan, SlideDescription
from zoommil.slides.levels import Level, coarsest_fine_enough, with_halved_levels
from zoommil.slides.mosaic import BlockMosaic
from zoommil.slides.resampling import is_native, resample, sample_axis, snapped
from zoommil.slides.resolution import Resolution
from zoommil.slides.statistics import ReadCounter, ReadStatistics
from zoommil.units import magnification_label, magnification_of, nominal_magnification

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

Scale = Literal["physical", "nominal"]

DEFAULT_CACHE_BYTES = 64 << 20
FINEST_UPSAMPLING = 1.1
MAX_READ_PIXELS = 1 << 28  # 0.8 GB of RGB in one read
_CHUNK_PX = 1024
_TILE_OF_COST = 256
_ONE_LEVEL_SIDE = 2048
_DECODED_PIXELS_PER_SECOND = 60e6


@dataclass(frozen=True)
class SlideContent:
    """What a reader found in its file: all that the contract needs to know about it.

    ``bounds`` is the part with content, (x, y, width, height) in level-0 pixels; None: everything.
    ``own_halvings`` is how often the reader halves a block by itself; see ``_read_halved_block``.
    """

    size: tuple[int, int]
    levels: Sequence[Level]
    properties: Mapping[str, str]
    resolution: Resolution
    bounds: tuple[int, int, int, int] | None = None
    vendor: str = "unknown"
    warnings: tuple[str, ...] = ()
    own_halvings: int = 0


class Slide(ABC):
    """An open whole-slide image; a context manager; every method is safe to call from threads.

    Attributes:
        path: of its file, or None for an array.
        slide_id: the file name without its extension.
        size: level-0 (width, height).
        mpp: microns per level-0 pixel; ``mpp_source`` says where that comes from.
        bounds: (x, y, width, height) of the part with content, level-0 pixels.
        properties: the file's metadata.
        scale: "physical" (a magnification means exactly 10 / magnification um per pixel) or
            "nominal" (it means the scanner's objective divided by a whole or simple number).
        warnings: what a user should know about this file, one sentence each.

    A subclass sets ``reader`` and implements :meth:`can_open`, :meth:`open`, :meth:`_read_block`,
    :meth:`_fingerprint` and, where it holds something, :meth:`_release`. It may override
    :meth:`_reads_boxes` and :meth:`_read_box` (any box instead of blocks) and
    :meth:`_read_halved_block` (a block decoded at a fraction of its size).
    """

    reader: ClassVar[str]
    stands_in_for: ClassVar[str | None] = None
    """A reader that opens everything that this one opens, less quickly; None: there is none."""

    def __init__(
        self,
        path: Path | None,
        content: SlideContent,
        *,
        scale: Scale = "physical",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Called by the readers; users call ``open_slide``."""
        self.path = path
        self.slide_id = path.stem if path is not None else "array"
        self.name = path.name if path is not None else "array"
        self.size = content.size
        self.mpp = content.resolution.mpp
        self.mpp_source = content.resolution.source
        self.bounds = _clipped(content.bounds, content.size)
        self.properties: Mapping[str, str] = MappingProxyType(dict(content.properties))
        self.vendor = content.vendor
        self.scale: Scale = scale
        self._stored = tuple(content.levels)
        self._pyramid = with_halved_levels(self._stored, content.own_halvings)
        self._cache = BlockCache(cache_bytes)
        self._counter = ReadCounter()
        self._mosaic = BlockMosaic(self, self._pyramid, self._cache, self._counter)
        self._known_fingerprint: str | None = None
        self._is_closed = False
        self.warnings = (*content.resolution.warnings, *content.warnings, *self._cost_warnings())
        for warning in self.warnings:
            logger.warning("%s: %s", self.name, warning)

    # What a reader provides

    @classmethod
    @abstractmethod
    def can_open(cls, path: Path) -> bool:
        """Whether this reader takes the file, judged by its content, cheaply."""

    @classmethod
    @abstractmethod
    def open(
        cls,
        source: Any,
        *,
        mpp: float | None = None,
        scale: Scale = "physical",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Slide:
        """The open slide of a path (or, for readers that take one, an array)."""

    @abstractmethod
    def _read_block(
        self, level: Level, column: int, row: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Decode one block of a stored level, alpha on white, as large as ``level.block_size``.

        Raises:
            SlideReadError: it cannot be decoded; names slide, level and box.
        """

    def _reads_boxes(self, level: Level) -> bool:  # noqa: ARG002
        """Whether :meth:`_read_box` is to be used for this stored level (and those halved from it).

        For readers that cut any box out of a level at no more than its own cost, with the pixels
        that do not depend on where the box begins. Blocks and their cache are then not used.
        """
        return False

    def _read_box(
        self, level: Level, x: int, y: int, width: int, height: int
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Decode any box inside a stored level, in its pixels. Raises SlideReadError."""
        raise NotImplementedError

    def _read_halved_block(
        self,
        level: Level,  # noqa: ARG002
        column: int,  # noqa: ARG002
        row: int,  # noqa: ARG002
    ) -> UInt8[np.ndarray, "height width 3"] | None:
        """One block of a virtual level made by the reader itself, or None to halve finer blocks.

        For formats that decode at a fraction of the size more cheaply than at full size. The
        choice must depend on the level alone, or a box would not always have the same pixels.
        ``level.stored_index`` and ``level.halvings`` say what is wanted. As far as the content's
        ``own_halvings`` go, such a block shows one stored block of the same column and row.
        The reader counts what it decodes for it.
        """
        return None

    @abstractmethod
    def _fingerprint(self) -> str:
        """The SHA-256 over the content's size and sampled blocks."""

    def _release(self) -> None:  # noqa: B027
        """Close what the reader holds open; called once."""

    # What everybody uses

    @property
    def fingerprint(self) -> str:
        """What tells this file from every other: SHA-256 over its size and sampled blocks."""
        if self._known_fingerprint is None:
            self._known_fingerprint = self._fingerprint()
        return self._known_fingerprint

    def read(
        self, x: float, y: float, width: int, height: int, mpp: float
    ) -> UInt8[np.ndarray, "height width 3"]:
        """RGB pixels of a box at any resolution; white outside the slide.

        They come from the coarsest level that is fine enough, antialiased, and are a function of
        slide, reader, box and mpp alone: cut out of a larger read they are the same.

        Args:
            x: left edge in level-0 pixels, any real number.
            y: top edge in level-0 pixels.
            width: output pixels.
            height: output pixels.
            mpp: microns per output pixel. At scale "nominal" it stands for the magnification
                10 / mpp.

        Raises:
            ResolutionError: the resolution is more than 10% finer than the scan.
            SlideReadError: a part of the box cannot be decoded.
            SlideError: the arguments cannot be meant, or the slide is closed.
        """
        downsample = self.downsample_of(mpp)
        width, height = self._checked_size(width, height)
        if not (math.isfinite(x) and math.isfinite(y)):
            raise SlideError(f"cannot read {self.name!r} at ({x}, {y}); expected finite numbers.")
        corner = (snapped(x / downsample), snapped(y / downsample))
        pixels = np.empty((height, width, 3), np.uint8)
        for top in range(0, height, _CHUNK_PX):
            for left in range(0, width, _CHUNK_PX):
                part = pixels[top : top + _CHUNK_PX, left : left + _CHUNK_PX]
                self._sample_into(part, corner[0] + left, corner[1] + top, downsample)
        return pixels

    def read_boxes(
        self, corners: Float[np.ndarray, "box 2"], width: int, height: int, mpp: float
    ) -> UInt8[np.ndarray, "box {height} {width} 3"]:
        """The pixels of many boxes of one size, each as :meth:`read` gives them.

        Neighbouring boxes are read together, so that blocks they share are decoded once.

        Args:
            corners: (x, y) of each box in level-0 pixels.
            width, height: output pixels of every box.
            mpp: microns per output pixel.
        """
        width, height = self._checked_size(width, height * max(1, len(corners)))
        height //= max(1, len(corners))
        pixels = np.empty((len(corners), height, width, 3), np.uint8)
        side = self.downsample_of(mpp)
        cells = np.floor(corners / (side * width, side * height))
        for box in np.lexsort((corners[:, 0], cells[:, 1])):
            x, y = corners[box]
            pixels[box] = self.read(float(x), float(y), width, height, mpp)
        return pixels

    def downsample_of(self, mpp: float) -> float:
        """Level-0 pixels per output pixel at a resolution, by the slide's scale.

        Raises:
            ResolutionError: more than 10% finer than the scan, or not a resolution.
        """
        if not (math.isfinite(mpp) and mpp > 0):
            raise ResolutionError(f"cannot read {self.name!r} at mpp {mpp}; expected more than 0.")
        if self.scale == "physical":
            downsample = mpp / self.mpp
        else:
            downsample = self._nominal() / magnification_of(mpp)
        if downsample * FINEST_UPSAMPLING < 1 - 1e-9:
            raise ResolutionError(
                f"{self.name!r} was scanned at mpp {self.mpp:g} "
                f"({magnification_label(round(magnification_of(self.mpp), 2))}); mpp {mpp:g} "
                f"({magnification_label(round(magnification_of(mpp), 2))}) is more than 10% finer. "
                "Use a lower magnification for this slide."
            )
        return downsample

    def plan_of(self, mpp: float) -> ReadPlan:
        """How pixels of a resolution are made: level, resampling, and pixels decoded for each."""
        downsample = self.downsample_of(mpp)
        level = self._pyramid[coarsest_fine_enough(self._pyramid, downsample)]
        return ReadPlan(
            mpp=mpp,
            downsample=downsample,
            level_downsample=level.downsample,
            stored_index=level.stored_index,
            is_virtual=level.is_virtual,
            is_resampled=not is_native(*_scales(level, downsample)),
            is_finer_than_scan=downsample < 1 - 1e-3,
            decoded_pixels=(downsample / level.downsample) ** 2 * 4.0**level.halvings,
        )

    def is_resampled(self, mpp: float) -> bool:
        """Whether pixels of this resolution are weighed together instead of taken as they are."""
        return self.plan_of(mpp).is_resampled

    def read_statistics(self) -> ReadStatistics:
        """What was read since the slide was opened; subtract two of them for a stage's share."""
        return self._counter.now()

    def describe(self) -> SlideDescription:
        """What the file is and how it will be read."""
        return SlideDescription(
            slide_id=self.slide_id,
            path=str(self.path) if self.path is not None else None,
            reader=self.reader,
            vendor=self.vendor,
            size=self.size,
            mpp=self.mpp,
            mpp_source=self.mpp_source,
            magnification=magnification_of(self.mpp),
            nominal_magnification=nominal_magnification(self.mpp),
            scale=self.scale,
            bounds=self.bounds,
            levels=tuple(
                LevelDescription(
                    size=(level.width, level.height),
                    downsample=level.downsample,
                    mpp=self.mpp * level.downsample,
                    block_size=(level.block_width, level.block_height),
                )
                for level in self._stored
            ),
            warnings=self.warnings,
        )

    def plot(self, axes: Axes | None = None, longest_px: int = 1000) -> Axes:
        """Draw the slide with Matplotlib, on axes of level-0 pixels; new ones unless given."""
        from zoommil.slides.showing import plot_slide

        return plot_slide(self, axes, longest_px)

    def _repr_html_(self) -> str:
        """What notebooks show: a thumbnail and what the file is."""
        from zoommil.slides.showing import slide_html

        return slide_html(self)

    def close(self) -> None:
        """Close the file and forget its pixels; reading afterwards is an error."""
        if not self._is_closed:
            self._is_closed = True
            self._cache.clear()
            self._release()

    def __enter__(self) -> Slide:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        width, height = self.size
        return f"<{type(self).__name__} {self.name!r} {width} x {height}, mpp {self.mpp:g}>"

    def _sample_into(
        self, pixels: np.ndarray, corner_x: float, corner_y: float, downsample: float
    ) -> None:
        """Fill an array with the pixels from a corner on, which is given in output pixels."""
        index = coarsest_fine_enough(self._pyramid, downsample)
        scale_x, scale_y = _scales(self._pyramid[index], downsample)
        nearest = is_native(scale_x, scale_y)
        columns = sample_axis(corner_x, pixels.shape[1], scale_x, nearest=nearest)
        rows = sample_axis(corner_y, pixels.shape[0], scale_y, nearest=nearest)
        region = self._mosaic.region(index, columns.first, rows.first, columns.length, rows.length)
        pixels[...] = resample(region, rows, columns)
        level = self._pyramid[index]
        num_read = _overlap(columns.first, columns.length, level.width) * _overlap(
            rows.first, rows.length, level.height
        )
        self._counter.add_read(
            level.stored_index, num_read * 4**level.halvings, pixels.shape[0] * pixels.shape[1]
        )

    def _checked_size(self, width: int, height: int) -> tuple[int, int]:
        if self._is_closed:
            raise SlideError(f"{self.name!r} is closed. Open it again to read.")
        try:
            width, height = operator.index(width), operator.index(height)
        except TypeError as error:
            raise SlideError(
                f"cannot read {width} x {height} pixels; expected integers."
            ) from error
        if width < 1 or height < 1:
            raise SlideError(f"cannot read {width} x {height} pixels of {self.name!r}; at least 1.")
        if width * height > MAX_READ_PIXELS:
            raise SlideError(
                f"cannot read {width} x {height} pixels of {self.name!r} at once "
                f"({width * height * 3 / 1e9:.1f} GB); at most {MAX_READ_PIXELS:,} pixels. "
                "Read it in parts, or at a larger mpp."
            )
        return width, height

    def _nominal(self) -> float:
        nominal = nominal_magnification(self.mpp)
        if nominal is None:
            raise ResolutionError(
                f"{self.name!r} has mpp {self.mpp:g}, which no objective is called by; "
                'scale "nominal" needs less than 2.4. Use scale="physical".'
            )
        return nominal

    def _cost_warnings(self) -> tuple[str, ...]:
        """A slide with one level: say what low magnifications will cost."""
        width, height = self.size
        if len(self._stored) > 1 or max(width, height) < _ONE_LEVEL_SIDE:
            return ()
        mpp = self.mpp * 16
        blocks = 16**2
        seconds = width * height / _DECODED_PIXELS_PER_SECOND
        return (
            f"has one level only ({width} x {height}): every low magnification is made from it. "
            f"At mpp {mpp:.3g} one {_TILE_OF_COST}-px patch decodes {blocks} blocks, the whole "
            f"slide {width * height / 1e6:,.0f} million pixels "
            f"(about {max(1.0, seconds):,.0f} s on one core). "
            "Memory stays bounded; converting it to a pyramid makes it quick",
        )


def _scales(level: Level, downsample: float) -> tuple[float, float]:
    return downsample / level.downsample_x, downsample / level.downsample_y


def _overlap(first: int, length: int, side: int) -> int:
    """How many of ``length`` pixels from ``first`` on lie inside a side."""
    return max(0, min(first + length, side) - max(first, 0))


def _clipped(
    bounds: tuple[int, int, int, int] | None, size: tuple[int, int]
) -> tuple[int, int, int, int]:
    """The bounds inside the slide; everything where none or nonsense is given."""
    if bounds is None:
        return (0, 0, *size)
    left, top = max(0, bounds[0]), max(0, bounds[1])
    right = min(size[0], bounds[0] + bounds[2])
    bottom = min(size[1], bounds[1] + bounds[3])
    if left >= right or top >= bottom:
        return (0, 0, *size)
    return (left, top, right - left, bottom - top)
