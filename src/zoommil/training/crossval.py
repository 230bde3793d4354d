"""Row 11, crossval: a run, folds and seeds come in; an artefact of each and one summary go out.

    <out>/fold_<k>/seed_<s>/...           what train() writes
    <out>/predictions_seed_<s>.csv        the test predictions of all folds of a seed
    <out>/crossval.json                   their metrics with intervals; mean and sd over seeds

Folds and seeds are independent tasks of an engine; what was finished before is not done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoommil.bags.cohort import Cohort
from zoommil.bags.split import Split
from zoommil.bags.splits import make_folds
from zoommil.engines.engine import Engine, Outcome
from zoommil.engines.local import LocalEngine
from zoommil.errors import ConfigError, DiskFullError, TrainingError
from zoommil.files import write_json
from zoommil.training.data import Bags, BagSource
from zoommil.training.evaluate import Evaluation, describe
from zoommil.training.intervals import MetricReport, Summary, over_seeds
from zoommil.training.metrics import SCALARS
from zoommil.training.plan import make_plan, refuse_missing_bags
from zoommil.training.predictions import join_predictions, read_predictions
from zoommil.training.progress import Progress, Report
from zoommil.training.run import RunSpec
from zoommil.training.train import as_run, bags_of, cohort_of, train

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoldTask:
    """One fold with one seed."""

    run: RunSpec
    split: Split
    folder: Path


@dataclass(frozen=True)
class CrossValidation:
    """What a cross-validation found.

    Attributes:
        folders: of the runs that ended well, by (fold, seed).
        per_seed: the evaluation of each seed's out-of-fold predictions, every slide once.
        summaries: of every metric over seeds, at "slide" and "case" level.
        failures: the reason by (fold, seed) of those that did not end well; a seed with one has no
            evaluation.
    """

    folders: dict[tuple[str, int], Path]
    per_seed: dict[int, Evaluation]
    summaries: dict[str, dict[str, Summary]]
    failures: dict[tuple[str, int], str]

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "runs": [[fold, seed] for fold, seed in self.folders],
            "per_seed": {str(seed): found.to_json() for seed, found in self.per_seed.items()},
            "over_seeds": {
                level: {name: asdict(summary) for name, summary in row.items()}
                for level, row in self.summaries.items()
            },
            "failures": [
                {"fold": fold, "seed": seed, "reason": reason}
                for (fold, seed), reason in self.failures.items()
            ],
        }


def crossval(
    run: RunSpec | Path | str,
    cohort: Cohort | Path | str | None = None,
    bags: Bags | None = None,
    *,
    num_folds: int = 5,
    seeds: Sequence[int] = (0,),
    splits: Sequence[Split] | None = None,
    out: Path | str | None = None,
    workers: int = 1,
    engine: Engine | None = None,
    ddof: int = 1,
    report: Report | None = None,
) -> CrossValidation:
    """The cross-validation of a run: every fold with every seed, out-of-fold metrics per seed.

    Args:
        run: as in :func:`zoommil.train`; its own seed is replaced by each of ``seeds``.
        cohort: labelled slides, or their table.
        bags: their bags. A folder is best for many workers; bags at hand are copied to each.
        num_folds: case-level stratified folds, drawn by the run's ``data.split_seed``.
        seeds: of the starting weights and of training; the folds stay the same.
        splits: these instead of drawn folds, one alone for several seeds of a fixed split.
        out: folder of the results; None: the run's.
        workers: processes side by side, each with its share of the cores.
        engine: where the work is done, instead of ``workers`` local processes.
        ddof: of the standard deviation over seeds.
        report: called as each task ends (``stage`` "fold"); with one worker also within.

    Raises:
        TrainingError: not one run ended well; the first reason is given.
        DiskFullError: there is no space left; what was finished is kept.
    """
    run = as_run(run)
    cohort = cohort_of(run, cohort)
    bags = bags_of(run, bags)
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds are {list(seeds)}; give one or more different ones.")
    folder = Path(out) if out is not None else run.out_folder
    engine = engine or LocalEngine(workers)
    run = _with_memory_for(run, bags, cohort, workers)
    splits = splits or _drawn_folds(run, cohort, num_folds)
    _refuse_missing_bags(run, cohort, bags, splits[0])
    tasks = [
        FoldTask(run.changed(seed=seed), split, folder / f"fold_{split.name}" / f"seed_{seed}")
        for seed in seeds
        for split in splits
    ]
    setup = partial(
        _make_worker, cohort, bags, report if getattr(engine, "is_here", False) else None
    )
    outcomes = []
    for outcome in engine.run(setup, tasks):
        if isinstance(outcome.error, DiskFullError):
            raise outcome.error
        outcomes.append(outcome)
        _log_failure(outcome)
        if report is not None:
            report(Progress("fold", len(outcomes), len(tasks)))
    found = _summarise(outcomes, run, seeds, ddof)
    for seed, evaluation in found.per_seed.items():
        evaluation.predictions.write(folder / f"predictions_seed_{seed}.csv")
    write_json(folder / "crossval.json", found.to_json())
    return found


def _drawn_folds(run: RunSpec, cohort: Cohort, num_folds: int) -> tuple[Split, ...]:
    return make_folds(
        cohort,
        num_folds=num_folds,
        val_fraction=run.data.val_fraction,
        seed=run.data.split_seed,
        keep_sites=run.data.keep_sites,
    )


def _refuse_missing_bags(run: RunSpec, cohort: Cohort, bags: Bags, split: Split) -> None:
    """Say once, before anything is trained, which slides have no bag."""
    examples = make_plan(run.data, cohort, split).examples
    refuse_missing_bags(BagSource(bags, run.data.magnifications), examples, run.data.cohort)


def _make_worker(cohort: Cohort, bags: Bags, report: Report | None) -> Callable[[FoldTask], Path]:
    """What a worker does with one task; threads were pinned by whoever started it."""

    def work(task: FoldTask) -> Path:
        train(task.run, cohort, bags, split=task.split, out=task.folder, report=report)
        return task.folder / "artefact"

    return work


def _with_memory_for(run: RunSpec, bags: Bags, cohort: Cohort, workers: int) -> RunSpec:
    """The run with bags mapped where as many copies as workers would not fit into memory."""
    if run.data.memory != "auto" or workers == 1:
        return run
    source = BagSource(bags, run.data.magnifications)
    present = set(cohort.slide_ids) - set(source.missing(cohort.slide_ids))
    fits = source.fits_in_memory(sorted(present), copies=workers)
    return run.changed(data={"memory": "memory" if fits else "mapped"})


def _log_failure(outcome: Outcome) -> None:
    if outcome.error is not None:
        task: FoldTask = outcome.task
        logger.warning("fold %s, seed %d failed: %s", task.split.name, task.run.seed, outcome.error)


def _summarise(
    outcomes: Sequence[Outcome], run: RunSpec, seeds: Sequence[int], ddof: int
) -> CrossValidation:
    ordered = sorted(outcomes, key=lambda outcome: outcome.index)
    folders: dict[tuple[str, int], Path] = {}
    failures: dict[tuple[str, int], str] = {}
    for outcome in ordered:
        name = (outcome.task.split.name, outcome.task.run.seed)
        if outcome.error is None:
            folders[name] = outcome.value
        else:
            failures[name] = f"{type(outcome.error).__name__}: {outcome.error}"
    if not folders:
        first = next(iter(failures.values()))
        raise TrainingError(f"none of {len(failures)} runs ended well; the first said: {first}")
    broken = {seed for _, seed in failures}
    per_seed: dict[int, Evaluation] = {}
    for seed in seeds:
        tables = [
            path / "predictions_test.csv" for (_, number), path in folders.items() if number == seed
        ]
        if seed not in broken and all(path.is_file() for path in tables):
            joined = join_predictions([read_predictions(path) for path in tables])
            per_seed[seed] = describe(joined, run.evaluation)
    return CrossValidation(folders, per_seed, _summaries(per_seed, ddof), failures)


def _summaries(per_seed: Mapping[int, Evaluation], ddof: int) -> dict[str, dict[str, Summary]]:
    """Mean and deviation of every metric that is defined for every seed."""
    levels: dict[str, list[MetricReport | None]] = {
        "slide": [found.slide for found in per_seed.values()],
        "case": [found.case for found in per_seed.values()],
    }
    summaries: dict[str, dict[str, Summary]] = {}
    for level, reports in levels.items():
        row = {}
        for name in SCALARS:
            values = [None if r is None else r.scalars[name].value for r in reports]
            numbers = [value for value in values if value is not None]
            if numbers and len(numbers) == len(values):
                row[name] = over_seeds(numbers, ddof)
        summaries[level] = row
    return summaries
