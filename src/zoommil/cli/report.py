"""Row 16, ``zoommil report``: predictions in; one self-contained HTML page out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.cli.heatmap import PredictionsArgument, TruthOption, chosen
from zoommil.errors import ArtefactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoommil.artefact import Artefact
    from zoommil.inference.prediction import Prediction


def report(
    predictions: PredictionsArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The HTML file to write; a folder with --per-slide.")
    ] = Path("report.html"),
    per_slide: Annotated[
        bool, typer.Option("--per-slide", help="A page for each slide, in the folder --out.")
    ] = False,
    cohort: Annotated[
        str | None,
        typer.Option(
            "--cohort",
            metavar="COHORT",
            help="Labels, cases and slides: a table, folder or glob; else as when predicted.",
        ),
    ] = None,
    artefact: Annotated[
        Path | None, typer.Option("--artefact", help="The model; else as when predicted.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", help="Another model on these slides: `NAME=PREDICTIONS`."),
    ] = None,
    truth: TruthOption = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this slide; repeatable.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the page.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the model, in sentences.")] = None,
    most_drawn: Annotated[
        int, typer.Option("--most-drawn", help="Slides with pictures, wrong ones first.", min=0)
    ] = 24,
) -> None:
    """Write one HTML page about predictions: answers, quality, cost, where it looked, the model.

    The page is a single file without scripts that needs no network; it prints. With `--per-slide`
    there is one such page for each slide.

    Example: `zoommil report predictions --cohort cohort.csv -o report.html`
    """
    from zoommil.reports.page import write_report, write_slide_reports
    from zoommil.reports.sources import load_predictions

    every = load_predictions(predictions)
    found = chosen(every, only)
    given: dict[str, Any] = {
        "cohort": None if cohort is None else options.cohort_of(cohort),
        "artefact": artefact_of(found, artefact),
        "rivals": rivals_of(found, compare or ()),
        "truth": truth,
        "name": name,
        "title": title,
    }
    with terminal.progress("drawing", len(found), "slides") as advance:
        if per_slide:
            names = [one.slide_id for one in found]
            paths = write_slide_reports(out, every, only=names, progress=advance, **given)
            terminal.say(f"{len(paths)} reports written to {out}.")
            return
        path = write_report(out, found, most_drawn=most_drawn, progress=advance, **given)
    terminal.say(f"report written to {path} ({path.stat().st_size / 1e6:.1f} MB).")


def rivals_of(
    predictions: Sequence[Prediction], compare: Sequence[str]
) -> dict[str, list[Prediction]]:
    """Other models' predictions of the same slides, by the names they were given with.

    Raises:
        ConfigError: one is not NAME=PREDICTIONS, or has none of the slides.
    """
    from zoommil.reports.sources import load_predictions

    names = {one.slide_id for one in predictions}
    rivals = {}
    for text in compare:
        key, _, path = text.partition("=")
        if not key or not path:
            raise ConfigError(f"--compare is {text!r}; expected NAME=PREDICTIONS.")
        rivals[key] = [one for one in load_predictions(path) if one.slide_id in names]
        if not rivals[key]:
            raise ConfigError(f"--compare {text!r} has no prediction of any of these slides.")
    return rivals


def artefact_of(predictions: list[Prediction], given: Path | None) -> Artefact | None:
    """The model that answered: the given one, else where it lay; None where that is gone.

    Raises:
        ArtefactError: the given one is none, or is not the one that answered.
    """
    from zoommil.artefact import load_artefact

    place = given or Path(predictions[0].measured.files.get("artefact") or ".")
    if given is None and not (place / "artefact.json").is_file():
        terminal.say("the model is not where it was; pass --artefact to say how it was trained.")
        return None
    artefact = load_artefact(place)
    if artefact.hash != predictions[0].provenance.get("artefact"):
        if given is None:
            return None
        raise ArtefactError(
            f"{str(place)!r} is not the model that gave these predictions. Pass the folder that "
            "'zoommil predict' was given."
        )
    return artefact
