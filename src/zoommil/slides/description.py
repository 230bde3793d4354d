"""Row 1, slides: what a slide is, as data for ``zoommil info`` and for provenance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LevelDescription:
    """One level stored in the file: its size, level-0 pixels per pixel, resolution, block size."""

    size: tuple[int, int]
    downsample: float
    mpp: float
    block_size: tuple[int, int]


@dataclass(frozen=True)
class SlideDescription:
    """What a slide file is and how it will be read."""

    slide_id: str
    path: str | None
    reader: str
    vendor: str
    size: tuple[int, int]
    mpp: float
    mpp_source: str
    magnification: float
    nominal_magnification: float | None
    scale: str
    bounds: tuple[int, int, int, int]
    levels: tuple[LevelDescription, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ReadPlan:
    """How pixels of one resolution are made.

    Attributes:
        mpp: the resolution asked for.
        downsample: level-0 pixels per output pixel.
        level_downsample: level-0 pixels per pixel of the level they are made from.
        stored_index: the file's level that is decoded for it.
        is_virtual: the level is halved from that one, not stored.
        is_resampled: its pixels are weighed together, not taken as they are.
        is_finer_than_scan: the request is finer than the scan itself (at most 10%).
        decoded_pixels: pixels decoded from the file per output pixel, blocks aligned.
    """

    mpp: float
    downsample: float
    level_downsample: float
    stored_index: int
    is_virtual: bool
    is_resampled: bool
    is_finer_than_scan: bool
    decoded_pixels: float
