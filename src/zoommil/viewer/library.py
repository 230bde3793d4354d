"""Row 15, library: predictions, a folder of slides and labels come in; what may be shown goes out.

Everything a page can ask for has a key, made here from what lies in the folder. A request carries
a key and numbers; no text of a request ever becomes part of a path.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from zoommil.bags.cohort import SlideRow, read_cohort
from zoommil.bags.slide_files import files_of_folder, slide_id_of
from zoommil.errors import CohortError, PredictionError, SlideError
from zoommil.inference.prediction import Prediction
from zoommil.slides.resolution import GIVEN

logger = logging.getLogger(__name__)

LINES_FILE, TABLE_FILE = "predictions.jsonl", "slides.csv"
_KEPT_PREDICTIONS = 8


@dataclass(frozen=True)
class Summary:
    """What the table shows of a stored prediction."""

    label: str
    probabilities: Mapping[str, float]
    patches: int
    exhaustive_patches: int
    flops: int
    exhaustive_flops: int
    seconds: float | None

    @classmethod
    def of(cls, prediction: Prediction) -> Summary:
        """The summary of a prediction."""
        return cls(
            label=prediction.label,
            probabilities=MappingProxyType(dict(prediction.probabilities)),
            patches=prediction.cost.patches,
            exhaustive_patches=prediction.exhaustive_cost.patches,
            flops=prediction.cost.flops,
            exhaustive_flops=prediction.exhaustive_cost.flops,
            seconds=prediction.measured.seconds.get("total"),
        )


@dataclass(frozen=True)
class Entry:
    """One slide of the cohort: a file in the folder, a prediction, or both.

    Attributes:
        key: what pages and requests call it.
        slide_id: its name.
        path: the file, resolved; None where the folder has none.
        case_id: the patient; None where nobody says.
        label: the true class, None where unknown.
        mpp: microns per pixel to open it with; None: the file's own.
        summary: of its stored prediction, None where there is none.
    """

    key: str
    slide_id: str
    path: Path | None = None
    case_id: str | None = None
    label: str | None = None
    mpp: float | None = None
    summary: Summary | None = None


class StoredPredictions:
    """The predictions of a file, each read again when it is asked for."""

    def __init__(self, source: Path | str) -> None:
        """Reads the file once, for what the table needs.

        Args:
            source: what ``zoommil predict`` wrote: the folder, or the file of JSON lines.

        Raises:
            PredictionError: it cannot be read or holds no prediction.
        """
        path = Path(source)
        self.path = path / LINES_FILE if path.is_dir() else path
        self.summaries: dict[str, Summary] = {}
        self.files: dict[str, str] = {}
        self.mpps: dict[str, float] = {}
        self.artefact: Path | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._kept: OrderedDict[str, Prediction] = OrderedDict()
        self._lock = threading.Lock()
        num_bad = 0
        for start, text in self._texts():
            try:
                self._remember(start, text, Prediction.from_json(text.decode()))
            except (PredictionError, UnicodeDecodeError):
                num_bad += 1
        if not self.summaries:
            raise PredictionError(
                f"{str(self.path)!r} holds no predictions. Give the folder or the file that "
                "'zoommil predict --out' wrote."
            )
        if num_bad:
            logger.warning("%s: %d lines are no predictions, left out", self.path.name, num_bad)

    def prediction(self, slide_id: str) -> Prediction | None:
        """The prediction of a slide, None when there is none."""
        if slide_id not in self._places:
            return None
        with self._lock:
            if slide_id in self._kept:
                self._kept.move_to_end(slide_id)
                return self._kept[slide_id]
        start, length = self._places[slide_id]
        with self.path.open("rb") as stream:
            stream.seek(start)
            found = Prediction.from_json(stream.read(length).decode())
        with self._lock:
            self._kept[slide_id] = found
            while len(self._kept) > _KEPT_PREDICTIONS:
                self._kept.popitem(last=False)
        return found

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Where each prediction's text begins, and the text."""
        try:
            with self.path.open("rb") as stream:
                first = stream.readline()
                if first.strip() and not _is_json(first):  # one prediction over many lines
                    yield 0, first + stream.read()
                    return
                stream.seek(start := 0)
                for line in stream:
                    if line.strip():
                        yield start, line
                    start += len(line)
        except OSError as error:
            raise PredictionError(
                f"cannot read {str(self.path)!r}: {error.strerror or error}. Give the folder or "
                "the file that 'zoommil predict --out' wrote."
            ) from error

    def _remember(self, start: int, text: bytes, prediction: Prediction) -> None:
        slide_id = prediction.slide_id
        self.summaries[slide_id] = Summary.of(prediction)
        self._places[slide_id] = (start, len(text))
        self.files[slide_id] = prediction.measured.files.get("slide", "")
        slide = prediction.provenance.get("slide") or {}
        if slide.get("mpp_source") == GIVEN and slide.get("mpp"):
            self.mpps[slide_id] = float(slide["mpp"])
        artefact = prediction.measured.files.get("artefact")
        if artefact:
            self.artefact = Path(artefact)


