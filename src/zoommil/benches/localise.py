"""Row 16, bench localise: does attention find lesions it was never shown? Slides in, a page out.

ZoomMIL is trained from slide labels alone, cross-validated on the synthetic cohort of ``bench
pays``. Each slide with lesions is then judged by a model of the fold that held it out, against the
outlines that the generator kept. On so few slides some trainings find nothing that generalises, and
their validation loss says so: of each fold's seeds the one of the lowest validation loss is taken,
which no reported slide decides. Every seed by itself, and the same models before training, stand
beside it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoommil.benches.results import BenchResult, Table
from zoommil.benches.zoom_pays import Encoded, PaysSpec, Say, encode_main, zoom_folders
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.reports.localisation import LocalisationSummary, StepLocalisation

LEAST_POINTING = 0.8
CHOSEN, TRAINED, UNTRAINED = "chosen on validation slides", "every seed", "untrained"

Found = dict[str, tuple["StepLocalisation", ...]]
"""What was found on each slide with lesions."""


@dataclass(frozen=True)
class Judged:
    """One model of every fold: every slide with lesions judged once, by one that did not see it.

    ``losses`` are the models' validation losses, by fold.
    """

    models: str
    name: str
    losses: tuple[float, ...]
    steps: tuple[LocalisationSummary, ...]


def bench_localise(
    work: Path,
    *,
    spec: PaysSpec | None = None,
    workers: int = 1,
    say: Say = lambda text: None,  # noqa: ARG005
) -> BenchResult:
    """Pointing game and overlap at every step, out of fold; all that is made is kept in ``work``.

    Args:
        work: as of ``bench pays``, whose slides, bags and runs are used where they are there.
        spec: how large the study is.
        workers: processes side by side.
        say: told as parts end.
    """
    from zoommil.engines.local import LocalEngine

    spec = spec or PaysSpec()
    engine = LocalEngine(workers)
    encoded = encode_main(work, spec, engine, say)
    folders = zoom_folders(work, encoded, spec, engine)
    folds = sorted({fold for fold, _ in folders})
    best = [min((folders[fold, seed] for seed in spec.seeds), key=_loss_of) for fold in folds]
    rows = [_judged(CHOSEN, "lowest validation loss", encoded, best, _as_trained)]
    for models, prepare in ((TRAINED, _as_trained), (UNTRAINED, _before_training)):
        for seed in spec.seeds:
            mine = [folders[fold, seed] for fold in folds]
            rows.append(_judged(models, f"seed {seed}", encoded, mine, prepare))
    for row in rows:
        last = row.steps[-1]
        say(f"{row.models}, {row.name}: pointing {last.pointing:.2f}, chance {last.chance:.2f}")
    return _page(rows, spec)


def _loss_of(folder: Path) -> float:
    """The validation loss of the epoch that an artefact was kept from."""
    from zoommil.artefact import load_artefact

    epoch = load_artefact(folder).provenance["best_epoch"]
    with (folder / "curves.csv").open(encoding="utf-8", newline="") as file:
        return next(float(row["val_loss"]) for row in csv.DictReader(file)
                    if int(row["epoch"]) == epoch)  # fmt: skip


def _judged(
    models: str,
    name: str,
    encoded: Encoded,
    folders: Sequence[Path],
    prepare: Callable[[Artefact], Artefact],
) -> Judged:
    """One artefact of each fold, on the slides of its test part."""
    from zoommil.artefact import load_artefact
    from zoommil.reports.localisation import summarise

    found: Found = {}
    for folder in folders:
        found |= dict(_localised(prepare(load_artefact(folder)), folder, encoded))
    steps = summarise([found[slide_id] for slide_id in sorted(found)])
    return Judged(models, name, tuple(map(_loss_of, folders)), steps)


def _localised(
    artefact: Artefact, folder: Path, encoded: Encoded
) -> Iterator[tuple[str, tuple[StepLocalisation, ...]]]:
    """What a model finds on those slides of its test part that have lesions."""
    from zoommil.bags.store import read_bag
    from zoommil.inference.predictor import Predictor
    from zoommil.reports.localisation import localise
    from zoommil.reports.truth import read_regions
    from zoommil.training.predictions import read_predictions

    predictor = Predictor(artefact, device="cpu")
    for name in read_predictions(folder / "predictions_test.csv").slide_ids:
        lesions = read_regions(encoded.truth_path(name))
        if lesions:
            bag = read_bag(encoded.bags / f"{name}.h5")
            yield name, localise(predictor.predict_bag(bag), lesions)


def _as_trained(artefact: Artefact) -> Artefact:
    return artefact


def _before_training(artefact: Artefact) -> Artefact:
    """The same model with weights as drawn."""
    from dataclasses import replace

    from zoommil.models.creation import create_model

    settings = dict(artefact.settings)
    model = create_model(settings.pop("name"), seed=0, **settings)
    drawn = {name: value.detach() for name, value in model.named_parameters()}
    return replace(artefact, weights={**artefact.weights, **drawn})


def _page(rows: Sequence[Judged], spec: PaysSpec) -> BenchResult:
    chosen, last = rows[0], rows[0].steps[-1]
    holds = last.pointing >= LEAST_POINTING
    each = [row.steps[-1].pointing for row in rows if row.models == TRAINED]
    steps = ", ".join(map(magnification_label, spec.magnifications))
    return BenchResult(
        name="localise",
        title="Attention finds lesions it was never shown",
        command="zoommil bench localise",
        tables=[_table(rows, models) for models in (CHOSEN, TRAINED, UNTRAINED)],
        notes=[
            f"At the highest step the pointing game is won on {last.pointing:.0%} of "
            f"{last.num_slides} slides, chance {last.chance:.0%}; expected: at least "
            f"{LEAST_POINTING:.0%}: {'holds' if holds else '**does not hold**'}.",
            f"Of {len(each)} seeds the one of the lowest validation loss is taken in each fold "
            f"(losses {_listed(chosen.losses)}); no test slide decides it. The seeds by themselves "
            f"win on {_listed(each)} of the slides. A training that learned nothing from so few "
            "slides would look at the wrong places; its validation loss would be that of guessing, "
            f"{np.log(3):.2f}.",
            "Pointing game: the patch with the most attention shares a quarter of itself, or of a "
            "lesion, with it. Chance: a patch drawn from all tissue at that magnification; among "
            "seen: from the patches that were zoomed to. Intervals: Wilson, 95%, over slides.",
            "Top half: of the area of the patches that hold the top half of the attention, what "
            "is lesion; all tissue: the same of an even look. Found: of the lesions' area, what "
            "these patches cover.",
            f"Synthetic slides of {spec.side_px} x {spec.side_px} px; steps {steps}, patches of "
            f"{spec.patch_px} px, k = {spec.k}; out of fold, {spec.num_folds} folds by case; slide "
            "labels are all that training saw.",
        ],
        data={
            "spec": asdict(spec),
            "rows": [
                {
                    "models": row.models,
                    "name": row.name,
                    "validation_losses": list(row.losses),
                    "steps": [step.to_json() for step in row.steps],
                }
                for row in rows
            ],
            "pointing_highest": last.pointing,
            "chance_highest": last.chance,
            "holds": holds,
        },
    )


def _table(rows: Sequence[Judged], models: str) -> Table:
    """Every step; several rows of the same kind as means."""
    mine = [row.steps for row in rows if row.models == models]
    cells = [[_label(steps[0]), *_means(steps)] for steps in zip(*mine, strict=True)]
    headers = ["magnification", "pointing game", "chance", "chance among seen", "top half lesion",
               "all tissue lesion", "lesion found"]  # fmt: skip
    what = f", mean of {len(mine)}" if len(mine) > 1 else ""
    return Table(f"{models.capitalize()}{what}", headers, cells)


def _means(steps: Sequence[LocalisationSummary]) -> list[str]:
    """One step of several rows: a slide counts for the share of them that won on it."""
    from zoommil.reports.localisation import wilson_interval

    def mean(name: str) -> float:
        return float(np.mean([getattr(step, name) for step in steps]))

    low, high = wilson_interval(mean("hits"), steps[0].num_slides)
    return [
        f"{mean('pointing'):.2f} ({low:.2f} to {high:.2f})",
        f"{mean('chance'):.2f}",
        f"{mean('chance_seen'):.2f}",
        f"{mean('top_inside'):.0%}",
        f"{mean('even_inside'):.0%}",
        f"{mean('lesion_covered'):.0%}",
    ]


def _label(step: LocalisationSummary) -> str:
    if step.magnification is None:
        return f"step {step.step}"
    return magnification_label(step.magnification)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
