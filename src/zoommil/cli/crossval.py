"""Row 16, ``zoommil crossval``: a run over folds and seeds; out-of-fold figures out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import options, terminal
from zoommil.cli.train import (
    BagsOption,
    CohortOption,
    RunArgument,
    RunDeviceOption,
    RunOutOption,
    SetOption,
    run_of,
)
from zoommil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoommil.bags.split import Split
    from zoommil.training.crossval import CrossValidation
    from zoommil.training.progress import Progress


def crossval(
    run: RunArgument,
    cohort: CohortOption = None,
    bags: BagsOption = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="Folder of `zoommil split`, instead of folds.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds to draw, by case and stratified.", min=2)] = 5,
    seeds: Annotated[str, typer.Option(help="Comma-separated; the folds stay the same.")] = "0",
    out: RunOutOption = None,
    set_: SetOption = None,
    device: RunDeviceOption = None,
    workers: options.WorkersOption = 1,
    ddof: Annotated[
        int, typer.Option(help="Of the standard deviation over seeds: 1 (sample) or 0.")
    ] = 1,
) -> None:
    """Train every fold with every seed; every slide is judged once per seed, out of fold.

    What was finished is kept: the same command goes on.

    Example: `zoommil crossval abmil --cohort cohort.csv --bags bags -o runs/cv --seeds 0,1,2`
    """
    from zoommil.training.crossval import crossval as crossval_run

    spec = run_of(run, set_, device=device)
    given = _given_splits(splits, cohort or spec.data.cohort)
    numbers = _seeds_of(seeds)
    total = (len(given) if given else folds) * len(numbers)
    with terminal.progress(f"cross-validating {spec.name}", total, "runs") as advance:

        def report(progress: Progress) -> None:
            if progress.stage == "fold":
                advance(1)

        found = crossval_run(
            spec,
            cohort,
            bags,
            num_folds=folds,
            seeds=numbers,
            splits=given,
            out=out,
            workers=workers,
            ddof=ddof,
            report=report,
        )
    typer.echo(_text(found))
    for (fold, seed), reason in found.failures.items():
        terminal.say(f"fold {fold}, seed {seed} failed: {reason}")
    if found.failures:
        raise typer.Exit(1)


def _given_splits(folder: Path | None, cohort: str) -> Sequence[Split] | None:
    from zoommil.bags.split_files import read_splits

    return None if folder is None else read_splits(folder, options.cohort_of(cohort))


def _seeds_of(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"seeds {text!r} are not whole numbers. Give them as 0,1,2.") from error


def _text(found: CrossValidation) -> str:
    """Mean and deviation over seeds of every metric, slides and cases."""
    tables = []
    for level, summaries in found.summaries.items():
        rows = [
            [name, f"{s.mean:.3f}", "-" if s.sd is None else f"{s.sd:.3f}", str(s.num)]
            for name, s in summaries.items()
        ]
        ddof = next(iter(summaries.values())).ddof if summaries else 1
        headers = [f"{level}, out of fold", "mean", f"sd (ddof {ddof})", "seeds"]
        tables.append(terminal.table(headers, rows))
    return "\n\n".join(tables) + "\n"
