"""Row 16, the program: which commands there are, and how any of them ends badly.

Whatever goes wrong on purpose is one line on standard error and exit code 1; wrong usage is
exit code 2; Ctrl-C and SIGTERM are exit code 130 and say how to go on.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from zoommil import __version__
from zoommil.cli import bench, interruption, terminal
from zoommil.cli.convert import convert
from zoommil.cli.crossval import crossval
from zoommil.cli.demo import demo
from zoommil.cli.doctor import doctor
from zoommil.cli.evaluate import evaluate
from zoommil.cli.extract import extract
from zoommil.cli.heatmap import heatmap
from zoommil.cli.info import info
from zoommil.cli.predict import predict
from zoommil.cli.report import report
from zoommil.cli.split import split
from zoommil.cli.tissue import tissue
from zoommil.cli.train import train
from zoommil.cli.verify import verify
from zoommil.cli.view import view
from zoommil.errors import ZoomMILError

app = typer.Typer(
    name="zoommil",
    help="Whole-slide image classification that learns where to look.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SLIDES, TRAINING, TOOLS = "From slides to bags", "From bags to a model", "Beside"
ANSWERS = "From a model to answers"
app.command(rich_help_panel=TOOLS)(demo)
app.command(rich_help_panel=SLIDES)(info)
app.command(rich_help_panel=SLIDES)(tissue)
app.command(rich_help_panel=SLIDES)(extract)
app.command(rich_help_panel=TRAINING)(split)
app.command(rich_help_panel=TRAINING)(train)
app.command(rich_help_panel=TRAINING)(crossval)
app.command(rich_help_panel=TRAINING)(evaluate)
app.command(rich_help_panel=TOOLS)(convert)
app.command(rich_help_panel=TOOLS)(doctor)
app.command(rich_help_panel=ANSWERS)(predict)
app.command(rich_help_panel=ANSWERS)(verify)
app.command(rich_help_panel=ANSWERS)(heatmap)
app.command(rich_help_panel=ANSWERS)(report)
app.command(rich_help_panel=ANSWERS)(view)
app.add_typer(bench.app, name="bench", rich_help_panel=TOOLS)


def _print_version(is_wanted: bool | None) -> None:
    if is_wanted:
        typer.echo(f"zoommil {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool | None,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
) -> None:
    """Whole-slide image classification that learns where to look."""
    terminal.set_up_logging(logging.DEBUG if debug else logging.INFO if verbose else None)


def main() -> None:
    """Run the command line; never a traceback unless asked for."""
    debug = "--debug" in sys.argv
    try:
        with interruption.handled():
            app()
    except ZoomMILError as error:
        if debug:
            raise
        terminal.fail(f"{type(error).__name__}: {error}")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == interruption.EXIT_CODE:
            interruption.end_workers()
            terminal.fail(interruption.sentence(sys.argv[1:]))
        raise
    except BrokenPipeError:  # the reader of our output, as in `zoommil ... | head`, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MemoryError:
        if debug:
            raise
        terminal.fail("out of memory. Use fewer --workers, or a machine with more memory.")
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        terminal.fail(
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} "
            "(this is a defect of zoommil: run again with --debug and report what it prints)"
        )
        sys.exit(70)
