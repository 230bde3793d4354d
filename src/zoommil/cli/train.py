"""Row 16, ``zoommil train``: a run file or recipe, a cohort and bags in; an artefact out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import terminal
from zoommil.cli.metrics import metrics_text

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.training.progress import Progress
    from zoommil.training.run import RunSpec

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run file (TOML), or the name of a recipe.")
]
CohortOption = Annotated[
    str | None, typer.Option("--cohort", help="The labelled slides; else the run's data.cohort.")
]
BagsOption = Annotated[
    Path | None, typer.Option("--bags", help="Folder of bag files; else the run's data.bags.")
]
SplitOption = Annotated[
    Path | None, typer.Option("--split", help="A split file; else the run's data.split.")
]
RunOutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the results; else runs/NAME.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the run, as training.epochs=50; repeatable."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Of everything random.")]
RunDeviceOption = Annotated[
    str | None, typer.Option("--device", help="`cpu`, `cuda`, `cuda:N` or `auto`.")
]


def train(
    run: RunArgument,
    cohort: CohortOption = None,
    bags: BagsOption = None,
    split: SplitOption = None,
    out: RunOutOption = None,
    set_: SetOption = None,
    seed: SeedOption = None,
    device: RunDeviceOption = None,
) -> None:
    """Train a classifier on bags; stop it and the same command goes on where it was.

    Recipes: zoommil, zoommil_paper, zoommil_robust, zoommil_exact, abmil, clam_sb, clam_mb,
    transmil, sparseconvmil, maxmil, meanmil.

    Example: `zoommil train zoommil --cohort cohort.csv --bags bags -o runs/first`
    """
    from zoommil.training.train import train as train_run

    spec = run_of(run, set_, seed=seed, device=device)
    with Bar(f"training {spec.name}") as bar:
        artefact = train_run(spec, cohort, bags, split=split, out=out, report=bar)
    say_artefact(artefact)


def run_of(
    run: str,
    overrides: list[str] | None = None,
    *,
    seed: int | None = None,
    device: str | None = None,
) -> RunSpec:
    """The run of a file or recipe with the command's changes."""
    from zoommil.training.run import RunSpec

    changes = list(overrides or [])
    if seed is not None:
        changes.append(f"seed={seed}")
    if device is not None:
        changes.append(f'device="{device}"')
    if run.endswith(".toml") or Path(run).is_file():
        return RunSpec.load(run, changes)
    return RunSpec.compose({"recipe": run, "name": run}, overrides=changes)


def say_artefact(artefact: Artefact) -> None:
    """Where a trained model is and what it is worth."""
    for part, found in artefact.metrics.items():
        typer.echo(metrics_text(found["slide"], f"{part}, slides"))
    terminal.say(f"artefact: {artefact.folder}")


class Bar:
    """A bar over epochs with the current numbers; a line per epoch where nobody watches."""

    def __init__(self, description: str) -> None:
        """Args: description: before the bar."""
        self._description = description
        self._context = None
        self._advance = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)

    def __call__(self, progress: Progress) -> None:
        """Show where the run is."""
        if progress.stage != "epoch":
            return
        if self._context is None:
            self._context = terminal.progress(self._description, progress.epochs, "epochs")
            self._advance = self._context.__enter__()
            self._advance(progress.epoch - 1)
        numbers = {"train_loss": progress.train_loss, **progress.metrics}
        shown = ("train_loss", "loss", "weighted_f1", "auroc")
        note = "  ".join(
            f"{name} {numbers[name]:.3f}" for name in shown if numbers.get(name) is not None
        )
        assert self._advance is not None
        self._advance(1, note=note)
        if not terminal.is_watched() and not terminal.is_printed():
            terminal.emit({"epoch": progress.epoch, "is_best": progress.is_best, **numbers})
