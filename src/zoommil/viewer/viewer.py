"""Row 15, the viewer: what all pages share: library, open slides, pictures, live predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zoommil.viewer.cohort import Order
from zoommil.viewer.library import Entry, Library, Summary
from zoommil.viewer.live import LivePredictions
from zoommil.viewer.shelf import SlideShelf
from zoommil.viewer.tiles import PictureMaker
from zoommil.viewer.world import TileWorld

_OTHER_FILE = (
    "The slide in the folder is not the file this prediction was made from (their fingerprints "
    "differ). What is outlined may lie elsewhere."
)


@dataclass(frozen=True)
class Viewer:
    """What all pages share."""

    library: Library
    shelf: SlideShelf
    pictures: PictureMaker
    live: LivePredictions

    @classmethod
    def of(cls, library: Library, live: LivePredictions) -> Viewer:
        """The viewer of a library."""
        shelf = SlideShelf(library)
        return cls(library, shelf, PictureMaker(shelf), live)

    def close(self) -> None:
        """Let go of slides, threads and the predicting process."""
        self.live.close()
        self.pictures.close()

    def ordered(self, order: Order) -> list[Entry]:
        """The cohort in an order, with what was predicted meanwhile."""
        return order.applied(self._current(entry) for entry in self.library.entries.values())

    def look_at(self, key: str) -> tuple[TileWorld, tuple[str, ...]]:
        """Where a slide lies in the tile world, and what one should know about the file.

        Raises:
            SlideError: it cannot be opened.
        """
        with self.shelf.slide(key) as slide:
            warnings = slide.warnings
            stored = self.library.prediction(key)
            known = (stored.provenance.get("slide") or {}) if stored is not None else {}
            if known.get("fingerprint") not in (None, slide.fingerprint):
                warnings = (_OTHER_FILE, *warnings)
            return TileWorld.of_slide(slide), warnings

    def predict(self, entry: Entry) -> None:
        """Begin to predict a slide of the folder.

        Raises:
            SlideError: its file is not there.
            PredictionError: nothing can be predicted now.
        """
        path = self.library.checked_path(entry)
        self.live.start(entry.key, entry.slide_id, path, entry.mpp)

    def _current(self, entry: Entry) -> Entry:
        run = self.live.run_of(entry.key)
        if run is None or run.status != "done" or run.prediction is None:
            return entry
        return replace(entry, summary=Summary.of(run.prediction))
