"""Row 16, ``zoommil doctor``: is everything here that is needed, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import terminal

if TYPE_CHECKING:
    from zoommil.diagnosis import Finding


def doctor(
    encoder: Annotated[
        list[str] | None,
        typer.Option("--encoder", help="An encoder that is needed here; repeatable."),
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Ask the hub whether it can be reached.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the self-test.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: packages, readers, runtimes, threads, memory, disk, weights.

    Ends with a self-test of a few seconds: a slide of known pixels is read by every reader and
    encoded by every runtime, and the features are compared with stored ones. Nothing is asked of
    the network without `--online`. The exit code is 1 when there is a problem.

    Example: `zoommil doctor --encoder resnet50`
    """
    from zoommil.diagnosis import diagnose

    findings = []
    for finding in diagnose(encoder or (), is_online=online, has_selftest=not quick):
        findings.append(finding)
        if not as_json:
            typer.echo(text_of(finding))
    problems = [finding for finding in findings if finding.status == "problem"]
    if as_json:
        rows = [finding.to_json() for finding in findings]
        terminal.emit({"is_well": not problems, "findings": rows})
    else:
        typer.echo(_closing(findings))
    if problems:
        raise typer.Exit(1)


def text_of(finding: Finding) -> str:
    """One finding: a line, and a second one that says what to do."""
    line = f"{finding.status.upper() if finding.status == 'problem' else finding.status:7}  "
    line += f"{finding.name}: {finding.text}"
    if finding.remedy and finding.status != "ok":
        line += f"\n         -> {finding.remedy}"
    return line


def _closing(findings: list[Finding]) -> str:
    problems = [finding.name for finding in findings if finding.status == "problem"]
    notes = sum(finding.status == "note" for finding in findings)
    if problems:
        return f"\n{len(problems)} problems: {', '.join(problems)}. What to do stands under each."
    return f"\nEverything that is needed is here ({notes} notes)."
