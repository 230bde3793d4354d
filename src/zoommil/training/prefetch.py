"""Row 11, prefetch: an order of bags comes in; bags come out, the next ones loading."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


class Stopwatch:
    """Seconds spent waiting for bags, and in all."""

    def __init__(self) -> None:
        self.waiting = 0.0
        self.total = 0.0


def load_ahead(
    load: Callable[[int], Item],
    order: Sequence[int],
    stopwatch: Stopwatch | None = None,
    *,
    depth: int = 2,
) -> Generator[Item]:
    """The bags of these indices in this order; up to ``depth`` load in one thread beside.

    A depth of 0 loads each when it is asked for: quicker where nothing is to be read or converted.
    """
    stopwatch = stopwatch or Stopwatch()
    begin = time.perf_counter()
    if depth == 0:
        for index in order:
            start = time.perf_counter()
            bag = load(index)
            stopwatch.waiting += time.perf_counter() - start
            yield bag
        stopwatch.total += time.perf_counter() - begin
        return
    with ThreadPoolExecutor(1, thread_name_prefix="bags") as pool:
        waiting: deque[Future[Item]] = deque()
        upcoming = iter(order)
        for index in upcoming:
            waiting.append(pool.submit(load, index))
            if len(waiting) > depth:
                yield _take(waiting, stopwatch)
        while waiting:
            yield _take(waiting, stopwatch)
    stopwatch.total += time.perf_counter() - begin


def _take(waiting: deque[Future[Item]], stopwatch: Stopwatch) -> Item:
    start = time.perf_counter()
    bag = waiting.popleft().result()
    stopwatch.waiting += time.perf_counter() - start
    return bag
