"""Row 16, bench predict: the paper's geometry end to end, zooming against encoding everything.

Both paths have the same slide, encoder, runtime and process, and run by turns. Models are
untrained: what they choose is arbitrary, what it takes is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoommil.benches.isolated import pinned, run_isolated
from zoommil.benches.large_slide import (
    MOST_BEFORE_SECONDS,
    MOST_OVER_ENCODING,
    MOST_PEAK_GB,
    LargeTimes,
    measure_large,
)
from zoommil.benches.paper_tasks import TASKS, Task
from zoommil.benches.predict_runs import (
    ALONE,
    BY_PREDICTOR,
    ENCODER,
    Setup,
    TaskTimes,
    Timings,
    measure_task,
)
from zoommil.benches.results import BenchResult, Table
from zoommil.benches.task_slides import TaskSlide, prepare_task
from zoommil.errors import ConfigError

LARGE = "large"
CHOICES = (*TASKS, LARGE)
SETUPS = {
    "bright": (Setup("fp32", 1), Setup("bf16", 2), Setup("auto", 1, has_exhaustive=False)),
    "crc": (Setup("bf16", 2),),
    "camelyon": (Setup("bf16", 2),),
    LARGE: (Setup("auto", 2),),
}
TARGETS = {
    ("BRIGHT", "fp32", 1): {"ZoomMIL": 11.0, "ZoomMIL-Eff": 32.0},
    ("BRIGHT", "bf16", 2): {"ZoomMIL": 9.0, "ZoomMIL-Eff": 25.0},
}
"""How many times quicker than encoding everything each way should at least be."""
PAPER_SLIDES_PER_HOUR, AIM_SLIDES_PER_HOUR = 300, 1500
STAGES = ("open", "mask", "grid", "read", "encode", "head")

Progress = Callable[[str], None]


def bench_predict(
    work: Path,
    *,
    tasks: Sequence[str] = CHOICES,
    threads: int | None = None,
    rounds: int = 1,
    encoder_name: str = ENCODER,
    progress: Progress | None = None,
) -> BenchResult:
    """End-to-end times of the paper's tasks, and of a very large slide.

    Args:
        work: where slides are kept between runs.
        tasks: of ``bright``, ``crc``, ``camelyon``, ``large``.
        threads: use so many cores instead of those of the targets.
        rounds: how often everything is encoded; zooms run three times as often.

    Raises:
        ConfigError: an unknown task.
    """
    unknown = [name for name in tasks if name not in CHOICES]
    if unknown:
        raise ConfigError(f"task is {unknown[0]!r}; expected {', '.join(CHOICES)}.")
    times: list[TaskTimes] = []
    large: list[LargeTimes] = []
    for name in tasks:
        for setup in setups_of(name, threads):
            if progress is not None:
                progress(f"{name}, {setup}")
            if name == LARGE:
                large.append(measure_large(work, setup, encoder_name=encoder_name))
            else:
                times.append(run_task(TASKS[name], work, setup, rounds, encoder_name))
    name = name_of(tasks, threads)
    return page_of(times, large, command_of(tasks, threads, rounds), name)


def run_task(
    task: Task,
    work: Path,
    setup: Setup,
    rounds: int = 1,
    encoder_name: str = ENCODER,
    slide: TaskSlide | None = None,
) -> TaskTimes:
    """One task under one setup, in a process of its own that sees so many cores."""
    prepared = prepare_task(task, work / "tasks", slide)
    with pinned(setup.threads):
        return run_isolated(measure_task, prepared, setup, rounds, encoder_name)


def setups_of(task: str, threads: int | None) -> tuple[Setup, ...]:
    """How a task is computed: as the targets say, or with so many cores."""
    if threads is None:
        return SETUPS[task]
    found = (Setup(one.precision, threads, one.has_exhaustive) for one in SETUPS[task])
    return tuple(dict.fromkeys(found))


def command_of(tasks: Sequence[str], threads: int | None, rounds: int) -> str:
    """What to type for the same measurement."""
    words = ["zoommil bench predict"]
    words += [f"--task {name}" for name in tasks] if tuple(tasks) != CHOICES else []
    words += [f"--threads {threads}"] if threads is not None else []
    words += [f"--rounds {rounds}"] if rounds != 1 else []
    return " ".join(words)


def name_of(tasks: Sequence[str], threads: int | None) -> str:
    """The result's name: another one for each choice, so that none replaces another."""
    words = ["predict", *(tasks if tuple(tasks) != CHOICES else ()), *threads_words(threads)]
    return "-".join(words)


