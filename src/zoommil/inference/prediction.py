"""Row 12, prediction: the answer for one slide, where it looked and what that took; to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from zoommil.errors import PredictionError
from zoommil.files import canonical_json, hash_of, write_text
from zoommil.inference.cost import Cost, ExhaustiveCost, Measured
from zoommil.inference.limits import Bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zoommil.slides.slide import Slide

LINES_FILE = "predictions.jsonl"  # in the folder of a cohort's predictions
FORMAT = "zoommil-prediction"
FORMAT_VERSION = 1

Frame = Literal["slide", "bounds"]


@dataclass(frozen=True, eq=False)
class PredictedStep:
    """What was seen at one step, lowest magnification first; arrays are in one order.

    Attributes:
        step: index among the steps of the slide's grid.
        magnification, mpp: of the step; None for bags of plain vectors.
        rows: of the full grid at this step.
        boxes: exact (x, y, width, height) in level-0 pixels; None where a bag does not say.
        attention: how much each patch weighed in the answer; sums to 1.
        scores: by which patches were chosen; None where nothing was.
        selected: ascending rows that were zoomed into; None at the last step.
        logits, probabilities: the answer if it had stopped here.
    """

    step: int
    magnification: float | None
    mpp: float | None
    rows: Int[np.ndarray, " patch"]
    boxes: Float[np.ndarray, "patch 4"] | None
    attention: Float[np.ndarray, " patch"]
    scores: Float[np.ndarray, " patch"] | None
    selected: Int[np.ndarray, " selected"] | None
    logits: tuple[float, ...]
    probabilities: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PredictedStep:
        """The step that :meth:`to_json` gave."""
        return cls(
            step=value["step"],
            magnification=value["magnification"],
            mpp=value["mpp"],
            rows=np.array(value["rows"], np.int64),
            boxes=_boxes(value["boxes"]),
            attention=np.array(value["attention"], np.float32),
            scores=None if value["scores"] is None else np.array(value["scores"], np.float32),
            selected=None if value["selected"] is None else np.array(value["selected"], np.int64),
            logits=tuple(value["logits"]),
            probabilities=tuple(value["probabilities"]),
        )


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer for one slide.

    Attributes:
        slide_id: the slide's.
        label: the most probable class; the first of the artefact's on ties.
        probabilities: of every class, calibrated, in the artefact's order.
        logits: of every class, not calibrated.
        steps: what was seen, lowest magnification first.
        cost: patches, pixels and operations it took.
        exhaustive_cost: the same for encoding everything.
        provenance: slide, artefact, reader, encoders, limits and versions it follows from.
        bound: what decided how far it looked.
        warnings: what a reader should know, one line each.
        is_final: False for what ``stream`` gives on the way.
        measured: seconds and memory; differs from run to run.
    """

    slide_id: str
    label: str
    probabilities: dict[str, float]
    logits: tuple[float, ...]
    steps: tuple[PredictedStep, ...]
    cost: Cost
    exhaustive_cost: ExhaustiveCost
    provenance: dict[str, Any]
    bound: Bound
    warnings: tuple[str, ...] = ()
    is_final: bool = True
    measured: Measured = field(default_factory=Measured)

    @property
    def key(self) -> str:
        """The hash of everything it follows from: slide, artefact, limits, versions."""
        return hash_of(self.provenance)

    def to_json(self, *, measured: bool = False) -> str:
        """Canonical JSON on one line: the same for the same slide, artefact and machine.

        Args:
            measured: add what differs from run to run.
        """
        value = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "slide_id": self.slide_id,
            "label": self.label,
            "probabilities": list(self.probabilities.values()),
            "classes": list(self.probabilities),
            "logits": list(self.logits),
            "steps": [step.to_json() for step in self.steps],
            "cost": self.cost.to_json(),
            "exhaustive_cost": self.exhaustive_cost.to_json(),
            "provenance": self.provenance,
            "bound": asdict(self.bound),
            "warnings": list(self.warnings),
            "is_final": self.is_final,
        }
        return canonical_json(value | ({"measured": asdict(self.measured)} if measured else {}))

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Prediction:
        """The prediction of a JSON text or its values.

        Raises:
            PredictionError: it is no prediction, or one of another format.
        """
        try:
            value = json.loads(text) if isinstance(text, str) else text
            _check_format(value)
            return cls(
                slide_id=value["slide_id"],
                label=value["label"],
                probabilities=dict(zip(value["classes"], value["probabilities"], strict=True)),
                logits=tuple(value["logits"]),
                steps=tuple(PredictedStep.from_json(step) for step in value["steps"]),
                cost=Cost.from_json(value["cost"]),
                exhaustive_cost=ExhaustiveCost.from_json(value["exhaustive_cost"]),
                provenance=dict(value["provenance"]),
                bound=Bound(**{**value["bound"], "k": tuple(value["bound"]["k"])}),
                warnings=tuple(value["warnings"]),
                is_final=value["is_final"],
                measured=Measured(**value.get("measured", {})),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PredictionError(
                f"this is not a prediction ({type(error).__name__}: {error}). "
                "Give what 'zoommil predict' wrote."
            ) from error

    def to_geojson(self, frame: Frame = "slide") -> dict[str, Any]:
        """Every patch that was seen as a QuPath tile, with its attention and score.

        Args:
            frame: ``slide`` for level-0 pixels of the file; ``bounds`` subtracts the corner of the
                slide's bounds, which QuPath crops to.

        Raises:
            PredictionError: it is not known where the patches lie.
        """
        from zoommil.inference.geojson import feature_collection

        return feature_collection(self, frame)

    def write_geojson(self, path: Path | str, frame: Frame = "slide") -> None:
        """Write :meth:`to_geojson` as a file."""
        write_text(path, json.dumps(self.to_geojson(frame), ensure_ascii=False) + "\n")

    def plot(self, axes: Axes | None = None, *, slide: Slide | None = None) -> Axes:
        """Draw where it looked with Matplotlib: patches by attention, fine steps over coarse ones.

        Args:
            axes: of level-0 pixels, as of ``Slide.plot()``; None: new ones, with the slide where
                it is still where it was predicted from.
            slide: to draw the patches over.

        Raises:
            PredictionError: it is not known where the patches lie.
        """
        from zoommil.inference.showing import plot_prediction

        return plot_prediction(self, axes, slide)

    def _repr_html_(self) -> str:
        """What notebooks show: probabilities, steps, cost, and where it looked."""
        from zoommil.inference.showing import prediction_html

        return prediction_html(self)


def read_predictions(path: Path | str) -> list[Prediction]:
    """The predictions of a JSON or JSON-lines file, or of predict's folder, in their order.

    Raises:
        PredictionError: it cannot be read or holds something else.
    """
    path = Path(path)
    path = path / LINES_FILE if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PredictionError(
            f"cannot read {str(path)!r}: {reason}. Give the folder or the file that 'zoommil "
            "predict --out' wrote."
        ) from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise PredictionError(f"{str(path)!r} is empty; expected predictions.")
    try:
        json.loads(lines[0])
    except ValueError:  # one prediction over many lines
        lines = [text]
    return [Prediction.from_json(line) for line in lines]


def _check_format(value: Any) -> None:
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise ValueError(f"its 'format' is not {FORMAT!r}")
    if value.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"format {value.get('format_version')!r}, expected {FORMAT_VERSION}")


def _boxes(value: Any) -> np.ndarray | None:
    return None if value is None else np.array(value, np.float64).reshape(-1, 4)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
