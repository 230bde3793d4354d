"""Row 16, the terminal: progress where somebody looks, plain lines where nobody does."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[..., None]


def is_watched() -> bool:
    """Whether standard error is a terminal, so that bars make sense."""
    return sys.stderr.isatty()


def is_printed() -> bool:
    """Whether standard output goes to a person rather than into a pipe or file."""
    return sys.stdout.isatty()


def fail(message: str) -> None:
    """One line on standard error."""
    sys.stderr.write(" ".join(message.split()) + "\n")


def say(message: str = "") -> None:
    """One line for the reader, on standard error, so that standard output stays data."""
    sys.stderr.write(message + "\n")


def emit(record: dict[str, Any]) -> None:
    """One JSON line on standard output."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def set_up_logging(level: int | None) -> None:
    """Show the package's warnings as lines; with a level, also what it says beside."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    package = logging.getLogger("zoommil")
    package.handlers[:] = [handler]
    package.setLevel(logging.WARNING if level is None else level)
    package.propagate = False
    if level != logging.DEBUG:  # what it says of damaged files, our errors say by name
        logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)


@contextmanager
def progress(description: str, total: int, unit: str) -> Iterator[Advance]:
    """A function ``advance(steps, note=...)`` behind a bar with rate and time left.

    Not on a terminal, nothing is drawn.
    """
    if not is_watched():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(description, total=total, note="")

        def advance(steps: int = 1, note: str | None = None) -> None:
            bars.advance(task, steps)
            if note is not None:
                bars.update(task, note=note)

        yield advance


def _ignore(steps: int = 1, note: str | None = None) -> None:
    """Progress nobody watches."""


def table(headers: list[str], rows: list[list[str]]) -> str:
    """Rows as plain aligned text: the same in a terminal, a file and a log."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = [
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [headers, ["-" * width for width in widths], *rows]
    ]
    return "\n".join(lines)
