"""Row 16, benches: what one training step costs, lean against dense; sizes in, figures out.

Every figure comes from a fresh process: first the growth of its peak memory over one step, then
the time of a step. The matrices of the bag are there before and count for neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from zoommil.benches.isolated import run_isolated
from zoommil.benches.results import BenchResult, Table

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class StepSize:
    """One bag and what is chosen of it."""

    num_rows: int  # N, of the lowest step
    k: int
    ratios: tuple[int, ...]
    num_samples: int = 100
    feature_dim: int = 1024


@dataclass(frozen=True)
class StepCost:
    """What one implementation took for one size."""

    size: StepSize
    form: str
    seconds: float  # median
    peak_growth_bytes: int
    logits: tuple[float, ...] = ()  # of the first step; the forms must agree


SIZES = (
    StepSize(60, 12, (2, 4)),
    StepSize(199, 16, (2, 2)),
    StepSize(2284, 300, (2, 2)),
)
CHECK_21 = StepSize(10_000, 300, (2,), num_samples=500)
BIG = StepSize(50_000, 300, (2,))
MODEL_FORMS = ("dense", "lean", "lean, straight-through")
_MEGABYTE = 1e6


def bench_step(
    *,
    sizes: Sequence[StepSize] = SIZES,
    operator_sizes: Sequence[StepSize] = (CHECK_21, BIG),
    threads: int = 1,
    repeats: int = 3,
    progress: Callable[[StepCost], None] | None = None,
) -> BenchResult:
    """Training steps of ZoomMIL in each form, and the operator alone at the largest sizes."""
    jobs = [(size, form) for size in sizes for form in MODEL_FORMS]
    jobs += [(size, "operator") for size in operator_sizes]
    costs = []
    for size, form in jobs:
        costs.append(measure(size, form, threads=threads, repeats=repeats))
        if progress is not None:
            progress(costs[-1])
    return _result(costs, threads)


def measure(size: StepSize, form: str, *, threads: int = 1, repeats: int = 3) -> StepCost:
    """The cost of one form at one size, in a process of its own."""
    return run_isolated(_measure_here, size, form, threads, repeats)


def _measure_here(size: StepSize, form: str, threads: int, repeats: int) -> StepCost:
    import torch

    from zoommil.machine import peak_memory_bytes, resident_memory_bytes

    torch.set_num_threads(threads)
    # Libraries load and thread pools start on something small, before memory is looked at.
    _prepare(StepSize(8, 2, size.ratios, num_samples=4, feature_dim=16), form)()
    step = _prepare(size, form)
    before = resident_memory_bytes()
    logits = step()
    growth = max(0, peak_memory_bytes() - before)
    # Of one thread the time it computed: what else runs on the machine does not count.
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds = []
    for _ in range(repeats):
        start = clock()
        step()
        seconds.append(clock() - start)
    return StepCost(size, form, median(seconds), growth, logits)


def _prepare(size: StepSize, form: str) -> Callable[[], tuple[float, ...]]:
    return _operator_step(size) if form == "operator" else _model_step(size, form)


def _model_step(size: StepSize, form: str) -> Callable[[], tuple[float, ...]]:
    """Forward, loss and backward of ZoomMIL with three classes, and its first logits."""
    from zoommil.benches.dense_topk import DenseSelector
    from zoommil.models.creation import create_model
    from zoommil.models.zoommil import ZoomMIL

    model = create_model(
        "zoommil",
        feature_dim=size.feature_dim,
        num_classes=3,
        ratios=size.ratios,
        k=size.k,
        num_samples=size.num_samples,
        straight_through=form == "lean, straight-through",
        dropout=0.0,
        seed=0,
    )
    assert isinstance(model, ZoomMIL)
    if form == "dense":
        model.selector = DenseSelector(**asdict(model.selector))
    features = _features(size)

    def step() -> tuple[float, ...]:
        model.zero_grad(set_to_none=True)
        output = model(features)
        model.loss(output, 1).backward()
        return tuple(output.logits.tolist())

    return step


def _operator_step(size: StepSize) -> Callable[[], tuple[float, ...]]:
    """The selection alone, forward and backward to the scores and to the finer matrices."""
    import torch

    from zoommil.models.topk import zoom_in

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(size.num_rows, generator=generator).softmax(0).requires_grad_()
    finer = _features(size)[1:]

    def step() -> tuple[float, ...]:
        chosen = zoom_in(scores, finer, size.k, num_samples=size.num_samples, generator=generator)
        torch.stack([matrix.sum() for matrix in chosen]).sum().backward()
        return ()

    return step


def _features(size: StepSize) -> list[torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(1)
    counts = [size.num_rows]
    for ratio in size.ratios:
        counts.append(counts[-1] * ratio**2)
    return [torch.randn(count, size.feature_dim, generator=generator) for count in counts]


def _result(costs: Sequence[StepCost], threads: int) -> BenchResult:
    steps = [cost for cost in costs if cost.form != "operator"]
    alone = [cost for cost in costs if cost.form == "operator"]
    dense = {cost.size: cost for cost in steps if cost.form == "dense"}
    tables = [_step_table(steps, dense), _operator_table(alone)]
    notes = (
        f"fp32, {threads} thread(s); seconds are medians, with one thread of CPU time; memory is"
        " the growth of the process's peak over the first step, without the bag's own matrices.",
        "A step is forward, loss and backward of the whole model (512 and 256 wide), so it holds"
        " what both forms share: projections, attention and head.",
    )
    return BenchResult(
        name="step",
        title="One training step of ZoomMIL: lean against dense selection",
        command="zoommil bench step",
        tables=tables,
        notes=notes,
        data={"costs": [asdict(cost) for cost in costs]},
    )


def _step_table(costs: Sequence[StepCost], dense: dict[StepSize, StepCost]) -> Table:
    headers = ("N, K, ratios", "form", "seconds", "peak growth, MB", "time", "memory", "difference")
    rows = []
    for cost in costs:
        truth = dense.get(cost.size)
        compared = ("", "", "")
        if truth is not None and cost is not truth:
            gap = max(abs(a - b) for a, b in zip(cost.logits, truth.logits, strict=True))
            is_same_function = cost.form == "lean"
            compared = (
                f"{truth.seconds / cost.seconds:.1f}x less",
                f"{truth.peak_growth_bytes / max(1, cost.peak_growth_bytes):.1f}x less",
                f"{gap:.0e}" if is_same_function else "",
            )
        rows.append(
            (
                _describe(cost.size),
                cost.form,
                f"{cost.seconds:.3f}",
                f"{cost.peak_growth_bytes / _MEGABYTE:.0f}",
                *compared,
            )
        )
    return Table("Training step, S = 100, D = 1024", headers, rows)


def _operator_table(costs: Sequence[StepCost]) -> Table:
    headers = ("N, K, ratios", "S", "seconds", "peak growth, MB")
    rows = [
        (
            _describe(cost.size),
            str(cost.size.num_samples),
            f"{cost.seconds:.3f}",
            f"{cost.peak_growth_bytes / _MEGABYTE:.0f}",
        )
        for cost in costs
    ]
    return Table("The operator alone, lean, D = 1024", headers, rows)


def _describe(size: StepSize) -> str:
    return f"{size.num_rows}, {size.k}, {'-'.join(map(str, size.ratios))}"
