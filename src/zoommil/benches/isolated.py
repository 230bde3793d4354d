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
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_isolated(
    function: Callable[Arguments, Value], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Value:
    """What the function returns when a new process calls it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *args, **kwargs).result()


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """This process and those started inside see so many cores and threads."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    if cores is not None:
        os.sched_setaffinity(0, sorted(cores)[:threads])
    try:
        yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
