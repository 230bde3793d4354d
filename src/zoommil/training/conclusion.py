"""Row 11, conclusion: a trainer that has ended comes in; the artefact with its metrics goes out."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zoommil
from zoommil.artefact import Artefact, FeatureSource
from zoommil.training.calibration import fit_temperature
from zoommil.training.data import BagSet
from zoommil.training.evaluate import Evaluation, judge
from zoommil.training.loggers import write_curves
from zoommil.training.loop import Trainer, epochs_as_rows
from zoommil.training.plan import Plan
from zoommil.training.run import RunSpec


def conclude(
    trainer: Trainer,
    test: BagSet,
    folder: Path,
    *,
    plan: Plan,
    provenance: dict[str, Any],
    source: FeatureSource,
) -> Artefact:
    """Go back to the best epoch, calibrate on validation, judge validation and test, write all."""
    run, model = trainer.run, trainer.model
    model.load_state_dict(trainer.best_weights())
    val_logits = trainer.logits(trainer.validation)
    calibration = _calibrate(run, val_logits, trainer.validation)
    evaluations: dict[str, Evaluation] = {}
    for part, logits in (("val", val_logits), ("test", trainer.logits(test))):
        examples = getattr(plan, part)
        if examples:
            evaluations[part] = judge(
                logits, examples, plan.classes, calibration["temperature"], run.evaluation
            )
            evaluations[part].write(folder, part)
    run.save(folder / "run.toml")
    write_curves(folder / "curves.csv", epochs_as_rows(trainer.history))
    return Artefact(
        settings=_plain(dict(model.settings)),
        weights={key: value.cpu() for key, value in model.state_dict().items()},
        classes=plan.classes,
        source=source,
        temperature=calibration["temperature"],
        provenance={
            **provenance,
            "run": run.determining(),
            "epochs": trainer.epoch,
            "best_epoch": trainer.best.epoch,
            "selected_by": f"validation {run.training.select}",
            "calibration": calibration,
            "device": trainer.device.type,
            "threads": torch.get_num_threads(),
        },
        versions=_versions(),
        metrics={part: evaluation.to_json() for part, evaluation in evaluations.items()},
    ).save(folder)


def _calibrate(run: RunSpec, logits: np.ndarray, validation: BagSet) -> dict[str, Any]:
    if not run.evaluation.calibrate:
        return {"temperature": 1.0}
    return asdict(fit_temperature(logits, np.array(validation.labels)))


def _versions() -> dict[str, str]:
    return {
        "zoommil": zoommil.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _plain(value: Any) -> Any:
    """The same with tuples as lists, as JSON gives it back."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
