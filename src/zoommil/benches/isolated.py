"""Row 16, isolated measurements: a function and arguments in; its value out, from a fresh process.

The allocator setting and thread pools of one measurement must not help or harm another, and the
peak memory of a process belongs to one measurement only.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from zoommil.machine import pinned_threads

Value = TypeVar("Value")


def run_isolated(function: Callable[..., Value], *args: Any, **kwargs: Any) -> Value:
    """What the function returns when a new process calls it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *args, **kwargs).result()


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """This process and those started inside see so many cores and threads."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores is not None:
        os.sched_setaffinity(0, sorted(cores)[:threads])
    try:
        with pinned_threads(threads):
            yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)
