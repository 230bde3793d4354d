"""Row 0, the local engine: one task after another here, or worker processes side by side.

Each worker gets its share of the cores, pinned through the environment before anything numeric is
imported, so that N workers never run N times as many threads as there are cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from zoommil.engines.engine import Outcome, Setup
from zoommil.engines.pool import interrupts_held, worker_pool
from zoommil.errors import ConfigError, ZoomMILError
from zoommil.machine import num_cores, pinned_threads

_DIED = (
    "its worker process ended without an answer, twice (killed, out of memory, or a crash in "
    "native code). Try it alone with --workers 1; in a script of your own, start work under "
    "if __name__ == '__main__':"
)

_function: Callable[[Any], Any] | None = None  # set once per worker by _start


class WorkerDiedError(ZoomMILError):
    """A worker process ended without an answer: killed, out of memory or crashed."""


class LocalEngine:
    """Tasks on this machine: in this process for one worker, in spawned processes for more."""

    def __init__(self, workers: int = 1) -> None:
        """Args: workers: how many tasks run side by side."""
        if workers < 1:
            raise ConfigError(f"workers is {workers}; it must be at least 1.")
        self.workers = workers
        self.is_here = workers == 1
        self.threads_per_worker = max(1, num_cores() // workers)

    def run(self, setup: Setup, tasks: Sequence[Any]) -> Iterator[Outcome]:
        """Outcomes as tasks end. A worker that dies fails only the task it was working on."""
        if self.is_here:
            yield from self._run_here(setup, tasks)
            return
        remaining = list(enumerate(tasks))
        while remaining:
            unanswered = yield from self._run_pool(setup, remaining, self.workers)
            suspects, remaining = unanswered[: self.workers], unanswered[self.workers :]
            for suspect in suspects:  # alone, one at a time: so the guilty task is known by name
                for index, task in (yield from self._run_pool(setup, [suspect], 1)):
                    yield Outcome(index, task, error=WorkerDiedError(_DIED))

    def _run_here(self, setup: Setup, tasks: Sequence[Any]) -> Iterator[Outcome]:
        function = setup()
        for index, task in enumerate(tasks):
            try:
                value = function(task)
            except Exception as error:
                yield Outcome(index, task, error=error)
            else:
                yield Outcome(index, task, value=value)

    def _run_pool(self, setup: Setup, numbered: list[tuple[int, Any]], workers: int):
        """Yield outcomes; return the tasks left unanswered when a worker died, in order."""
        unanswered: list[tuple[int, Any]] = []
        with worker_pool(workers, _start, (setup,)) as pool:
            with pinned_threads(self.threads_per_worker), interrupts_held():
                pending: dict[Future, tuple[int, Any]] = {
                    pool.submit(_apply, task): (index, task) for index, task in numbered
                }
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    index, task = pending.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        unanswered.append((index, task))
                    elif error is not None:
                        yield Outcome(index, task, error=error)
                    else:
                        yield Outcome(index, task, value=future.result())
        return sorted(unanswered, key=lambda numbered_task: numbered_task[0])


def _start(setup: Setup) -> None:
    """Begin a worker: make the function once."""
    global _function  # noqa: PLW0603 - a process pool has no other place for per-worker state
    try:
        _function = setup()
    except Exception as error:
        _function = partial(_raise, error)


def _raise(error: Exception, _task: Any) -> Any:
    raise error


def _apply(task: Any) -> Any:
    assert _function is not None
    return _function(task)
