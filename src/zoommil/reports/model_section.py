"""Row 13, model section: an artefact comes in; how it was trained goes out, with a curve."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zoommil.artefact import Artefact
from zoommil.reports.charts import Axes, Series, line_chart
from zoommil.training.predictions import read_predictions
from zoommil.units import magnification_label


@dataclass(frozen=True)
class ModelSection:
    """How a model came to be: facts in order, its curve where it was kept, what to beware of."""

    name: str
    facts: tuple[tuple[str, str], ...]
    curve: str | None
    notes: tuple[str, ...]


def model_section(artefact: Artefact, slide_ids: Sequence[str]) -> ModelSection:
    """The section of an artefact.

    Args:
        artefact: that answered.
        slide_ids: of the report, to say which of them the model was chosen by.
    """
    made = artefact.provenance
    run: Mapping[str, Any] = made.get("run") or {}
    facts = [
        ("Method", _method(artefact, made)),
        ("Looks at", _magnifications(artefact)),
        ("Encoder", _encoder(artefact)),
        ("Classes", ", ".join(artefact.classes)),
        ("Trained on", _slides(made)),
        ("Training", _training(run, made)),
        ("Kept", _kept(made)),
        ("Calibration", _calibration(artefact, made)),
        ("Versions", ", ".join(f"{name} {value}" for name, value in artefact.versions.items())),
        ("Fingerprint", artefact.hash[:16]),
    ]
    return ModelSection(
        name=str(artefact.settings.get("name", "model")),
        facts=tuple((name, text) for name, text in facts if text),
        curve=_curve(artefact, made),
        notes=tuple(_notes(artefact, slide_ids)),
    )


def _method(artefact: Artefact, made: Mapping[str, Any]) -> str:
    name = str(artefact.settings.get("name", ""))
    k = artefact.settings.get("k")
    recipe = made.get("recipe")
    parts = [name, f"k = {_listed(k)}" if k else "", f"recipe {recipe}" if recipe else ""]
    return ", ".join(part for part in parts if part)


def _magnifications(artefact: Artefact) -> str:
    found = artefact.magnifications
    if found is None:
        return ""
    patch_px = artefact.source.steps[0].patch_px
    size = f", patches of {patch_px} px" if patch_px else ""
    return " → ".join(map(magnification_label, found)) + size


def _encoder(artefact: Artefact) -> str:
    names = [str((step.encoder or {}).get("name", "")) for step in artefact.source.steps]
    return ", ".join(dict.fromkeys(name for name in names if name))


def _slides(made: Mapping[str, Any]) -> str:
    num = made.get("num_slides") or {}
    if not num:
        return ""
    rest = [f"{num[part]} for {name}" for part, name in _PARTS if num.get(part)]
    return f"{num.get('train', 0)} slides; {', '.join(rest)}" if rest else f"{num['train']} slides"


_PARTS = (("val", "validation"), ("test", "test"))


def _training(run: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    optimiser, training = run.get("optimiser") or {}, run.get("training") or {}
    parts = [
        f"{made['epochs']} epochs" if made.get("epochs") else "",
        f"{optimiser['name']}, learning rate {optimiser['lr']:g}" if optimiser else "",
        f"{training['batch_bags']} slides a step" if training.get("batch_bags", 1) > 1 else "",
        f"seed {run['seed']}" if "seed" in run else "",
    ]
    return "; ".join(part for part in parts if part)


def _kept(made: Mapping[str, Any]) -> str:
    if not made.get("best_epoch"):
        return ""
    return f"epoch {made['best_epoch']}, by {made.get('selected_by', 'validation')}"


def _calibration(artefact: Artefact, made: Mapping[str, Any]) -> str:
    if (made.get("calibration") or {}).get("is_separated"):
        return (
            "none: every validation slide was right, so nothing could be learnt about confidence; "
            "probabilities are as the model gives them"
        )
    return f"temperature {artefact.temperature:.3g}, fitted on validation slides"


def _notes(artefact: Artefact, slide_ids: Sequence[str]) -> list[str]:
    """What keeps these figures from being those of unseen slides."""
    num = (artefact.provenance.get("num_slides") or {}).get("train", 0)
    notes = []
    if num and num < 100:
        notes.append(f"It was trained on {num} slides only: intervals are wide for a reason.")
    if artefact.folder is None:
        return notes
    with suppress(OSError, ValueError):
        names = {
            part: set(read_predictions(artefact.folder / f"predictions_{part}.csv").slide_ids)
            for part in ("val", "test")
        }
        chosen = sum(name in names["val"] for name in slide_ids)
        unknown = sum(name not in names["val"] | names["test"] for name in slide_ids)
        if chosen:
            notes.append(f"{chosen} of these slides were used to choose and calibrate the model.")
        if unknown:
            notes.append(
                f"{unknown} of these slides are of neither its validation nor its test part: new "
                "to it, or what it was trained on, and then these figures are too good."
            )
    return notes


def _curve(artefact: Artefact, made: Mapping[str, Any]) -> str | None:
    """Training and validation loss by epoch."""
    if artefact.folder is None or not (artefact.folder / "curves.csv").is_file():
        return None
    with (artefact.folder / "curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if len(rows) < 2:
        return None
    epochs = [float(row["epoch"]) for row in rows]
    series = [
        Series(name, epochs, [float(row[column] or "nan") for row in rows])
        for name, column in (("training loss", "train_loss"), ("validation loss", "val_loss"))
        if rows[0].get(column)
    ]
    top = max((value for one in series for value in one.y if not math.isnan(value)), default=1.0)
    axes = Axes((epochs[0], epochs[-1]), (0, top * 1.05 or 1.0), "epoch", "loss")
    best = made.get("best_epoch")
    return line_chart(series, axes, "Loss by epoch", marker=None if best is None else float(best))


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
