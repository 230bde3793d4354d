"""Row 16, bench localise: does attention find lesions it was never shown? Slides in, a page out.

ZoomMIL is trained from slide labels alone, cross-validated on the synthetic cohort of ``bench
pays``. Each slide with lesions is then judged by the model of the fold that held it out, against
the outlines that the generator kept. The same models before training stand beside them: what the
architecture and the places of tissue alone would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoommil.benches.results import BenchResult, Table
from zoommil.benches.zoom_pays import (
    MAIN,
    ZOOM,
    Encoded,
    PaysSpec,
    Say,
    cross_validated,
    encode_cohort,
    pays_cohorts,
    slide_methods,
)
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.reports.localisation import LocalisationSummary, StepLocalisation

LEAST_POINTING = 0.8
TRAINED, UNTRAINED = "trained", "untrained"

Found = dict[str, tuple["StepLocalisation", ...]]
"""What was found on each slide with lesions."""


@dataclass(frozen=True)
class SeedRow:
    """One seed: every slide with lesions judged once, by the model that did not see it."""

    models: str
    seed: int
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
    encoded = encode_cohort(work, MAIN, pays_cohorts(spec)[MAIN], spec, engine, say)
    method = next(one for one in slide_methods(spec) if one.name == ZOOM)
    folders = cross_validated(work, encoded, method, spec, engine).folders
    rows = []
    for models, prepare in ((TRAINED, _as_trained), (UNTRAINED, _before_training)):
        for seed in method.seeds:
            mine = [folder for (_, number), folder in folders.items() if number == seed]
            rows.append(_seed_row(models, seed, encoded, mine, prepare))
            last = rows[-1].steps[-1]
            say(f"{models}, seed {seed}: pointing {last.pointing:.2f}, chance {last.chance:.2f}")
    return _page(rows, spec)


def _seed_row(
    models: str,
    seed: int,
    encoded: Encoded,
    folders: Sequence[Path],
    prepare: Callable[[Artefact], Artefact],
) -> SeedRow:
    """The artefacts of all folds of a seed, each on the slides of its test part."""
    from zoommil.artefact import load_artefact
    from zoommil.reports.localisation import summarise

    found: Found = {}
    for folder in folders:
        found |= dict(_localised(prepare(load_artefact(folder)), folder, encoded))
    return SeedRow(models, seed, summarise([found[name] for name in sorted(found)]))


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


def _page(rows: Sequence[SeedRow], spec: PaysSpec) -> BenchResult:
    trained = [row for row in rows if row.models == TRAINED]
    num_slides = trained[0].steps[0].num_slides
    pointing = float(np.mean([row.steps[-1].pointing for row in trained]))
    chance = float(np.mean([row.steps[-1].chance for row in trained]))
    holds = pointing >= LEAST_POINTING
    steps = ", ".join(map(magnification_label, spec.magnifications))
    return BenchResult(
        name="localise",
        title="Attention finds lesions it was never shown",
        command="zoommil bench localise",
        tables=[_table(rows, models, num_slides) for models in (TRAINED, UNTRAINED)],
        notes=[
            f"At the highest step the pointing game is won on {pointing:.0%} of slides, chance "
            f"{chance:.0%}; expected: at least {LEAST_POINTING:.0%}: "
            f"{'holds' if holds else '**does not hold**'}.",
            "Pointing game: the patch with the most attention shares a quarter of itself, or of a "
            "lesion, with it. Chance: a patch drawn from all tissue at that magnification; among "
            "seen: from the patches that were zoomed to. Intervals: Wilson, 95%, over slides.",
            "Top half: of the area of the patches that hold the top half of the attention, what "
            "is lesion; all tissue: the same of an even look. Found: of the lesions' area, what "
            "these patches cover.",
            f"Synthetic slides of {spec.side_px} x {spec.side_px} px; steps {steps}, patches of "
            f"{spec.patch_px} px, k = {spec.k}; out-of-fold, {spec.num_folds} folds by case, "
            f"{len(trained)} seeds; slide labels are all that training saw.",
        ],
        data={
            "spec": asdict(spec),
            "rows": [
                {"models": row.models, "seed": row.seed, "steps": [s.to_json() for s in row.steps]}
                for row in rows
            ],
            "pointing_highest": pointing,
            "chance_highest": chance,
            "holds": holds,
        },
    )


def _table(rows: Sequence[SeedRow], models: str, num_slides: int) -> Table:
    """Means over seeds of each step."""
    seeds = [row.steps for row in rows if row.models == models]
    cells = []
    for steps in zip(*seeds, strict=True):
        cells.append([_label(steps[0]), *_means(steps)])
    headers = ["magnification", "pointing game", "chance", "chance among seen", "top half lesion",
               "all tissue lesion", "lesion found"]  # fmt: skip
    return Table(f"{models.capitalize()} models, {num_slides} slides with lesions", headers, cells)


def _means(steps: Sequence[LocalisationSummary]) -> list[str]:
    """One step of every seed: a slide counts for the share of seeds that won on it."""
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
