"""Row 11, train: a run, a cohort and bags come in; an artefact with its metrics goes out.

<out>/run.toml                    the resolved run
<out>/curves.csv                  one row per epoch
<out>/checkpoint.safetensors      while it runs; the same call goes on from it
<out>/artefact/                   when it is done, with metrics and predictions
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from zoommil.artefact import DESCRIPTION_FILE, Artefact, load_artefact, source_of
from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, read_cohort
from zoommil.errors import ConfigError, TrainingError
from zoommil.files import exclusive_lock, hash_of
from zoommil.machine import keep_freed_memory
from zoommil.training.checkpoint import load_checkpoint, save_checkpoint
from zoommil.training.conclusion import conclude
from zoommil.training.data import Bags, BagSet, BagSource, is_kept
from zoommil.training.determinism import deterministic
from zoommil.training.loggers import LOGGERS, Logger, write_curves
from zoommil.training.loop import Trainer, epochs_as_rows, pick_device
from zoommil.training.plan import PARTS, AnySplit, Plan, make_plan, refuse_missing_bags
from zoommil.training.preparation import (
    feature_statistics,
    new_model,
    refuse_pointless_zoom,
)
from zoommil.training.progress import Progress, Report
from zoommil.training.run import RunSpec

logger = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoint.safetensors"


def train(
    run: RunSpec | Path | str,
    cohort: Cohort | Path | str | None = None,
    bags: Bags | None = None,
    *,
    split: AnySplit | None = None,
    out: Path | str | None = None,
    report: Report | None = None,
) -> Artefact:
    """The artefact of a run: trained, chosen on validation, calibrated, judged on test.

    The same call goes on where an interrupted one stopped, and gives back a finished one.

    Args:
        run: the run, a TOML file, or the name of a recipe.
        cohort: labelled slides or their table; None: the run's ``data.cohort``.
        bags: folder of bag files, or bags by slide id; None: the run's ``data.bags``.
        split: slide ids of "train", "val", "test", or a split file; None: the run's ``data.split``,
            else the cohort's own columns, else a case-level stratified draw.
        out: folder of the results; None: the run's.
        report: called as the run goes on.

    Raises:
        CohortError, SplitError: labels or parts that cannot be learnt from, before any bag is read.
        BagError: a bag that is empty, not finite or of another width.
        TrainingError: bags are missing or do not belong together, or the folder has another run.
    """
    run = as_run(run)
    if out is not None:
        run = run.changed(out=str(out))
    cohort = cohort_of(run, cohort)
    bags = bags_of(run, bags)
    plan = make_plan(run.data, cohort, split)
    source = BagSource(bags, run.data.magnifications)
    refuse_missing_bags(source, plan.examples, run.data.cohort)
    folder = run.out_folder
    with exclusive_lock(folder / ".lock"), deterministic(run.threads):
        keep_freed_memory()
        return _train_in(folder, run, plan, source, report)


def bags_of(run: RunSpec, bags: Bags | None) -> Bags:
    """The bags that were given, or the run's. Raises ConfigError when there are none."""
    bags = bags if bags is not None else run.data.bags
    if not isinstance(bags, Mapping | Sequence | Path) or (isinstance(bags, str) and not bags):
        raise ConfigError(
            "no bags were given; pass bags=... (--bags), or set data.bags in the run file."
        )
    return bags


def as_run(run: RunSpec | Path | str) -> RunSpec:
    """A run from itself, a TOML file or the name of a recipe."""
    if isinstance(run, RunSpec):
        return run
    is_file = isinstance(run, Path) or run.endswith(".toml")
    return RunSpec.load(run) if is_file else RunSpec.from_recipe(str(run))


