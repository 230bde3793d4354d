"""Row 1, slides: decoded blocks are counted here; what reading has cost so far goes out."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

CHANNELS = 3


@dataclass(frozen=True)
class LevelReads:
    """What was decoded of one level stored in the file."""

    blocks: int = 0
    pixels: int = 0


@dataclass(frozen=True)
class ReadStatistics:
    """Everything read from a slide since it was opened; the difference of two is a stage's share.

    ``pixels_returned`` went to callers, ``pixels_decoded`` came out of the file's own levels
    (cached blocks count once). ``compressed_bytes`` is None where the reader cannot know it.
    """

    pixels_returned: int = 0
    levels: dict[int, LevelReads] = field(default_factory=dict)
    compressed_bytes: int | None = None

    @property
    def blocks_decoded(self) -> int:
        """The blocks decoded, all levels together."""
        return sum(level.blocks for level in self.levels.values())

    @property
    def pixels_decoded(self) -> int:
        """The pixels decoded, all levels together."""
        return sum(level.pixels for level in self.levels.values())

    @property
    def bytes_decoded(self) -> int:
        """The decoded RGB bytes, all levels together."""
        return self.pixels_decoded * CHANNELS

    def __sub__(self, earlier: ReadStatistics) -> ReadStatistics:
        """What was read between two moments."""
        levels = {}
        for index, now in self.levels.items():
            then = earlier.levels.get(index, LevelReads())
            if now != then:
                levels[index] = LevelReads(now.blocks - then.blocks, now.pixels - then.pixels)
        compressed = None
        if self.compressed_bytes is not None:
            compressed = self.compressed_bytes - (earlier.compressed_bytes or 0)
        return ReadStatistics(self.pixels_returned - earlier.pixels_returned, levels, compressed)


class ReadCounter:
    """Cumulative counts of one slide; safe to use from many threads."""

    def __init__(self) -> None:
        """Nothing has been read yet."""
        self._lock = threading.Lock()
        self._returned = 0
        self._blocks: dict[int, int] = {}
        self._pixels: dict[int, int] = {}
        self._compressed: int | None = None

    def add_returned(self, pixels: int) -> None:
        """Count pixels handed to a caller."""
        with self._lock:
            self._returned += pixels

    def add_decoded(self, stored_index: int, blocks: int, pixels: int) -> None:
        """Count blocks of a stored level that were decoded."""
        with self._lock:
            self._blocks[stored_index] = self._blocks.get(stored_index, 0) + blocks
            self._pixels[stored_index] = self._pixels.get(stored_index, 0) + pixels

    def add_compressed(self, num_bytes: int) -> None:
        """Count compressed bytes fetched from the file; only readers that see them call this."""
        with self._lock:
            self._compressed = (self._compressed or 0) + num_bytes

    def now(self) -> ReadStatistics:
        """The counts so far."""
        with self._lock:
            levels = {
                index: LevelReads(self._blocks[index], self._pixels[index])
                for index in sorted(self._blocks)
            }
            return ReadStatistics(self._returned, levels, self._compressed)
