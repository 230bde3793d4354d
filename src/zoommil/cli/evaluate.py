"""Row 16, ``zoommil evaluate``: an artefact, a cohort and bags in; metrics with intervals out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zoommil.cli import options, terminal
from zoommil.cli.metrics import metrics_text


def evaluate(
    artefact: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    cohort: options.CohortArgument,
    bags: Annotated[Path, typer.Option("--bags", help="Folder of bag files.")],
    split: Annotated[
        Path | None, typer.Option("--split", help="Only a part of this split file.")
    ] = None,
    part: Annotated[str, typer.Option("--part", help="`train`, `val` or `test`.")] = "test",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for metrics and predictions.")
    ] = None,
    device: options.DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a trained model on labelled slides: metrics with intervals, per slide and per case.

    Example: `zoommil evaluate runs/first/artefact cohort.csv --bags bags`
    """
    from zoommil.bags.split_files import read_splits
    from zoommil.training.evaluate import evaluate as evaluate_artefact

    slides = options.cohort_of(cohort)
    chosen = None
    if split is not None:
        chosen = read_splits(split, slides, require_classes=False)[0].parts[part]
    with terminal.progress("evaluating", len(chosen or slides.slides), "slides") as advance:
        found = evaluate_artefact(
            artefact,
            slides,
            bags,
            slide_ids=chosen,
            device=device,
            report=lambda _done: advance(1),
        )
    if out is not None:
        found.write(out, part if split else "all")
    if as_json:
        terminal.emit(found.to_json())
        return
    typer.echo(metrics_text(found.slide.to_json(), "slides"))
    if found.case is not None:
        typer.echo(metrics_text(found.case.to_json(), "cases (mean probability of their slides)"))
    else:
        typer.echo(f"no figures per case: {found.case_reason}")
