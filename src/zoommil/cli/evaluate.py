"""Row 16, ``zoommil evaluate``: an artefact, a cohort and bags in; metrics with intervals out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.cli.heatmap import TruthOption, truth_of
from zoommil.cli.metrics import metrics_text
from zoommil.errors import ConfigError

if TYPE_CHECKING:
    from zoommil.bags.cohort import Cohort
    from zoommil.inference.prediction import Prediction
    from zoommil.reports.localisation import LocalisationSummary
    from zoommil.training.evaluate import Evaluation


def evaluate(
    artefact: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    cohort: options.CohortArgument,
    bags: Annotated[
        Path | None, typer.Option("--bags", help="Folder of bag files; or --from-pixels.")
    ] = None,
    from_pixels: Annotated[
        bool, typer.Option("--from-pixels", help="Zoom into the slides themselves, without bags.")
    ] = False,
    split: Annotated[
        Path | None, typer.Option("--split", help="Only a part of this split file.")
    ] = None,
    part: Annotated[str, typer.Option("--part", help="`train`, `val` or `test`.")] = "test",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for metrics and predictions.")
    ] = None,
    truth: TruthOption = None,
    mpp: options.MppOption = None,
    slide_folder: options.SlidesOption = None,
    weights: options.WeightsOption = None,
    runtime: options.RuntimeOption = "auto",
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a trained model on labelled slides: metrics with intervals, per slide and per case.

    With `--truth`, also whether its attention finds the annotated areas, at every magnification.

    With `--from-pixels` no bags are needed: each slide is zoomed into, as in a prediction.

    Example: `zoommil evaluate runs/first/artefact cohort.csv --bags bags`
    """
    from zoommil.bags.split_files import read_splits
    from zoommil.files import write_json

    if (bags is None) != from_pixels:
        raise ConfigError("give either --bags, the folder of bag files, or --from-pixels.")
    slides = options.cohort_of(cohort, slide_folder, mpp)
    chosen = None
    if split is not None:
        chosen = read_splits(split, slides, require_classes=False)[0].parts[part]
    some = slides if chosen is None else slides.subset(chosen)
    answers = None
    if bags is None:
        how = {"runtime": runtime, "precision": precision, "weights": weights}
        found, answers = _from_pixels(artefact, some, device=device, **how)
    else:
        found = _from_bags(artefact, some, bags, device)
    name = part if split else "all"
    if out is not None:
        found.write(out, name)
    places = (
        () if truth is None else find_out(artefact, slides, bags, truth, chosen, device, answers)
    )
    localisation = [step.to_json() for step in places]
    if out is not None and truth is not None:
        write_json(out / f"localisation_{name}.json", localisation)
    if as_json:
        terminal.emit(found.to_json() | ({} if truth is None else {"localisation": localisation}))
        return
    typer.echo(metrics_text(found.slide.to_json(), "slides"))
    if found.case is not None:
        typer.echo(metrics_text(found.case.to_json(), "cases (mean probability of their slides)"))
    else:
        typer.echo(f"no figures per case: {found.case_reason}")
    if truth is not None:
        typer.echo(localisation_text(places))


def _from_bags(artefact: Path, cohort: Cohort, bags: Path, device: str) -> Evaluation:
    from zoommil.training.evaluate import evaluate as evaluate_artefact

    with terminal.progress("evaluating", len(cohort.slides), "slides") as advance:
        return evaluate_artefact(
            artefact, cohort, bags, device=device, report=lambda _done: advance(1)
        )


def _from_pixels(
    artefact: Path, cohort: Cohort, **how: Any
) -> tuple[Evaluation, dict[str, Prediction]]:
    from zoommil.inference.evaluating import answers_of, evaluate_answers
    from zoommil.inference.predictor import Predictor

    predictor = Predictor.load(artefact, **how)
    with terminal.progress("evaluating", len(cohort.slides), "slides") as advance:
        answers = answers_of(predictor, cohort.slides, lambda _done: advance(1))
    return evaluate_answers(predictor.artefact, cohort.slides, answers), answers


def find_out(
    artefact: Path,
    cohort: Cohort,
    bags: Path | None,
    truth: str,
    slide_ids: Any = None,
    device: str = "auto",
    answers: dict[str, Prediction] | None = None,
) -> tuple[LocalisationSummary, ...]:
    """How the attention of a trained model lies to the annotated areas of a cohort's slides.

    From the bags, or from predictions that were made.

    Raises:
        ConfigError: none of the slides has an annotated area.
    """
    from zoommil.bags.store import read_bag
    from zoommil.inference.predictor import Predictor
    from zoommil.reports.localisation import localise, summarise

    predictor = Predictor.load(artefact, device) if answers is None else None
    rows = (cohort if slide_ids is None else cohort.subset(slide_ids)).slides
    found = []
    for row in rows:
        lesions = truth_of(row.slide_id, cohort, truth)
        if lesions:
            if predictor is not None and bags is not None:
                answer = predictor.predict_bag(read_bag(bags / f"{row.slide_id}.h5"))
            else:
                answer = (answers or {})[row.slide_id]
            found.append(localise(answer, lesions))
    if not found:
        raise ConfigError(
            f"none of {len(rows)} slides has an annotated area in {truth!r}. Name a folder of "
            "GeoJSON files called by slide id, or a column of the cohort with their paths."
        )
    return summarise(found)


def localisation_text(summaries: tuple[LocalisationSummary, ...]) -> str:
    """A row per magnification: does attention lie where the annotated areas are."""
    rows = [
        [
            f"step {one.step}" if one.magnification is None else f"{one.magnification:g}x",
            str(one.num_slides),
            f"{one.pointing:.2f} [{one.pointing_low:.2f}, {one.pointing_high:.2f}]",
            f"{one.chance:.2f}",
            f"{one.chance_seen:.2f}",
            f"{one.top_inside:.2f}",
            f"{one.even_inside:.2f}",
            f"{one.lesion_covered:.2f}",
        ]
        for one in summaries
    ]
    headers = [
        "magnification",
        "slides",
        "pointing game",
        "chance",
        "chance among seen",
        "top half of attention inside",
        "even look inside",
        "annotated area covered",
    ]
    notes = (
        "pointing game: the patch with the most attention shares a quarter of itself, or of an "
        "annotated area, with it (95% Wilson interval); chance: a patch drawn from all tissue."
    )
    return f"annotated areas:\n\n{terminal.table(headers, rows)}\n\n{notes}\n"
