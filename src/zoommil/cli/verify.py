"""Row 16, ``zoommil verify``: predictions in; each is computed again, what differs is said."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.cli.predict import MaskOption
from zoommil.errors import ConfigError, PredictionError, ZoomMILError

if TYPE_CHECKING:
    from zoommil.inference.prediction import Prediction
    from zoommil.inference.predictor import Predictor
    from zoommil.inference.verification import Verification


def verify(
    prediction: Annotated[
        Path, typer.Argument(help="A file that `zoommil predict` wrote: JSON or JSON lines.")
    ],
    artefact: Annotated[
        Path | None, typer.Option("--artefact", help="The model, if it was moved since.")
    ] = None,
    slide: Annotated[
        Path | None, typer.Option("--slide", help="The slide, if it was moved (or its folder).")
    ] = None,
    mask: MaskOption = None,
    weights: options.WeightsOption = None,
    runtime: options.RuntimeOption = "auto",
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
) -> None:
    """Compute predictions again and compare: the same bits on the same kind of machine.

    With another machine, version, reader, runtime or precision the label must be the same and no
    probability may differ by more than 0.001 (fp32) or 0.05; what is different is said. The exit
    code is 1 when a prediction is not confirmed.

    Example: `zoommil verify predictions.jsonl --slide slides/`
    """
    from zoommil.inference.prediction import read_predictions
    from zoommil.inference.verification import verify as verify_one

    found = read_predictions(prediction)
    if mask is not None and len(found) != 1:
        raise ConfigError(f"--mask was given for {len(found)} predictions; it is for one.")
    loaded = _Predictors(weights=weights, device=device, runtime=runtime, precision=precision)
    num_bad = 0
    for one in found:
        try:
            predictor = loaded.of(one, artefact or _place(one, "artefact"))
            outcome = verify_one(one, predictor, _slide_of(one, slide), mask=mask)
        except ZoomMILError as error:
            if len(found) == 1:
                raise
            num_bad += 1
            terminal.say(f"{one.slide_id} failed: {type(error).__name__}: {error}")
            continue
        num_bad += not outcome.is_confirmed
        if terminal.is_printed():
            typer.echo(text_of(outcome))
        else:
            terminal.emit(asdict(outcome))
    if num_bad:
        terminal.say(f"{num_bad} of {len(found)} predictions were not confirmed.")
        raise typer.Exit(1)


def text_of(outcome: Verification) -> str:
    """One outcome for a person."""
    if outcome.is_exact:
        verdict = "the same, bit for bit"
    elif outcome.is_confirmed:
        verdict = f"the same within {outcome.tolerance:g}"
    else:
        verdict = "NOT confirmed"
    lines = [f"{outcome.slide_id}: {verdict}"]
    lines += [f"  computed otherwise: {text}" for text in outcome.conditions]
    return "\n".join([*lines, *(f"  {text}" for text in outcome.differences)])


class _Predictors:
    """Predictors by artefact and by how the encoder is run, each loaded once."""

    def __init__(self, *, runtime: str, precision: str, **options: Any) -> None:
        self._asked = {"runtime": runtime, "precision": precision}
        self._options = options
        self._loaded: dict[Any, Predictor] = {}

    def of(self, prediction: Prediction, folder: Path) -> Predictor:
        """The predictor that made a prediction, run as it was then where that can be."""
        from zoommil.encoders.runtime import RUNTIMES
        from zoommil.inference.predictor import Predictor

        how = dict(self._asked)
        for name, asked in self._asked.items():
            encoders = prediction.provenance.get("encoders") or ()
            then = {encoder.get(name) for encoder in encoders}
            if asked == "auto" and len(then) == 1:
                how[name] = str(then.pop())
        if self._asked["runtime"] == "auto" and not _is_here(RUNTIMES, how["runtime"]):
            how = dict(self._asked)
        key = (folder, *how.values())
        if key not in self._loaded:
            self._loaded[key] = Predictor.load(folder, **how, **self._options)
        return self._loaded[key]


def _is_here(runtimes: Any, name: str) -> bool:
    if name == "auto":
        return True
    try:
        return bool(runtimes.load(name).is_available())
    except (ZoomMILError, ImportError):
        return False


def _place(prediction: Prediction, name: str) -> Path:
    known = prediction.measured.files.get(name)
    if not known:
        raise PredictionError(
            f"the prediction of {prediction.slide_id!r} does not say where its {name} lies. "
            f"Pass --{name}."
        )
    return Path(known)


def _slide_of(prediction: Prediction, given: Path | None) -> Path:
    """The slide's file: as given, in the folder given, or where it was."""
    if given is None:
        return _place(prediction, "slide")
    return given / _place(prediction, "slide").name if given.is_dir() else given