def threads_words(threads: int | None) -> list[str]:
    """What the name of a result has of ``--threads``."""
    return [] if threads is None else [f"{threads}thread{'s' * (threads > 1)}"]


def page_of(
    times: Sequence[TaskTimes],
    large: Sequence[LargeTimes],
    command: str,
    name: str = "predict",
) -> BenchResult:
    """The page of what was measured."""
    tables = [_ratio_table(times), _slides_table(times), _stage_table(times)] if times else []
    tables += [_large_table(large)] if large else []
    return BenchResult(
        name=name,
        title="Prediction from pixels, end to end",
        command=command,
        tables=[table for table in tables if table.rows],
        notes=_notes(times),
        data={
            "speedups": [ratio_record(*one) for one in ratios_of(times)],
            "slides_per_hour": [rate_record(*one) for one in rates_of(times)],
            "tasks": [asdict(one) for one in times],
            "large": [
                {**asdict(one), "before": one.before, "allowed": one.allowed} for one in large
            ],
        },
    )


def ratios_of(times: Sequence[TaskTimes]) -> Iterator[tuple[TaskTimes, Timings, Timings]]:
    """Every zoom with the exhaustive path of the same run."""
    for one in times:
        if one.setup.has_exhaustive:
            for path in one.paths:
                if path.name not in (BY_PREDICTOR, ALONE):
                    yield one, path, one.path(BY_PREDICTOR)


def rates_of(times: Sequence[TaskTimes]) -> Iterator[tuple[TaskTimes, Timings]]:
    """Every zoom on one core, for slides per hour."""
    for one in times:
        if one.setup.threads == 1:
            for path in one.paths:
                if path.name not in (BY_PREDICTOR, ALONE):
                    yield one, path


def ratio_record(one: TaskTimes, path: Timings, everything: Timings) -> dict[str, Any]:
    """How many times quicker and cheaper a zoom was, and how many times it should be."""
    zoom, full = path.median, everything.median
    target = TARGETS.get((one.task, one.precision, one.setup.threads), {}).get(path.name)
    return {
        "task": one.task,
        "precision": one.precision,
        "threads": one.setup.threads,
        "way": path.name,
        "patches": zoom.patches,
        "exhaustive_patches": full.patches,
        "seconds": zoom.seconds,
        "exhaustive_seconds": full.seconds,
        "encoding_alone_seconds": one.path(ALONE).median.seconds,
        "times_quicker": full.seconds / zoom.seconds,
        "times_fewer_flops": full.flops / zoom.flops,
        "target": target,
    }


def rate_record(one: TaskTimes, path: Timings) -> dict[str, Any]:
    """Slides per hour of a zoom."""
    return {
        "task": one.task,
        "precision": one.precision,
        "way": path.name,
        "slides_per_hour": 3600 / path.median.seconds,
    }


def _ratio_table(times: Sequence[TaskTimes]) -> Table:
    headers = (
        "data set", "computed in", "way", "patches", "seconds", "everything: patches", "seconds",
        "without the model", "times quicker", "FLOPs ratio", "target",
    )  # fmt: skip
    rows = []
    for one, path, everything in ratios_of(times):
        value = ratio_record(one, path, everything)
        target = value["target"]
        rows.append(
            (
                one.task,
                f"{one.precision}, {one.setup.threads} threads, {one.runtime}",
                path.name,
                f"{value['patches']:,}",
                f"{value['seconds']:.2f}",
                f"{value['exhaustive_patches']:,}",
                f"{value['exhaustive_seconds']:.1f}",
                f"{value['encoding_alone_seconds']:.1f}",
                f"**{value['times_quicker']:.1f}x**",
                f"{value['times_fewer_flops']:.1f}",
                "" if target is None else _verdict(value["times_quicker"], target),
            )
        )
    return Table("Zooming against encoding everything at the highest magnification", headers, rows)


