"""Row 16, ``zoommil bench accept``: every bench in turn, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zoommil.cli import terminal


def accept(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pages and their JSON.")],
    work: Annotated[
        Path, typer.Option("--work", help="Folder for slides made for the measurements; kept.")
    ] = Path(".zoommil-bench"),
    only: Annotated[
        str | None, typer.Option("--only", help="Names of benches, comma-separated. [all of them]")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that this code has made already.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan and stop.")] = False,
) -> None:
    """Every bench with full settings, into a folder; goes on where an earlier call ended.

    A bench that fails does not stop the others; the exit code says that one did. Example:
    `zoommil bench accept --out docs/results --only flops,predict`
    """
    from zoommil.benches.accept import accept as accept_benches
    from zoommil.benches.accept import chosen, is_made

    benches = chosen(only)
    rows = []
    for bench in benches:
        minutes = "made already" if is_made(bench, out) and not again else f"{bench.minutes:g}"
        rows.append([bench.name, bench.command, minutes])
    typer.echo(terminal.table(["bench", "command", "minutes, about"], rows))
    if plan:
        return
    failed = []
    for outcome in accept_benches(benches, out, work, _run, again=again):
        typer.echo(f"{outcome.bench.name}: {outcome.state}")
        failed += [outcome.bench.name] * (outcome.state == "failed")
    if failed:
        terminal.fail(f"failed: {', '.join(failed)}. The same command tries them again.")
        raise typer.Exit(1)


def _run(words: list[str]) -> int:
    """A command's exit code; its remarks are seen, its page is not (it is written)."""
    import subprocess
    import sys

    terminal.say("zoommil " + " ".join(words))
    command = [sys.executable, "-m", "zoommil", *words]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
