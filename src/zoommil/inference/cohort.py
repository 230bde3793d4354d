"""Row 12, cohort: slides and an artefact come in; a JSON line as each slide ends, then tables.

    predictions.jsonl   a line per slide, added as each ends, at the end in the cohort's order
    slides.csv cases.csv cost.json
    failures.csv        slides that failed, by name; not there when none did

A slide is predicted again exactly when what its answer follows from has changed: the key of a line
is the hash of its provenance.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from zoommil.artefact import load_artefact
from zoommil.bags.cohort import SlideRow
from zoommil.encoding import Progress
from zoommil.errors import CohortError, OutputError, PredictionError
from zoommil.extraction import SlideFailure
from zoommil.files import exclusive_lock, hash_of, write_json, write_text
from zoommil.inference.answering import renamed
from zoommil.inference.limits import Limits
from zoommil.inference.prediction import Prediction
from zoommil.inference.predictor import Predictor
from zoommil.inference.tables import SlideAnswer, total_cost, write_cases, write_slides

if TYPE_CHECKING:
    from zoommil.engines.engine import Engine

logger = logging.getLogger(__name__)

LINES_FILE = "predictions.jsonl"


class PredictorChoice(BaseModel):
    """Which predictor to load in every worker, and what to ask of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    artefact: Path
    weights: tuple[str, ...] | None = None
    runtime: str = "auto"
    precision: str = "auto"
    device: str = "auto"
    reader: str = "auto"
    limits: Limits = Limits()
    batch_size: int | None = None

    def load(self) -> Predictor:
        """The predictor. Raises as :meth:`Predictor.load`."""
        return Predictor.load(
            self.artefact,
            self.device,
            weights=self.weights,
            runtime=self.runtime,
            precision=self.precision,
            reader=self.reader,
        )


@dataclass(frozen=True)
class SlideOutcome:
    """One slide's prediction: made now, or kept from a run before."""

    row: SlideRow
    status: Literal["made", "kept"]
    prediction: Prediction