def _slides_table(times: Sequence[TaskTimes]) -> Table:
    rows = []
    for one, path in rates_of(times):
        value = rate_record(one, path)
        rows.append(
            (
                one.task,
                path.name,
                f"{one.precision}, {one.runtime}"
                + ", as it comes" * (one.setup.precision == "auto"),
                f"{path.median.seconds:.2f}",
                f"**{value['slides_per_hour']:.0f}**",
            )
        )
    headers = ("data set", "way", "computed in", "seconds per slide", "slides per hour")
    return Table("One thread", headers, rows)


def _stage_table(times: Sequence[TaskTimes]) -> Table:
    headers = (
        "data set", "computed in", "path", *STAGES, "total", "at the encoder's raw rate",
        "raw patches/s",
    )  # fmt: skip
    rows = []
    for one in times:
        for path in one.paths:
            if path.name == ALONE:
                continue
            sample = path.median
            rows.append(
                (
                    one.task,
                    f"{one.precision}, {one.setup.threads}",
                    path.name,
                    *(f"{sample.stages.get(stage, 0.0):.3f}" for stage in STAGES),
                    f"{sample.seconds:.3f}",
                    f"{sample.patches / one.raw:.3f}",
                    f"{one.raw:.1f}",
                )
            )
    return Table("Where the seconds go", headers, rows)


def _large_table(large: Sequence[LargeTimes]) -> Table:
    headers = (
        "slide", "computed in", "patches", "seconds", "allowed", "open, mask, grid",
        "peak memory of the process",
    )  # fmt: skip
    rows = []
    for one in large:
        is_small = one.peak_gb < MOST_PEAK_GB
        rows.append(
            (
                f"{one.side_px:,} x {one.side_px:,}",
                str(one.setup),
                str(one.sample.patches),
                f"{one.sample.seconds:.2f}",
                f"{one.allowed:.2f}: {_met(one.sample.seconds <= one.allowed)}",
                f"{one.before:.2f} s, under {MOST_BEFORE_SECONDS:g}: "
                f"{_met(one.before < MOST_BEFORE_SECONDS)}",
                f"{one.peak_gb:.2f} GB, under {MOST_PEAK_GB:g}: {_met(is_small)}",
            )
        )
    return Table("A very large slide", headers, rows)


def _notes(times: Sequence[TaskTimes]) -> tuple[str, ...]:
    return (
        "Synthetic slides, made at the task's highest magnification with levels 1, 4, 16. Tissue "
        "is searched as ever; the least share of tissue of a patch is set so that the slide has "
        "exactly the N_1 patches of the task. Files lie in the page cache.",
        "seconds: from the closed file to the answer, median; encoder (ResNet-50 to stage 3, "
        "random weights) loaded and warm. Everything: an ABMIL artefact at the highest "
        "magnification, by the same predictor in the same process, by turns with the zooms. "
        "Without the model: mask, grid and encoding alone.",
        "read: what the encoder waits for pixels. Total has also what is written down of each "
        "answer.",
        f"Slides per hour on one thread: the paper has {PAPER_SLIDES_PER_HOUR} for the two-step "
        f"model with K=8 on BRIGHT; {AIM_SLIDES_PER_HOUR} is the aim.",
        "Allowed for the very large slide: "
        f"{MOST_OVER_ENCODING:g} times what its patches take at the encoder's raw rate, plus 2 s.",
    )[slice(None) if times else slice(-1, None)]


def _verdict(value: float, target: float) -> str:
    return f"{target:g}x: {_met(value >= target)}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"
