"""Row 16, interruption: Ctrl-C or a request to end comes in; one line that says how to go on out.

SIGTERM, as schedulers send it, is taken as Ctrl-C is. Both may come at any moment: what is final
on disk was renamed into place, what was under way is begun again by the same command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from zoommil.cli import terminal
from zoommil.files import remove_unfinished

EXIT_CODE = 130

KEPT = {
    "extract": "Every finished bag is kept",
    "train": "Every epoch up to the last checkpoint is kept",
    "crossval": "Finished folds are kept, others up to their last checkpoint",
    "predict": "Every answer that was given is kept",
    "demo": "Every stage and slide that was finished is kept",
    "bench": "Slides, bags and runs that were finished are kept",
}
"""What an interrupted command need not do again; of the others nothing is left half-written."""


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt this process; a second one ends it at once.

    One that whoever started us wants ignored (``nohup``, a background job) stays ignored.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, _insist)
    raise KeyboardInterrupt


def _insist(_number: int, _frame: FrameType | None) -> None:
    end_workers()
    remove_unfinished()
    terminal.fail(sentence(sys.argv[1:]))
    os._exit(EXIT_CODE)


def end_workers() -> None:
    """End the processes that work for this one, if it ever started any."""
    if "multiprocessing" in sys.modules:
        from zoommil.engines.pool import end_workers as end

        end()


def sentence(words: list[str]) -> str:
    """What is kept and how to go on, from the words after ``zoommil``."""
    name = next((word for word in words if not word.startswith("-")), "")
    again = f"zoommil {shlex.join(words)}"
    if name == "predict" and not {"-o", "--out"} & {word.split("=")[0] for word in words}:
        return f"interrupted. Nothing is kept without --out DIR. Once more: {again}"
    if name in KEPT:
        return f"interrupted. {KEPT[name]}; to go on, give the same command again: {again}"
    return f"interrupted. Nothing is left half-written; to begin again: {again}"
