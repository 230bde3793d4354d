"""Row 1, slides: decoded blocks are counted here; what reading has cost so far goes out."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

CHANNELS = 3


@dataclass(frozen=True)
class LevelReads:
    """What was read of one level stored in the file.

    ``pixels_read`` are the pixels that went into results: they depend on the boxes read alone.
    ``blocks_decoded`` and ``pixels_decoded`` are the work done, which caches make less.
    """

    pixels_read: int = 0
    blocks_decoded: int = 0
    pixels_decoded: int = 0

    def __sub__(self, earlier: LevelReads) -> LevelReads:
        """What was read between two moments."""
        return LevelReads(
            self.pixels_read - earlier.pixels_read,
            self.blocks_decoded - earlier.blocks_decoded,
            self.pixels_decoded - earlier.pixels_decoded,
        )


@dataclass(frozen=True)
class ReadStatistics:
    """Everything read from a slide since it was opened; the difference of two is a stage's share.

    ``pixels_returned`` went to callers. ``pixels_read`` and ``bytes_read`` (RGB) were needed of the
    file's own levels for that; the same boxes always give the same number. ``compressed_bytes`` is
    None where the reader cannot know it.
    """

    pixels_returned: int = 0
    levels: dict[int, LevelReads] = field(default_factory=dict)
    compressed_bytes: int | None = None

    @property
    def pixels_read(self) -> int:
        """The pixels of stored levels that went into results, all levels together."""
        return sum(level.pixels_read for level in self.levels.values())

    @property
    def bytes_read(self) -> int:
        """The same as uncompressed RGB bytes."""
        return self.pixels_read * CHANNELS

    @property
    def blocks_decoded(self) -> int:
        """The blocks decoded, all levels together."""
        return sum(level.blocks_decoded for level in self.levels.values())

    @property
    def pixels_decoded(self) -> int:
        """The pixels decoded, all levels together."""
        return sum(level.pixels_decoded for level in self.levels.values())

    def __sub__(self, earlier: ReadStatistics) -> ReadStatistics:
        """What was read between two moments."""
        levels = {}
        for index, now in self.levels.items():
            change = now - earlier.levels.get(index, LevelReads())
            if change != LevelReads():
                levels[index] = change
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
        self._levels: dict[int, LevelReads] = {}
        self._compressed: int | None = None

    def add_read(self, stored_index: int, pixels_read: int, pixels_returned: int) -> None:
        """Count pixels handed to a caller, and those of a stored level that they came from."""
        with self._lock:
            self._returned += pixels_returned
            then = self._levels.get(stored_index, LevelReads())
            self._levels[stored_index] = replace(then, pixels_read=then.pixels_read + pixels_read)

    def add_decoded(self, stored_index: int, blocks: int, pixels: int) -> None:
        """Count blocks of a stored level that were decoded."""
        with self._lock:
            then = self._levels.get(stored_index, LevelReads())
            self._levels[stored_index] = replace(
                then,
                blocks_decoded=then.blocks_decoded + blocks,
                pixels_decoded=then.pixels_decoded + pixels,
            )

    def add_compressed(self, num_bytes: int) -> None:
        """Count compressed bytes fetched from the file; only readers that see them call this."""
        with self._lock:
            self._compressed = (self._compressed or 0) + num_bytes

    def now(self) -> ReadStatistics:
        """The counts so far."""
        with self._lock:
            return ReadStatistics(
                self._returned, dict(sorted(self._levels.items())), self._compressed
            )
