"""Row 15, shelf: keys come in; open slides go out, a few of them kept open, all memory bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from zoommil.errors import SlideError, UnknownNameError
from zoommil.slides.opening import open_slide
from zoommil.slides.slide import Slide
from zoommil.viewer.library import Entry, Library

MAX_OPEN = 4
CACHE_BYTES = 32 << 20


@dataclass
class _Place:
    """One slide on the shelf; its lock is held while it is being opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    slide: Slide | None = None
    readers: int = 0


class SlideShelf:
    """Slides that are open now; the one nobody asked for the longest is closed first."""

    def __init__(
        self, library: Library, *, max_open: int = MAX_OPEN, cache_bytes: int = CACHE_BYTES
    ) -> None:
        """Args: library: says what a key stands for; max_open: slides kept open while unused."""
        self._library = library
        self._max_open = max_open
        self._cache_bytes = cache_bytes
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def slide(self, key: str) -> Iterator[Slide]:
        """The open slide of a key, not closed as long as the block lasts.

        Raises:
            UnknownNameError: nothing has that key.
            SlideError: it cannot be opened.
        """
        entry = self._library.entry(key)
        if entry is None:
            raise UnknownNameError("nothing here has that key. Go back to the cohort.")
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            place.readers += 1
        try:
            with place.lock:
                if place.slide is None:
                    place.slide = self._open(entry)
            yield place.slide
        finally:
            with self._lock:
                place.readers -= 1
                if place.slide is None and place.readers == 0 and self._places.get(key) is place:
                    del self._places[key]
            self._close_unused(self._max_open)

    def close(self) -> None:
        """Close every slide that nobody reads."""
        self._close_unused(0)

    @property
    def num_open(self) -> int:
        """How many slides are open now."""
        with self._lock:
            return sum(place.slide is not None for place in self._places.values())

    def _open(self, entry: Entry) -> Slide:
        path = self._library.checked_path(entry)
        try:
            return open_slide(path, mpp=entry.mpp, cache_bytes=self._cache_bytes)
        except SlideError:
            raise
        except Exception as error:  # whatever a damaged file does to a decoder
            raise SlideError(
                f"{path.name!r} cannot be opened ({type(error).__name__}). Check the file."
            ) from error

    def _close_unused(self, max_open: int) -> None:
        closed: list[Slide] = []
        with self._lock:
            for key in list(self._places):
                if len(self._places) <= max_open:
                    break
                place = self._places[key]
                if place.readers == 0 and place.slide is not None:
                    closed.append(place.slide)
                    del self._places[key]
        for slide in closed:
            slide.close()
