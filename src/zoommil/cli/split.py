"""Row 16, ``zoommil split``: a labelled cohort in, splits by case out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import options, terminal
from zoommil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoommil.bags.cohort import Cohort
    from zoommil.bags.split import Split


def split(
    cohort: options.CohortArgument,
    out: options.OutOption,
    folds: Annotated[
        int, typer.Option(help="Folds for cross-validation; 0 makes one train/val/test split.")
    ] = 0,
    fractions: Annotated[
        str, typer.Option(help="Of train, val and test, when there are no folds.")
    ] = "0.7,0.15,0.15",
    val_fraction: Annotated[
        float, typer.Option(help="Of each fold's training cases, for validation.")
    ] = 0.15,
    seed: Annotated[int, typer.Option(help="Other seeds give other splits.")] = 0,
    keep_sites: Annotated[bool, typer.Option(help="Keep all cases of a `site` together.")] = False,
) -> None:
    """Split a cohort by case, stratified by label: no case is ever on two sides.

    Writes `splits_0.csv` and so on, with the columns train, val and test that other tools read.

    Example: `zoommil split cohort.csv -o splits --folds 5`
    """
    from zoommil.bags.split_files import write_splits
    from zoommil.bags.splits import make_folds, make_split

    slides = options.cohort_of(cohort)
    if folds:
        made: Sequence[Split] = make_folds(
            slides, num_folds=folds, val_fraction=val_fraction, seed=seed, keep_sites=keep_sites
        )
    else:
        shares = _fractions_of(fractions)
        made = [make_split(slides, fractions=shares, seed=seed, keep_sites=keep_sites)]
    paths = write_splits(made, slides, out)
    typer.echo(_table(made, slides))
    terminal.say(f"{len(paths)} split{'s' if len(paths) > 1 else ''} in {out}.")


def _fractions_of(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"fractions {text!r} are not numbers. Give three, as 0.7,0.15,0.15."
        ) from error


def _table(splits: Sequence[Split], cohort: Cohort) -> str:
    """Slides per split, part and class."""
    rows = []
    for made in splits:
        for part, ids in made.parts.items():
            labels = [cohort.slide(slide_id).label for slide_id in ids]
            counts = [str(labels.count(name)) for name in cohort.classes]
            rows.append([made.name, part, str(len(ids)), *counts])
    return terminal.table(["split", "part", "slides", *cohort.classes], rows)
