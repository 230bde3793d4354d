"""Row 2, synthetic: a cohort's spec and a seed go in; its slides and their table come out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from zoommil.engines.local import LocalEngine
from zoommil.files import write_text
from zoommil.machine import num_cores
from zoommil.synthetic.slide import truth_path, write_slide
from zoommil.synthetic.spec import Label, SlideSpec

COLUMNS = ("case_id", "slide_id", "label", "path", "mpp", "truth_path")


class CohortSpec(BaseModel):
    """A number of slides of equal spec, their labels in equal shares of the spec's classes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_slides: int = Field(default=60, ge=1)
    slides_per_case: int = Field(default=1, ge=1)
    slide: SlideSpec = SlideSpec()


@dataclass(frozen=True)
class _Task:
    path: Path
    spec: SlideSpec
    seed: int


def write_cohort(
    folder: Path | str,
    spec: CohortSpec,
    seed: int,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """The path of ``cohort.csv``; slides that are already there, whole, are kept.

    Slides of one case share their label. ``progress`` is told the slides done and all slides.

    Raises:
        OutputError: the folder cannot be written.
    """
    folder = Path(folder)
    tasks = _tasks(folder, spec, seed)
    workers = min(workers or num_cores(), len(tasks))
    engine = LocalEngine(workers)
    setup = partial(_make_writer, max(1, num_cores() // workers))
    for done, outcome in enumerate(engine.run(setup, tasks), start=1):
        if outcome.error is not None:
            raise outcome.error
        if progress is not None:
            progress(done, len(tasks))
    return _write_table(folder, spec, tasks)


def slide_labels(spec: CohortSpec, seed: int) -> tuple[Label, ...]:
    """The label of each slide: equal shares of the classes, in an order drawn from the seed."""
    num_cases = -(-spec.num_slides // spec.slides_per_case)
    classes = spec.slide.classes
    cases = [classes[index % len(classes)] for index in range(num_cases)]
    order = np.random.default_rng([seed, 1]).permutation(num_cases)
    return tuple(cases[order[index // spec.slides_per_case]] for index in range(spec.num_slides))


def _tasks(folder: Path, spec: CohortSpec, seed: int) -> list[_Task]:
    suffix = {"svs": ".svs", "tiff": ".tiff"}[spec.slide.format]
    seeds = np.random.default_rng([seed, 2]).integers(0, 2**31, spec.num_slides)
    return [
        _Task(
            folder / f"slide_{index:03d}{suffix}",
            spec.slide.model_copy(update={"label": label}),
            int(own),
        )
        for index, (label, own) in enumerate(zip(slide_labels(spec, seed), seeds, strict=True))
    ]


def _make_writer(threads: int) -> Callable[[_Task], None]:
    def write(task: _Task) -> None:
        write_slide(task.path, task.spec, task.seed, threads=threads)

    return write


def _write_table(folder: Path, spec: CohortSpec, tasks: list[_Task]) -> Path:
    """The table, its paths relative to its folder so that the folder can be moved."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for index, task in enumerate(tasks):
        case = f"case_{index // spec.slides_per_case:03d}"
        truth = truth_path(task.path).name
        table.writerow(
            [case, task.path.stem, task.spec.label, task.path.name, f"{task.spec.mpp:.6g}", truth]
        )
    path = folder / "cohort.csv"
    write_text(path, text.getvalue())
    return path
