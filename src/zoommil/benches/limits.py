"""Row 16, bench limits: what this machine can compute at most, and how far ``predict`` is from it.

Peaks are those of matrix products and of convolutions as torch computes them; then the encoder
alone on every runtime; then predictions. Each is measured in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from zoommil.benches.isolated import pinned, run_isolated
from zoommil.benches.paper_tasks import BRIGHT, PATCH_PX, Task
from zoommil.benches.predict import Progress, run_task, threads_words
from zoommil.benches.predict_runs import ENCODER, WEIGHTS, Setup, TaskTimes, raw_speed
from zoommil.benches.results import BenchResult, Table
from zoommil.benches.task_slides import TaskSlide
from zoommil.machine import num_cores

PRECISIONS = ("fp32", "bf16")
RUNTIMES = ("torch", "openvino")
MATRIX_SIDES = (1024, 2048, 4096)
CONVOLUTIONS = ((64, 64, 3), (128, 32, 3), (256, 16, 3), (256, 64, 1), (1024, 16, 1))
"""Channels, side and kernel of convolutions like those of the encoder."""
BATCH = 8
GIGA = 1e9


@dataclass(frozen=True)
class Peak:
    """The most that was computed per second on so many threads, in GFLOP/s (2 per MAC)."""

    precision: str
    threads: int
    matrix_product: float
    convolution: float

    @property
    def gflops(self) -> float:
        """The better of both."""
        return max(self.matrix_product, self.convolution)


@dataclass(frozen=True)
class Alone:
    """The encoder alone, on pixels in memory."""

    runtime: str
    precision: str
    threads: int
    patches_per_second: float


def bench_limits(
    work: Path,
    *,
    threads: int | None = None,
    encoder_name: str = ENCODER,
    task: Task = BRIGHT,
    slide: TaskSlide | None = None,
    num_patches: int = 128,
    matrix_sides: Sequence[int] = MATRIX_SIDES,
    progress: Progress | None = None,
) -> BenchResult:
    """Peaks, the encoder alone and predictions, on one thread and on all cores.

    Args:
        work: where slides are kept between runs.
        threads: measure with so many only.
        encoder_name: with random weights.
        task: whose slide predictions are made of.
        num_patches: patches of one measurement of the encoder.
        matrix_sides: of the products that are tried.
    """
    counts = sorted({1, num_cores()}) if threads is None else [threads]
    peaks, alone, times = [], [], []
    for count in counts:
        for precision in PRECISIONS:
            if progress is not None:
                progress(f"{precision}, {count} threads")
            with pinned(count):
                found = run_isolated(measure_peak, precision, matrix_sides)
                peaks.append(Peak(precision, count, *found))
                for runtime in _installed():
                    speed = run_isolated(
                        encoder_speed, runtime, precision, encoder_name, num_patches
                    )
                    alone.append(Alone(runtime, precision, count, speed))
            setup = Setup(precision, count, has_exhaustive=False)
            times.append(run_task(task, work, setup, 1, encoder_name, slide))
    return _page(peaks, alone, times, encoder_name, threads)


def measure_peak(precision: str, matrix_sides: Sequence[int]) -> tuple[float, float]:
    """The best GFLOP/s of matrix products and of convolutions in this process."""
    import torch

    from zoommil.machine import keep_freed_memory

    keep_freed_memory()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    with torch.inference_mode():
        products = max(_best(*one) for one in _products(matrix_sides, dtype))
        convolutions = max(_best(*one) for one in _convolutions(dtype))
    return products, convolutions


def encoder_speed(runtime: str, precision: str, name: str, num_patches: int) -> float:
    """Patches per second of an encoder on one runtime, the better of two runs."""
    import numpy as np

    from zoommil import load_encoder

    options = {"weights": WEIGHTS, "precision": precision, "runtime": runtime, "device": "cpu"}
    encoder = load_encoder(name, **options)  # pyright: ignore[reportArgumentType]
    encoder.encode(np.zeros((1, PATCH_PX, PATCH_PX, 3), np.uint8))
    return max(raw_speed(encoder, num_patches) for _ in range(2))


def _products(sides: Sequence[int], dtype) -> Iterator[tuple[Callable[[], object], int]]:
    """Square matrix products with their operations."""
    import torch

    for side in sides:
        a, b = torch.randn(side, side).to(dtype), torch.randn(side, side).to(dtype)
        out = torch.empty_like(a)
        yield (lambda a=a, b=b, out=out: torch.mm(a, b, out=out)), 2 * side**3


def _convolutions(dtype) -> Iterator[tuple[Callable[[], object], int]]:
    """Convolutions of a batch with their operations."""
    import torch
    from torch.nn import functional

    for channels, side, kernel in CONVOLUTIONS:
        pixels = torch.randn(BATCH, channels, side, side).to(dtype)
        weight = torch.randn(channels, channels, kernel, kernel).to(dtype)
        pixels = pixels.to(memory_format=torch.channels_last)
        weight = weight.to(memory_format=torch.channels_last)
        macs = BATCH * side**2 * channels**2 * kernel**2
        padding = kernel // 2
        yield (
            lambda x=pixels, w=weight, p=padding: functional.conv2d(x, w, padding=p),
            2 * macs,
        )


def _best(function: Callable[[], object], operations: int, least_seconds: float = 0.5) -> float:
    """GFLOP/s of the quickest call within some time."""
    function()
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < least_seconds:
        before = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - before)
    return operations / best / GIGA


def _installed() -> list[str]:
    from zoommil.encoders.runtime import RUNTIMES as FAMILIES

    return [name for name in RUNTIMES if FAMILIES.load(name).is_available()]


def _page(
    peaks: Sequence[Peak],
    alone: Sequence[Alone],
    times: Sequence[TaskTimes],
    encoder_name: str,
    threads: int | None,
) -> BenchResult:
    from zoommil.benches.flops import patch_macs

    option = f" --threads {threads}" if threads is not None else ""
    gflop = 2 * patch_macs(encoder_name) / GIGA
    by_setting = {(peak.threads, peak.precision): peak for peak in peaks}
    data = {
        "gflop_per_patch": gflop,
        "peaks": [asdict(one) for one in peaks],
        "encoder_alone": [
            {**asdict(one), "share_of_peak": _share(one, by_setting, gflop)} for one in alone
        ],
        "predict": [
            {
                "task": one.task,
                "precision": one.precision,
                "threads": one.setup.threads,
                "runtime": one.runtime,
                "way": path.name,
                "patches_per_second": path.median.patches / path.median.seconds,
                "share_of_encoder": path.median.patches / path.median.seconds / one.raw,
                "share_of_peak": path.median.flops
                / path.median.seconds
                / GIGA
                / by_setting[one.setup.threads, one.precision].gflops,
            }
            for one in times
            for path in one.paths
        ],
    }
    return BenchResult(
        name="-".join(["limits", *threads_words(threads)]),
        title="What this machine can compute, and what predictions reach",
        command=f"zoommil bench limits{option}",
        tables=[
            _peak_table(peaks),
            _alone_table(data["encoder_alone"], gflop, encoder_name),
            _predict_table(data["predict"]),
        ],
        notes=(
            "Peaks: the quickest of repeated square matrix products and of convolutions like the "
            "encoder's (batch 8, channels last), as torch computes them, 2 FLOPs per MAC.",
            f"Encoder: {gflop:.3f} GFLOP for one patch of {PATCH_PX} px. Shares are of the better "
            "peak on as many threads in the same precision.",
            "Predictions: from the closed file to the answer, mask and model included; of the "
            "encoder alone: measured by turns with them, in the same process.",
        ),
        data=data,
    )


def _share(one: Alone, peaks: dict[tuple[int, str], Peak], gflop: float) -> float:
    return one.patches_per_second * gflop / peaks[one.threads, one.precision].gflops


def _peak_table(peaks: Sequence[Peak]) -> Table:
    rows = [
        (
            peak.precision,
            str(peak.threads),
            f"{peak.matrix_product:.0f}",
            f"{peak.convolution:.0f}",
        )
        for peak in peaks
    ]
    return Table("Peaks, GFLOP/s", ("precision", "threads", "matrix product", "convolution"), rows)


def _alone_table(alone: Sequence[dict], gflop: float, encoder_name: str) -> Table:
    rows = [
        (
            one["runtime"],
            one["precision"],
            str(one["threads"]),
            f"{one['patches_per_second']:.1f}",
            f"{one['patches_per_second'] * gflop:.0f}",
            f"{one['share_of_peak']:.0%}",
        )
        for one in alone
    ]
    headers = ("runtime", "precision", "threads", "patches/s", "GFLOP/s", "of the peak")
    return Table(f"The encoder alone ({encoder_name})", headers, rows)


def _predict_table(predictions: Sequence[dict]) -> Table:
    rows = [
        (
            one["task"],
            one["way"],
            f"{one['precision']}, {one['runtime']}",
            str(one["threads"]),
            f"{one['patches_per_second']:.1f}",
            f"{one['share_of_encoder']:.0%}",
            f"{one['share_of_peak']:.0%}",
        )
        for one in predictions
    ]
    headers = (
        "data set", "way", "computed in", "threads", "patches/s", "of the encoder alone",
        "of the peak",
    )  # fmt: skip
    return Table("Predictions from pixels", headers, rows)
