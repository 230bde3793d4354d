"""Row 16, ``zoommil bench``: which measurement, where to; its page printed and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import terminal

if TYPE_CHECKING:
    from zoommil.benches.results import BenchResult

app = typer.Typer(
    help="Measure this package on this machine. Example: `zoommil bench extract`",
    no_args_is_help=True,
)

OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the page and its JSON.")
]
WorkOption = Annotated[
    Path, typer.Option("--work", help="Folder for slides made for the measurement; kept.")
]
WORK = Path(".zoommil-bench")


@app.command()
def extract(
    out: OutOption = None,
    work: WorkOption = WORK,
    rounds: Annotated[int, typer.Option(help="Measurements of each path.", min=1)] = 3,
) -> None:
    """Patches per second from slides to bags, against the encoder alone and a plain loop.

    Example: `zoommil bench extract --out docs/results`
    """
    from zoommil.benches.extract import bench_extract

    show(bench_extract(work, rounds=rounds), out)


def show(result: BenchResult, out: Path | None) -> None:
    """Print a result's page and write it where asked."""
    typer.echo(result.to_markdown())
    if out is not None:
        terminal.say(f"written to {result.write(out)}")
