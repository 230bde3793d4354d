"""Row 12, lines: predictions come in as they are made; a file of JSON lines that outlives a kill.

Lines are added to the end, so a run that stops loses at most the one it was writing. The file is
the only copy: what is kept in memory is where each slide's line lies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zoommil.errors import PredictionError
from zoommil.files import atomic_path, unwritable
from zoommil.inference.prediction import Prediction


class PredictionLines:
    """A file of predictions, one line each; of a slide with several lines, the last one counts."""

    def __init__(self, path: Path) -> None:
        """Reads what an earlier run wrote; a line that was cut short counts as none.

        Raises:
            OutputError: it cannot be written.
        """
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}  # slide -> first byte, number of bytes
        self._keys: dict[str, str] = {}
        self._end = 0
        try:
            with path.open("a+b") as stream:
                stream.seek(0)
                line = b"\n"
                for line in stream:
                    self._remember(line)
                if not line.endswith(b"\n"):
                    stream.write(b"\n")
                    self._end += 1
        except OSError as error:
            raise unwritable(self._path, error) from error

    def key_of(self, slide_id: str) -> str | None:
        """The key of a slide's prediction, None when there is none."""
        return self._keys.get(slide_id) if slide_id in self._places else None

    def prediction(self, slide_id: str) -> Prediction:
        """The prediction of a slide."""
        return Prediction.from_json(self._line(slide_id).decode())

    def add(self, prediction: Prediction, text: str) -> None:
        """Put a line at the end; it is on the disk when this returns.

        Raises:
            OutputError: it cannot be written.
        """
        line = text.encode() + b"\n"
        try:
            with self._path.open("ab") as stream:
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._places[prediction.slide_id] = (self._end, len(line))
        self._keys[prediction.slide_id] = prediction.key
        self._end += len(line)

    def forget(self, slide_id: str) -> None:
        """Leave out a slide for which there is no answer any more."""
        self._places.pop(slide_id, None)

    def put_in_order(self, slide_ids: Sequence[str]) -> None:
        """Write the file anew: these slides in this order, then all others by name."""
        others = sorted(set(self._places) - set(slide_ids))
        with atomic_path(self._path) as temporary, temporary.open("wb") as stream:
            for slide_id in (*slide_ids, *others):
                if slide_id in self._places:
                    stream.write(self._line(slide_id))

    def _remember(self, line: bytes) -> None:
        with suppress(PredictionError, UnicodeDecodeError):
            found = Prediction.from_json(line.decode())
            self._places[found.slide_id] = (self._end, len(line))
            self._keys[found.slide_id] = found.key
        self._end += len(line)

    def _line(self, slide_id: str) -> bytes:
        start, length = self._places[slide_id]
        with self._path.open("rb") as stream:
            stream.seek(start)
            return stream.read(length).rstrip(b"\n") + b"\n"
