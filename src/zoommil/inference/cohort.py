"""Row 12, cohort: slides and an artefact come in; a JSON line as each slide ends, then tables.

    predictions.jsonl   a line per slide, added as each ends, at the end in the cohort's order
    slides.csv cases.csv cost.json
    failures.csv        slides that failed, by name; not there when none did

A slide is predicted again exactly when what its answer follows from has changed: the key of a line
is the hash of its provenance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from zoommil.artefact import load_artefact
from zoommil.bags.cohort import SlideRow
from zoommil.encoding import Progress
from zoommil.errors import CohortError
from zoommil.extraction import SlideFailure
from zoommil.files import exclusive_lock, hash_of, write_json
from zoommil.inference.answering import renamed
from zoommil.inference.limits import Limits
from zoommil.inference.lines import PredictionLines
from zoommil.inference.prediction import LINES_FILE, Prediction
from zoommil.inference.predictor import Predictor
from zoommil.inference.tables import SlideAnswer, total_cost, write_cases, write_slides

if TYPE_CHECKING:
    from zoommil.engines.engine import Engine, Outcome

logger = logging.getLogger(__name__)


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
    folder: Path | str | None,
    choice: PredictorChoice,
    engine: Engine,
    *,
    predictor: Predictor | None = None,
    progress: Progress | None = None,
) -> Iterator[SlideOutcome | SlideFailure]:
    """Predictions of many slides; yields as each slide ends, and writes the tables at the end.

    Args:
        folder: where results go; None: nowhere, and nothing is kept from a run before.
        predictor: one that is loaded already, used where the engine works in this process.
        progress: patches done; called only when the engine works in this process.

    Raises:
        ArtefactError: it is none, or does not fit.
        LockError: another process predicts into this folder.
        OutputError: the folder cannot be written.
    """
    setup = partial(_make_worker, choice, None, None)
    if engine.is_here:
        setup = partial(_make_worker, choice, predictor, progress)
    if folder is None:
        for outcome in engine.run(setup, [(row, None) for row in rows]):
            yield _ended(outcome, None)
        return
    folder = Path(folder)
    classes = load_artefact(choice.artefact).classes
    with exclusive_lock(folder / ".lock"):
        lines = PredictionLines(folder / LINES_FILE)
        tasks = [(row, lines.key_of(row.slide_id)) for row in rows]
        answers: dict[str, SlideAnswer] = {}
        for outcome in engine.run(setup, tasks) if tasks else ():
            ended = _ended(outcome, lines)
            if isinstance(ended, SlideOutcome):
                answers[ended.row.slide_id] = SlideAnswer.of(ended.row, ended.prediction)
            yield ended
        lines.put_in_order([row.slide_id for row in rows])
        ordered = [answers[row.slide_id] for row in rows if row.slide_id in answers]
        write_slides(folder / "slides.csv", ordered, classes)
        write_cases(folder / "cases.csv", ordered, classes)
        write_json(folder / "cost.json", total_cost(ordered))


def _ended(outcome: Outcome, lines: PredictionLines | None) -> SlideOutcome | SlideFailure:
    """How a slide ended; its line is written before anybody is told."""
    row, _ = outcome.task
    if outcome.error is not None:
        if lines is not None:
            lines.forget(row.slide_id)
        return _failure(row, outcome.error)
    if outcome.value is None:
        assert lines is not None
        return SlideOutcome(row, "kept", lines.prediction(row.slide_id))
    prediction = Prediction.from_json(outcome.value)
    if lines is not None:
        lines.add(prediction, outcome.value)
    return SlideOutcome(row, "made", prediction)


def _make_worker(
    choice: PredictorChoice, predictor: Predictor | None, progress: Progress | None
) -> Callable[[tuple[SlideRow, str | None]], str | None]:
    """What one worker applies to (slide, key of its known line): a new line, or None."""
    loaded = predictor or choice.load()

    def make(task: tuple[SlideRow, str | None]) -> str | None:
        row, known_key = task
        answer = predict_row(
            loaded,
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
