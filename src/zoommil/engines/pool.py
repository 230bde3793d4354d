"""Row 0, worker processes: a pool that never outlives the process that asked for it.

Ctrl-C reaches every process of a terminal; here it is the asking process's business alone. When
that process is interrupted its workers are ended, and when it is killed they notice and end too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import Any

from zoommil.files import remove_unfinished


@contextlib.contextmanager
def worker_pool(
    workers: int, initializer: Callable[..., None] | None = None, initargs: tuple = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes; whatever ends the block early ends them at once.

    Submit inside :func:`interrupts_held`, since that is when processes are started.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, context, initializer=_begin, initargs=(initializer, initargs)
    )
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C waiting for a moment; processes started meanwhile never see it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows; there workers ignore it once they began
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_workers() -> None:
    """End every process this one has started through ``multiprocessing``."""
    for process in multiprocessing.active_children():
        process.terminate()


def end_with_parent() -> None:
    """Ignore Ctrl-C, and end when the process that started this one is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End a worker at once: what it raised would only be sent back as its task's answer."""
    remove_unfinished()
    os._exit(1)


def _begin(initializer: Callable[..., None] | None, initargs: tuple) -> None:
    end_with_parent()
    signal.signal(signal.SIGTERM, _leave)
    if initializer is not None:
        initializer(*initargs)


def _watch(parent: Any) -> None:
    parent.join()
    remove_unfinished()
    os._exit(1)