class Library:
    """The slides of a folder and the predictions for them."""

    def __init__(
        self,
        predictions: StoredPredictions,
        folder: Path | str,
        *,
        cohort: Path | str | None = None,
        mpp: float | None = None,
    ) -> None:
        """Looks at the folder once; :meth:`refresh` looks again.

        Args:
            predictions: what to show.
            folder: where the slides lie, at any depth; nothing outside it is opened.
            cohort: a table with labels and cases; None: the table beside the predictions, if any.
            mpp: microns per pixel of slides that do not say.

        Raises:
            CohortError: the folder or the table is none, or no slide lies in the folder.
        """
        self.stored = predictions
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise CohortError(f"slides folder {str(folder)!r} does not exist or is not a folder.")
        beside = predictions.path.parent / TABLE_FILE
        table = cohort if cohort is not None else beside if beside.is_file() else None
        rows = () if table is None else read_cohort(table).slides
        self._rows = {row.slide_id: row for row in rows}
        self._mpp = mpp
        self.entries: Mapping[str, Entry] = {}
        self.refresh()
        if all(entry.path is None for entry in self.entries.values()):
            raise CohortError(
                f"there is no slide in {str(folder)!r}. Give --slides the folder that the "
                "predicted slides lie in, at any depth."
            )

    @property
    def missing(self) -> tuple[str, ...]:
        """Predicted slides that the folder does not have."""
        entries = self.entries.values()
        return tuple(entry.slide_id for entry in entries if entry.summary and entry.path is None)

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes that are predicted."""
        first = next(iter(self.stored.summaries.values()))
        return tuple(first.probabilities)

    def refresh(self) -> None:
        """Look at the folder again: new slides appear, missing ones go."""
        files = self._files()
        matched = {name: self._file_of(name, files) for name in self.stored.summaries}
        taken = set(matched.values())
        found = [self._entry(name, path) for name, path in matched.items()]
        found += [
            self._entry(slide_id_of(path), path, has_prediction=False)
            for path in files
            if path not in taken
        ]
        self.entries = MappingProxyType({entry.key: entry for entry in found})

    def entry(self, key: str) -> Entry | None:
        """What a key stands for, None when nothing."""
        return self.entries.get(key)

    def prediction(self, key: str) -> Prediction | None:
        """The stored prediction of a key."""
        entry = self.entries.get(key)
        if entry is None or entry.summary is None:
            return None
        return self.stored.prediction(entry.slide_id)

    def checked_path(self, entry: Entry) -> Path:
        """The file of an entry, if it still lies in the folder.

        Raises:
            SlideError: there is none, or it leads somewhere else by now.
        """
        if entry.path is None:
            raise SlideError(f"there is no file of slide {entry.slide_id!r} in the slides folder.")
        if not self._is_inside(entry.path):
            raise SlideError(f"slide {entry.slide_id!r} is not in the slides folder any more.")
        return entry.path

    def _files(self) -> list[Path]:
        try:
            files = files_of_folder(self.folder)
        except CohortError:
            return []  # none is there
        inside = [path.resolve() for path in files if self._is_inside(path)]
        if len(inside) < len(files):
            logger.warning(
                "%d links in the slides folder lead out of it; they are not shown",
                len(files) - len(inside),
            )
        return list(dict.fromkeys(inside))

    def _is_inside(self, path: Path) -> bool:
        resolved = path.resolve()
        return resolved.is_relative_to(self.folder) and resolved.is_file()

    def _file_of(self, slide_id: str, files: Sequence[Path]) -> Path | None:
        """The file a prediction was made from: by its name there, or the only one of that stem."""
        made_from = self.stored.files.get(slide_id)
        if made_from:
            named = [path for path in files if str(path) == made_from]
            named = named or [path for path in files if path.name == Path(made_from).name]
            if len(named) == 1:
                return named[0]
        same = [path for path in files if slide_id_of(path) == slide_id]
        return same[0] if len(same) == 1 else None

    def _entry(self, slide_id: str, path: Path | None, *, has_prediction: bool = True) -> Entry:
        row = self._rows.get(slide_id)
        name = slide_id if path is None else path.relative_to(self.folder).as_posix()
        kind = "file" if path is not None else "prediction"
        return Entry(
            key=hashlib.sha256(f"{kind}:{slide_id}:{name}".encode()).hexdigest()[:16],
            slide_id=slide_id,
            path=path,
            case_id=row.case_id if row is not None else None,
            label=row.label if row is not None else None,
            mpp=self._mpp_of(slide_id, row),
            summary=self.stored.summaries.get(slide_id) if has_prediction else None,
        )

    def _mpp_of(self, slide_id: str, row: SlideRow | None) -> float | None:
        if row is not None and row.mpp is not None:
            return float(row.mpp)
        return self._mpp if self._mpp is not None else self.stored.mpps.get(slide_id)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
