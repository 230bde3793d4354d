"""Row 16, isolated measurements: a function and arguments in; its value out, from a fresh process.

The allocator setting and thread pools of one measurement must not help or harm another, and the
peak memory of a process belongs to one measurement only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from zoommil.engines.pool import interrupts_held, worker_pool
from zoommil.machine import pinned_threads

Value = TypeVar("Value")


def run_isolated(function: Callable[..., Value], *args: Any, **kwargs: Any) -> Value:
    """What the function returns when a new process calls it."""
    with worker_pool(1) as pool:
        with interrupts_held():
            future = pool.submit(function, *args, **kwargs)
        return future.result()


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
