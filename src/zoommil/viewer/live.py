"""Row 15, live: a slide to predict comes in; each step goes out as it arrives, from a process.

The process is started when the first slide is asked for, keeps its encoder loaded, and works on one
slide at a time; torch is imported there only. Should it die, the viewer goes on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoommil.engines.pool import end_with_parent, interrupts_held
from zoommil.errors import PredictionError, ZoomMILError
from zoommil.inference.prediction import Prediction
from zoommil.machine import num_cores, pinned_threads

if TYPE_CHECKING:
    from zoommil.inference.cohort import PredictorChoice
    from zoommil.inference.predictor import Predictor

logger = logging.getLogger(__name__)

Status = Literal["loading", "running", "done", "failed", "stopped"]

_TELL_SECONDS = 0.2
_NICE = 5


@dataclass(frozen=True, eq=False)
class LiveRun:
    """How far the prediction of a slide is.

    Attributes:
        key: of the slide.
        version: grows with every change, over all runs.
        number: which run this is, counted from 1 over all slides.
        status: "loading" the model, "running", or how it ended.
        partials: the answer after each step so far.
        patches: encoded so far.
        reason: why it failed.
    """

    key: str
    version: int
    number: int
    status: Status = "loading"
    partials: tuple[Prediction, ...] = ()
    patches: int = 0
    reason: str = ""

    @property
    def prediction(self) -> Prediction | None:
        """The answer after the newest step; None before the first."""
        return self.partials[-1] if self.partials else None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ("done", "failed", "stopped")


class LivePredictions:
    """Predictions made now, one at a time; the newest of every slide is remembered."""

    def __init__(self, settings: dict[str, Any] | None) -> None:
        """Args: settings: of ``PredictorChoice``; None: nothing can be predicted."""
        self.settings = settings
        self.version = 0
        self._number = 0
        self._runs: dict[str, LiveRun] = {}
        self._current: LiveRun | None = None
        self._process: Any = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()

    def run_of(self, key: str) -> LiveRun | None:
        """The newest run of a slide."""
        return self._runs.get(key)

    @property
    def current(self) -> LiveRun | None:
        """The run that is not over, if there is one."""
        run = self._current
        return None if run is None or run.is_over else run

    def start(self, key: str, slide_id: str, path: Path, mpp: float | None) -> None:
        """Begin to predict a slide.

        Raises:
            PredictionError: no artefact was given, or another slide is being predicted.
        """
        if self.settings is None:
            raise PredictionError(
                "there is no artefact to predict with. Start with --artefact DIR."
            )
        with self._lock:
            if self.current is not None:
                raise PredictionError("another slide is being predicted. Wait for it, or stop it.")
            self.version += 1
            self._number += 1
            self._current = self._runs[key] = LiveRun(key, self.version, self._number)
            pipe = self._worker()
        pipe.send((slide_id, path, mpp))

    def stop(self) -> None:
        """End what is being predicted, and the process."""
        with self._lock:
            run = self.current
            if run is not None:
                self._put(replace(run, status="stopped"))
            self._end_process()

    close = stop

    def _worker(self) -> Connection:
        """The pipe to the process, which is started where none lives."""
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with pinned_threads(num_cores()):
            self._process = context.Process(
                target=_serve, args=(theirs, self.settings), daemon=True, name="predictor"
            )
            with interrupts_held():
                self._process.start()
        theirs.close()
        listener = threading.Thread(target=self._listen, args=(self._pipe,), daemon=True)
        listener.start()
        return self._pipe

    def _listen(self, pipe: Connection) -> None:
        """Take in what one process says, until it ends."""
        while True:
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                kind, value = "failed", "its process ended (killed, or out of memory)."
                with self._lock:
                    if pipe is self._pipe:
                        self._take(kind, value)
                        self._pipe = None
                return
            with self._lock:
                if pipe is self._pipe:
                    self._take(kind, value)

    def _take(self, kind: str, value: Any) -> None:
        run = self.current
        if run is None:
            return
        if kind == "running":
            self._put(replace(run, status="running"))
        elif kind == "patches":
            self._put(replace(run, patches=value))
        elif kind == "step":
            found = Prediction.from_json(value)
            status: Status = "done" if found.is_final else "running"
            self._put(replace(run, status=status, partials=(*run.partials, found)))
        else:
            self._put(replace(run, status="failed", reason=value))

    def _put(self, run: LiveRun) -> None:
        self.version += 1
        self._current = self._runs[run.key] = replace(run, version=self.version)

    def _end_process(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            self._process.join(5)
        self._process = self._pipe = None


def _serve(pipe: Connection, settings: dict[str, Any]) -> None:
    """What the process does: load once, then a slide after another."""
    end_with_parent()
    if hasattr(os, "nice"):
        os.nice(_NICE)  # the tiles come first
    from zoommil.inference.cohort import PredictorChoice

    choice, predictor = PredictorChoice(**settings), None
    while True:
        try:
            slide_id, path, mpp = pipe.recv()
        except EOFError:
            return
        try:
            if predictor is None:
                predictor = choice.load()
                predictor.warm_up()
            pipe.send(("running", None))
            _predict(pipe, predictor, choice, slide_id, path, mpp)
        except BrokenPipeError:
            return
        except ZoomMILError as error:
            pipe.send(("failed", " ".join(str(error).split())))
        except Exception as error:
            logger.debug("prediction failed", exc_info=True)
            pipe.send(("failed", f"{type(error).__name__}: {error}"))


def _predict(
    pipe: Connection,
    predictor: Predictor,
    choice: PredictorChoice,
    slide_id: str,
    path: Path,
    mpp: float | None,
) -> None:
    from zoommil.inference.answering import renamed

    counted, told = 0, time.monotonic()

    def progress(patches: int) -> None:
        nonlocal counted, told
        counted += patches
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            pipe.send(("patches", counted))

    for partial in predictor.stream(
        path, mpp, limits=choice.limits, batch_size=choice.batch_size, progress=progress
    ):
        pipe.send(("step", renamed(partial, slide_id).to_json(measured=True)))