def _train_in(
    folder: Path, run: RunSpec, plan: Plan, source: BagSource, report: Report | None
) -> Artefact:
    device = pick_device(run.device)
    reference = source.bag(plan.train[0].slide_id)
    model = new_model(run, reference, len(plan.classes))
    sets = {part: BagSet(source, getattr(plan, part)) for part in PARTS}
    keep = is_kept(run.data.memory, source, [example.slide_id for example in plan.examples])
    counter = _Counter(report, len(plan.examples))
    for bags in sets.values():
        bags.prepare(model, reference, keep=keep, report=counter)
    refuse_pointless_zoom(model, sets["train"])
    identity = _identity(run, plan, sets)
    if (folder / "artefact" / DESCRIPTION_FILE).is_file():
        return _finished(folder / "artefact", identity)
    if model.standardise:
        model.set_standardisation(*feature_statistics(model, sets["train"]))
    trainer = Trainer(model, sets["train"], sets["val"], run, device=device)
    if (folder / CHECKPOINT_FILE).exists():
        load_checkpoint(trainer, folder / CHECKPOINT_FILE, identity)
        logger.info("going on after epoch %d", trainer.epoch)
    run.save(folder / "run.toml")
    _run_epochs(trainer, folder, identity, report)
    provenance = {"identity": identity, "recipe": run.recipe, "num_slides": plan.num_slides}
    _take_int8_along(source, reference, folder / "artefact")
    artefact = conclude(
        trainer,
        sets["test"],
        folder / "artefact",
        plan=plan,
        provenance=provenance,
        source=replace(source_of(reference), readers=tuple(sorted(sets["train"].readers))),
    )
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return artefact


def _take_int8_along(source: BagSource, reference: Bag, folder: Path) -> None:
    """Store with the artefact the int8 networks that its bags' features were made with."""
    from zoommil.encoders.quantisation import copy_quantised, find_quantised

    wanted = {one.get("quantised") for one in reference.provenance.get("encoders") or ()} - {None}
    if not wanted or source.folder is None:
        return
    for network in find_quantised(source.folder):
        if network.hash in wanted:
            copy_quantised(network, folder)
            wanted.discard(network.hash)
    if wanted:
        logger.warning(
            "the int8 network that the bags' features were made with is not in %s, so the artefact "
            "cannot look at slides",
            source.folder / "int8",
        )


def _run_epochs(trainer: Trainer, folder: Path, identity: str, report: Report | None) -> None:
    """Epochs until the end; after each the folder holds what the next one needs."""
    every = trainer.run.training.checkpoint_every
    with ExitStack() as stack:
        loggers: list[Logger] = [
            stack.enter_context(closing(LOGGERS.load(name)(folder, trainer.run.to_table())))
            for name in trainer.run.log.loggers
        ]
        try:
            while not trainer.is_finished:
                trainer.run_epoch(report)
                rows = epochs_as_rows(trainer.history)
                write_curves(folder / "curves.csv", rows)
                if trainer.epoch % every == 0 or trainer.is_finished:
                    save_checkpoint(trainer, folder / CHECKPOINT_FILE, identity)
                for each in loggers:
                    each.log(rows[-1])
        except KeyboardInterrupt:
            logger.warning(
                "interrupted in epoch %d; the same command goes on from the last checkpoint in %s",
                trainer.epoch + 1,
                folder,
            )
            raise


class _Counter:
    """Bags read so far over all parts, as progress."""

    def __init__(self, report: Report | None, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def __call__(self, _in_part: int) -> None:
        self._done += 1
        if self._report is not None:
            self._report(Progress("reading bags", self._done, self._total))


def _identity(run: RunSpec, plan: Plan, sets: Mapping[str, BagSet]) -> str:
    """The hash of the run, its split with labels, and what its bags were made from."""
    parts = {
        part: [[e.slide_id, e.case_id, e.label, bags.keys[e.slide_id]] for e in bags.examples]
        for part, bags in sets.items()
    }
    return hash_of([run.determining(), list(plan.classes), parts])


def _finished(folder: Path, identity: str) -> Artefact:
    artefact = load_artefact(folder)
    if artefact.provenance.get("identity") != identity:
        raise TrainingError(
            f"{str(folder)!r} is the artefact of another run (other settings, slides or bags). "
            "Choose another output folder with out=... (--out), or delete it."
        )
    logger.info("this run is finished already: %s", folder)
    return artefact


def cohort_of(run: RunSpec, cohort: Cohort | Path | str | None) -> Cohort:
    """A cohort from itself, its table, or the run's. Raises ConfigError when there is none."""
    if isinstance(cohort, Cohort):
        return cohort
    if not (cohort or run.data.cohort):
        raise ConfigError(
            "no cohort was given; pass one (--cohort), or set data.cohort in the run file."
        )
    return read_cohort(cohort or run.data.cohort, classes=run.data.classes or None)
