"""Row 11, checkpoints: a trainer between two epochs goes in, one file comes out, and back.

One safetensors file, written atomically: model, best weights, optimiser and generators as tensors;
numbers (schedule, history, counts) as JSON in its header. Nothing is pickled and nothing unpickled.
A run that continues from it goes on bit for bit as if it had never stopped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from zoommil.errors import TrainingError
from zoommil.files import atomic_path
from zoommil.training.loop import Best, Trainer
from zoommil.training.progress import EpochRecord

FORMAT_VERSION = 1


def save_checkpoint(trainer: Trainer, path: Path | str, identity: str) -> None:
    """Write everything that decides how a run goes on.

    Args:
        trainer: a run between two epochs.
        path: the file.
        identity: hash of the run and its data; another run's checkpoint is refused.
    """
    tensors, numbers = split_tensors(
        {
            "model": trainer.model.state_dict(),
            "best": trainer.best.weights,
            "optimiser": trainer.optimiser.state_dict(),
            "random": {"cpu": trainer.random_state, "sampler": trainer.sampler.state()},
            "device_random": trainer.device_random_state,
            "scaler": trainer.scaler.state_dict(),
            "schedule": trainer.schedule.state_dict(),
        }
    )
    numbers |= {
        "format_version": FORMAT_VERSION,
        "identity": identity,
        "epoch": trainer.epoch,
        "best_epoch": trainer.best.epoch,
        "best_score": trainer.best.score,
        "stale": trainer.best.stale,
        "history": [vars(record) for record in trainer.history],
    }
    with atomic_path(path) as temporary:
        # one key only: the order of several would differ from run to run
        save_file(tensors, temporary, {"state": json.dumps(numbers)})


def load_checkpoint(trainer: Trainer, path: Path | str, identity: str) -> None:
    """Set a trainer to where a checkpoint was written.

    Raises:
        TrainingError: it is no checkpoint, of another version, or of another run.
    """
    tensors, numbers = _read(Path(path))
    if numbers.get("format_version") != FORMAT_VERSION:
        raise TrainingError(
            f"{str(path)!r} is a checkpoint of format {numbers.get('format_version')!r}; this is "
            f"format {FORMAT_VERSION}. Finish it with the zoommil that wrote it, or start anew "
            "in another folder."
        )
    if numbers["identity"] != identity:
        raise TrainingError(
            f"{str(path)!r} belongs to another run (other settings, slides or bags). Choose "
            "another output folder, or delete it to start anew."
        )
    parts = join_tensors(tensors, numbers)
    trainer.model.load_state_dict(parts["model"])
    trainer.optimiser.load_state_dict(parts["optimiser"])
    trainer.schedule.load_state_dict(parts["schedule"])
    trainer.scaler.load_state_dict(parts["scaler"])
    trainer.random_state = parts["random"]["cpu"]
    trainer.device_random_state = parts["device_random"]
    trainer.sampler.set_state(parts["random"]["sampler"])
    trainer.epoch = numbers["epoch"]
    trainer.best = Best(
        numbers["best_epoch"], numbers["best_score"], parts["best"], numbers["stale"]
    )
    trainer.history = [EpochRecord(**record) for record in numbers["history"]]


def split_tensors(value: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by dotted path, and the same structure with each tensor's path in its place."""
    tensors: dict[str, Tensor] = {}

    def walk(item: Any, path: str) -> Any:
        if isinstance(item, Tensor):
            tensors[path] = item.detach().cpu().contiguous().clone()
            return {"__tensor__": path}
        if isinstance(item, dict):
            pairs = [[key, walk(inner, f"{path}/{key}")] for key, inner in item.items()]
            return {"__dict__": pairs}
        if isinstance(item, list | tuple):
            inner = [walk(entry, f"{path}/{index}") for index, entry in enumerate(item)]
            return {"__tuple__": inner} if isinstance(item, tuple) else inner
        if item is None or isinstance(item, bool | int | float | str):
            return item
        return None  # functions of LambdaLR: they come from the run again

    return tensors, {"parts": {key: walk(item, key) for key, item in value.items()}}


def join_tensors(tensors: dict[str, Tensor], numbers: dict[str, Any]) -> dict[str, Any]:
    """What :func:`split_tensors` took apart."""

    def walk(item: Any) -> Any:
        if isinstance(item, list):
            return [walk(entry) for entry in item]
        if not isinstance(item, dict):
            return item
        if "__tensor__" in item:
            return tensors[item["__tensor__"]]
        if "__tuple__" in item:
            return tuple(walk(entry) for entry in item["__tuple__"])
        return {key: walk(entry) for key, entry in item["__dict__"]}

    return {key: walk(item) for key, item in numbers["parts"].items()}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            numbers = json.loads((file.metadata() or {})["state"])
            return {key: file.get_tensor(key) for key in file.keys()}, numbers  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise TrainingError(
            f"{str(path)!r} is not a checkpoint of this package ({error}); pickled files are never "
            "loaded. Delete it to start anew."
        ) from error