def predict_row(
    predictor: Predictor,
    row: SlideRow,
    *,
    limits: Limits | None = None,
    known_key: str | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Prediction | None:
    """The prediction for one slide of a cohort; None when the known one is still the answer.

    Args:
        known_key: of the prediction there is already.

    Raises:
        ZoomMILError: no answer can be given for this slide.
    """
    if row.path is None:
        raise CohortError(
            f"slide {row.slide_id!r} has no file. Add a 'path' column to the cohort, or pass the "
            "folder its slides lie in (--slides)."
        )
    with predictor.open(row.path, row.mpp) as slide:
        if known_key is not None:
            found = predictor.provenance(slide, limits, row.mask_path)
            if hash_of(found) == known_key:
                return None
        answer = predictor.predict(
            slide, mask=row.mask_path, limits=limits, batch_size=batch_size, progress=progress
        )
    return renamed(answer, row.slide_id)


def predict_cohort(
    rows: Sequence[SlideRow],
    folder: Path | str,
    choice: PredictorChoice,
    engine: Engine,
    *,
    progress: Progress | None = None,
) -> Iterator[SlideOutcome | SlideFailure]:
    """Predictions of many slides; yields as each slide ends, and writes the tables at the end.

    Raises:
        ArtefactError: it is none, or does not fit.
        LockError: another process predicts into this folder.
        OutputError: the folder cannot be written.
    """
    folder = Path(folder)
    classes = load_artefact(choice.artefact).classes
    with exclusive_lock(folder / ".lock"):
        lines = _Lines(folder / LINES_FILE, {row.slide_id for row in rows})
        progress = progress if engine.is_here else None
        tasks = [(row, lines.key_of(row.slide_id)) for row in rows]
        answers: dict[str, SlideAnswer] = {}
        for outcome in engine.run(partial(_make_worker, choice, progress), tasks) if tasks else ():
            row, _ = outcome.task
            if outcome.error is not None:
                lines.drop(row.slide_id)
                yield _failure(row, outcome.error)
                continue
            status = "kept" if outcome.value is None else "made"
            if outcome.value is not None:
                lines.add(row.slide_id, outcome.value)
            prediction = lines.prediction(row.slide_id)
            answers[row.slide_id] = SlideAnswer.of(row, prediction)
            yield SlideOutcome(row, status, prediction)
        lines.finish([row.slide_id for row in rows])
        ordered = [answers[row.slide_id] for row in rows if row.slide_id in answers]
        write_slides(folder / "slides.csv", ordered, classes)
        write_cases(folder / "cases.csv", ordered, classes)
        write_json(folder / "cost.json", total_cost(ordered))


class _Lines:
    """The file of predictions: lines are added to its end, and put in order when all is done."""

    def __init__(self, path: Path, wanted: set[str]) -> None:
        """Reads what an earlier run wrote; a line cut short by a kill is not one."""
        self._path = path
        self._lines: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        with suppress(FileNotFoundError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(PredictionError):
                    found = Prediction.from_json(line)
                    self._lines[found.slide_id] = line
                    self._keys[found.slide_id] = found.key
        self._others = {name for name in self._lines if name not in wanted}
        self._write(list(self._lines))

    def key_of(self, slide_id: str) -> str | None:
        """The key of a slide's line, None when there is none."""
        return self._keys.get(slide_id)

    def prediction(self, slide_id: str) -> Prediction:
        """The prediction of a slide's line."""
        return Prediction.from_json(self._lines[slide_id])

    def add(self, slide_id: str, line: str) -> None:
        """Put a line at the end of the file, on the disk before this returns."""
        self._lines[slide_id] = line
        try:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise OutputError(
                f"cannot write {str(self._path)!r}: {error.strerror}. Check the folder's "
                "permissions and free space, then run the same command again."
            ) from error

    def drop(self, slide_id: str) -> None:
        """Forget the line of a slide for which there is no answer any more."""
        self._lines.pop(slide_id, None)

    def finish(self, order: Sequence[str]) -> None:
        """Write the file in the cohort's order; lines of other slides stay, after these."""
        self._write([name for name in (*order, *sorted(self._others)) if name in self._lines])

    def _write(self, names: Sequence[str]) -> None:
        write_text(self._path, "".join(self._lines[name] + "\n" for name in names))


def _make_worker(
    choice: PredictorChoice, progress: Progress | None
) -> Callable[[tuple[SlideRow, str | None]], str | None]:
    """The function that one worker applies to (slide, key of its known line): a new line or None."""
    predictor = choice.load()

    def make(task: tuple[SlideRow, str | None]) -> str | None:
        row, known_key = task
        answer = predict_row(
            predictor,
            row,
            limits=choice.limits,
            known_key=known_key,
            batch_size=choice.batch_size,
            progress=progress,
        )
        return None if answer is None else answer.to_json(measured=True)

    return make


def _failure(row: SlideRow, error: BaseException) -> SlideFailure:
    logger.debug("slide %s failed", row.slide_id, exc_info=error)
    reason = " ".join(str(error).split()) or type(error).__name__
    return SlideFailure(row.slide_id, str(row.path), type(error).__name__, reason)


def as_record(outcome: SlideOutcome) -> dict[str, Any]:
    """One slide's outcome as a short JSON line: the answer and its cost, not where it looked."""
    answer = outcome.prediction
    return {
        "slide_id": answer.slide_id,
        "status": outcome.status,
        "label": answer.label,
        "probabilities": dict(answer.probabilities),
        "patches": answer.cost.patches,
        "gflops": round(answer.cost.flops / 1e9, 3),
        "exhaustive_patches": answer.exhaustive_cost.patches,
        "exhaustive_gflops": round(answer.exhaustive_cost.flops / 1e9, 3),
        "bound": answer.bound.by,
        "seconds": answer.measured.seconds.get("total"),
        "warnings": list(answer.warnings),
    }


def write_document(path: Path | str, prediction: Prediction) -> None:
    """Write one prediction as a JSON file, what was measured included."""
    write_text(path, json.dumps(json.loads(prediction.to_json(measured=True)), indent=1) + "\n")
