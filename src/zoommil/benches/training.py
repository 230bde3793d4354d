"""Row 16, benches: what training takes and where the time goes; sizes in, figures out.

Bags are written as files once, then trained from in each way of holding them, each in a fresh
process. Features are random: speed does not depend on what they say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from zoommil.benches.isolated import run_isolated
from zoommil.benches.results import BenchResult, Table


@dataclass(frozen=True)
class TrainingSize:
    """How much is trained on; a fifth of the bags validate."""

    num_bags: int = 200
    counts: tuple[int, ...] = (60, 240, 3840)
    feature_dim: int = 1024
    epochs: int = 20
    k: int = 12
    dtype: str = "float16"


@dataclass(frozen=True)
class TrainingCost:
    """Seconds of each part of one run, and its peak memory."""

    recipe: str
    memory: str
    first_reading: float  # every bag once: read, checked, kept or mapped
    training: float  # all epochs, without the waiting
    validating: float
    waiting: float  # for bags, in training and validation
    loading_alone: float  # the same bags loaded with nothing else to do
    peak_bytes: int

    @property
    def epochs_total(self) -> float:
        """Seconds of all epochs."""
        return self.training + self.validating + self.waiting

    @property
    def loading_share(self) -> float:
        """The share of the epochs spent waiting for bags."""
        return self.waiting / self.epochs_total


def bench_training(
    work: Path,
    *,
    size: TrainingSize | None = None,
    recipes: Sequence[str] = ("zoommil",),
    memories: Sequence[str] = ("memory", "mapped"),
    threads: int = 2,
    progress: Callable[[TrainingCost], None] | None = None,
) -> BenchResult:
    """Runs of some recipes over bag files in ``work``, which are made when they are missing."""
    size = size or TrainingSize()
    folder = work / "training"
    write_random_bags(folder, size)
    costs = []
    for recipe in recipes:
        for memory in memories:
            cost = run_isolated(_measure_here, folder, size, recipe, memory, threads)
            costs.append(cost)
            if progress is not None:
                progress(cost)
    return _result(costs, size, threads)


def write_random_bags(folder: Path, size: TrainingSize) -> None:
    """Bag files of that size; those that are there already are kept."""
    import numpy as np

    from zoommil.bags.bag import Bag
    from zoommil.bags.store import bag_key, write_bag

    for number in range(size.num_bags):
        path = folder / f"{_name(number)}.h5"
        made_from = {"random": number, "counts": list(size.counts), "width": size.feature_dim}
        generator = np.random.default_rng(number)
        if bag_key(path) is not None:
            continue
        features = [
            generator.standard_normal((count, size.feature_dim), np.float32)
            for count in size.counts
        ]
        write_bag(Bag(features, slide_id=_name(number), provenance=made_from), path, size.dtype)


def _measure_here(
    folder: Path, size: TrainingSize, recipe: str, memory: str, threads: int
) -> TrainingCost:
    import torch

    from zoommil.machine import keep_freed_memory, peak_memory_bytes
    from zoommil.training.data import BagSet, BagSource, Example
    from zoommil.training.determinism import deterministic
    from zoommil.training.loop import Trainer
    from zoommil.training.preparation import new_model
    from zoommil.training.run import RunSpec

    torch.set_num_threads(threads)
    keep_freed_memory()
    settings = {"k": size.k} if recipe.startswith("zoommil") else {}
    run = RunSpec.from_recipe(recipe, {"model": settings, "training": {"epochs": size.epochs}})
    source = BagSource(folder)
    names = [_name(number) for number in range(size.num_bags)]
    examples = [Example(name, name, number % 2) for number, name in enumerate(names)]
    reference = source.bag(names[0])
    model = new_model(run, reference, 2)
    cut = size.num_bags - max(2, size.num_bags // 5)
    sets = [BagSet(source, examples[:cut]), BagSet(source, examples[cut:])]
    start = time.perf_counter()
    for bags in sets:
        bags.prepare(model, reference, keep=memory == "memory")
    first_reading = time.perf_counter() - start
    trainer = Trainer(model, sets[0], sets[1], run)
    seconds = {"training": 0.0, "validating": 0.0}
    with deterministic():
        for _ in range(size.epochs):
            _time_epoch(trainer, seconds)
    waiting = trainer.stopwatch.waiting
    start = time.perf_counter()
    for _ in range(size.epochs):
        for bags in sets:
            for index in range(len(bags)):
                bags.load(index)
    loading_alone = time.perf_counter() - start
    # The stopwatch does not tell the two apart; by far most bags are those of training.
    share = len(sets[0]) / size.num_bags
    return TrainingCost(
        recipe,
        memory,
        first_reading,
        seconds["training"] - share * waiting,
        seconds["validating"] - (1 - share) * waiting,
        waiting,
        loading_alone,
        peak_memory_bytes(),
    )


def _time_epoch(trainer, seconds: dict[str, float]) -> None:
    """Run an epoch; its first validation progress tells where training ended."""
    start = time.perf_counter()
    marks: list[float] = []

    def look(progress) -> None:
        if progress.stage == "training" and progress.done == progress.total:
            marks.append(time.perf_counter())

    trainer.run_epoch(look)
    seconds["training"] += marks[0] - start
    seconds["validating"] += time.perf_counter() - marks[0]


def _name(number: int) -> str:
    return f"bag_{number:05d}"


def _result(costs: Sequence[TrainingCost], size: TrainingSize, threads: int) -> BenchResult:
    rows = [
        [
            cost.recipe,
            cost.memory,
            f"{cost.first_reading:.1f}",
            f"{cost.training:.1f}",
            f"{cost.validating:.1f}",
            f"{cost.waiting:.1f}",
            f"{100 * cost.loading_share:.0f}%",
            f"{cost.loading_alone:.1f}",
            f"{cost.peak_bytes / 1e9:.2f}",
        ]
        for cost in costs
    ]
    shape = ", ".join(str(count) for count in size.counts)
    table = Table(
        f"{size.epochs} epochs on {size.num_bags} bags of ({shape}) x {size.feature_dim} "
        f"{size.dtype} features, {threads} threads",
        ["recipe", "bags", "first reading s", "training s", "validating s", "waiting s",
         "waiting share", "loading alone s", "peak GB"],
        rows,
    )  # fmt: skip
    return BenchResult(
        name="training",
        title="Training: time and where it goes",
        command="zoommil bench training",
        tables=[table],
        notes=[
            "A fifth of the bags validate after every epoch, the others are drawn for training.",
            "Bags are loaded in a thread ahead of the computation; 'waiting' is what that does not "
            "hide, 'loading alone' is the same loading with nothing else to do.",
            "'memory' keeps bags in their storage type, 'mapped' maps their files (page cache "
            "warm after the first reading).",
        ],
        data={"size": asdict(size), "threads": threads, "costs": [asdict(c) for c in costs]},
    )
