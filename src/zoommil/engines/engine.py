"""Row 0, the engine contract: tasks go in, an outcome comes out as each task ends.

An engine knows nothing of slides or models. It is given a ``setup``, called once in every worker,
that returns the function to apply to each task; so that what is slow to make (a compiled encoder)
is made once per worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Setup = Callable[[], Callable[[Any], Any]]


@dataclass(frozen=True)
class Outcome:
    """How one task ended: with a value, or with the error it raised."""

    index: int
    task: Any
    value: Any = None
    error: BaseException | None = None


@runtime_checkable
class Engine(Protocol):
    """Runs independent tasks; a task that fails never ends the others.

    ``is_here``: tasks run in this process, so that ``setup`` may hold callbacks.
    """

    is_here: bool

    def run(self, setup: Setup, tasks: Sequence[Any]) -> Iterator[Outcome]:
        """Outcomes in the order in which tasks end. ``setup`` and tasks must be picklable."""
        ...
