"""Row 16, ``zoommil convert``: other tools' feature files in, bags out, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import options, terminal

if TYPE_CHECKING:
    from zoommil.bags.formats.conversion import Conversion


def convert(
    source: Annotated[Path, typer.Argument(help="A feature file, or a folder of them.")],
    out: options.OutOption,
    from_format: Annotated[
        str,
        typer.Option(
            "--from", help="`zoommil`, `trident`, `clam`, `stamp`, `authors` or `atlaspatch`."
        ),
    ],
    to_format: Annotated[str, typer.Option("--to", help="As --from; bags by default.")] = "zoommil",
    cohort: Annotated[
        str | None, typer.Option("--cohort", help="Only the slides of this table, with its mpp.")
    ] = None,
    magnification: Annotated[
        float | None,
        typer.Option(help="Of several magnifications, the one to write for tools that know one."),
    ] = None,
    mpp: options.MppOption = None,
    patch_px: Annotated[int | None, typer.Option(help="Where files do not say.", min=1)] = None,
    patch_magnification: Annotated[
        float | None, typer.Option(help="Of the files' patches, where they do not say.")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Of several encoders in a file.")] = None,
) -> None:
    """Turn other tools' features into bags, or bags into other tools' features.

    Example: `zoommil convert trident_out/20x_256px_0px_overlap -o bags --from trident`
    """
    from zoommil.bags.formats.conversion import convert_cohort

    told = {
        "mpp": mpp,
        "patch_px": patch_px,
        "magnification": patch_magnification,
        "encoder": encoder,
    }

    def say(conversion: Conversion) -> None:
        if conversion.error:
            terminal.say(f"{conversion.slide_id} failed: {conversion.error}")
        elif not terminal.is_printed():
            written = [str(path) for path in conversion.written]
            terminal.emit({"slide_id": conversion.slide_id, "written": written})

    done = convert_cohort(
        source,
        out,
        from_format=from_format,
        to_format=to_format,
        cohort=options.cohort_of(cohort) if cohort else None,
        magnification=magnification,
        progress=say,
        **{name: value for name, value in told.items() if value is not None},
    )
    num_failed = sum(bool(conversion.error) for conversion in done)
    terminal.say(f"{len(done) - num_failed} files converted into {out}, {num_failed} failed.")
    if num_failed or not done:
        raise typer.Exit(1)
