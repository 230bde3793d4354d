"""Row 16, benches: methods trained on bags composed of slides' patches; their contrasts come out.

A few dozen slides cannot tell methods a few points apart; hundreds of bags can. The slides are
parted first, so that training, validation and test bags share no patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoommil.benches.patch_bank import ComposedBags, Composition, PatchBank, read_truths
from zoommil.benches.zoom_pays import (
    LOW,
    RECIPE,
    ZOOM,
    Encoded,
    Method,
    PaysSpec,
    Say,
    extraction_spec,
    run_of,
    zoom_patches,
)
from zoommil.benches.zoom_pays_page import MethodRow, Section, contrast, method_row
from zoommil.files import hash_of
from zoommil.training.predictions import Predictions, read_predictions

if TYPE_CHECKING:
    from zoommil.bags.split import Split
    from zoommil.engines.local import LocalEngine

PARTS = ("train", "val", "test")
_SHARES = (0.5, 0.15, 0.35)  # of the slides


@dataclass(frozen=True)
class ComposedTask:
    """One method from one seed, and where its predictions go."""

    method: Method
    seed: int
    path: Path


def composed_methods(spec: PaysSpec) -> tuple[Method, ...]:
    """What is compared: zooming, the lowest step alone, and the baselines at the highest."""
    common = {"epochs": spec.composed_epochs, "seeds": spec.seeds}
    widths = {"embed_dim": spec.embed_dim, "attention_dim": spec.attention_dim}
    transmil = {
        "at": -1,
        "embed_dim": spec.embed_dim,
        "max_tokens": 1024,
        "num_landmarks": spec.transmil_landmarks,
    }
    return (
        Method(ZOOM, RECIPE, {"k": spec.composed_k, **widths}, **common),
        Method(LOW, "abmil", {"at": 0, **widths}, **common),
        Method("MeanMIL, highest", "meanmil", {"at": -1}, **common),
        Method("MaxMIL, highest", "maxmil", {"at": -1}, **common),
        Method("ABMIL, highest", "abmil", {"at": -1, **widths}, **common),
        Method("CLAM-SB, highest", "clam_sb", {"at": -1, "subtyping": True, **widths}, **common),
        Method("TransMIL, highest", "transmil", transmil,
               epochs=spec.transmil_epochs, seeds=spec.seeds[: spec.transmil_seeds]),
    )  # fmt: skip


def composed_section(
    work: Path, encoded: Encoded, spec: PaysSpec, engine: LocalEngine, say: Say
) -> Section:
    """Every method's predictions of the same test bags, and what was asked of them."""
    methods = composed_methods(spec)
    tasks = _tasks(work, encoded, spec, methods)
    missing = [task for task in tasks if not task.path.is_file()]
    for outcome in engine.run(partial(_make_worker, encoded, spec), missing):
        if outcome.error is not None:
            raise outcome.error
        say(f"composed bags: {outcome.task.method.name}, seed {outcome.task.seed}: {outcome.value}")
    found = {
        method.name: [read_predictions(task.path) for task in tasks if task.method is method]
        for method in methods
    }
    rows = [_row(method, found[method.name], spec) for method in methods]
    best = max((row for row in rows if row.method.endswith("highest")), key=lambda row: row.mean)
    contrasts = (
        contrast(found, ZOOM, best.method, expected="at least -2", least=-0.02),
        contrast(found, ZOOM, LOW, expected="above 0", least=0.0),
    )
    return Section(f"Composed bags, {encoded.name}", spec.num_test, tuple(rows), contrasts)


def _tasks(
    work: Path, encoded: Encoded, spec: PaysSpec, methods: Sequence[Method]
) -> list[ComposedTask]:
    """Every method from every seed; the file's name holds what its content depends on."""
    bags = [
        encoded.spec.model_dump(mode="json"),
        extraction_spec(spec).model_dump(mode="json"),
        [spec.num_parents, spec.num_focus, spec.num_train, spec.num_val, spec.num_test],
    ]
    folder = work / "pays" / encoded.name / "composed"

    def path(method: Method, seed: int) -> Path:
        key = hash_of([run_of(method, seed).determining(), bags])
        return folder / f"{method.name}-{seed}-{key[:12]}.csv"

    return [
        ComposedTask(method, seed, path(method, seed))
        for method in methods
        for seed in method.seeds
    ]


def split_slides(encoded: Encoded) -> Split:
    """Slides whose patches make training, validation and test bags."""
    from zoommil.bags.splits import make_split

    return make_split(encoded.cohort, fractions=_SHARES, seed=0)


def load_banks(encoded: Encoded) -> dict[str, PatchBank]:
    """The patches of each part's slides."""
    from zoommil.bags.store import read_bag

    banks = {}
    for part, names in split_slides(encoded).parts.items():
        truths = read_truths([encoded.truth_path(name) for name in names])
        bags = [read_bag(encoded.bags / f"{name}.h5") for name in names]
        banks[part] = PatchBank.of_slides(bags, truths, encoded.spec.slide.classes)
    return banks


def _make_worker(encoded: Encoded, spec: PaysSpec) -> Callable[[ComposedTask], str]:
    """What a worker does with one task: train, predict the test bags, write that down."""
    banks = load_banks(encoded)

    def work(task: ComposedTask) -> str:
        predictions, epoch = train_composed(banks, task.method, task.seed, spec)
        predictions.write(task.path)
        right = float(np.mean(predictions.predicted() == predictions.labels))
        return f"accuracy {right:.3f}, best epoch {epoch}"

    return work


def train_composed(
    banks: dict[str, PatchBank], method: Method, seed: int, spec: PaysSpec
) -> tuple[Predictions, int]:
    """The test predictions of a method's best epoch on validation, and which that was."""
    import torch

    from zoommil.models.creation import create_model
    from zoommil.training.determinism import deterministic
    from zoommil.training.loop import Trainer, logits_of
    from zoommil.training.predictions import softmax

    run = run_of(method, seed)
    classes = banks["train"].classes
    model = create_model(
        run.model.name,
        feature_dim=banks["train"].features[0].shape[1],
        num_classes=len(classes),
        ratios=extraction_spec(spec).grid.ratios,
        seed=seed,
        **run.model.arguments,
    )
    sizes = (spec.num_train, spec.num_val, spec.num_test)
    composition = Composition(spec.num_parents, spec.num_focus)
    sets = {
        part: ComposedBags(banks[part], size, composition, number, model)
        for number, (part, size) in enumerate(zip(PARTS, sizes, strict=True))
    }
    with deterministic(1):
        trainer = Trainer(model, sets["train"], sets["val"], run)
        while not trainer.is_finished:
            trainer.run_epoch()
        model.load_state_dict(trainer.best_weights())
        logits = logits_of(model, sets["test"], torch.device("cpu"))
    names = tuple(example.slide_id for example in sets["test"].examples)
    labels = np.array(sets["test"].labels, dtype=np.int64)
    return Predictions(names, names, labels, softmax(logits), tuple(classes)), trainer.best.epoch


def _row(method: Method, predictions: Sequence[Predictions], spec: PaysSpec) -> MethodRow:
    ratios = extraction_spec(spec).grid.ratios
    counts = (spec.num_parents * np.cumprod([1, *(ratio**2 for ratio in ratios)])).tolist()
    patches = {ZOOM: zoom_patches(counts, spec.composed_k), LOW: counts[0]}
    cost = float(patches.get(method.name, counts[-1]))
    return method_row(method.name, predictions, cost, cost / counts[-1], method.epochs)
