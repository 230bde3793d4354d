"""Row 13, costs: predictions of one or more models come in; what a slide took goes out, in rows.

Everything is the mean of a slide. The exhaustive path is that of the highest magnification alone,
as in the literature; the sum over all magnifications stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoommil.inference.cost import Cost
from zoommil.inference.prediction import Prediction
from zoommil.reports.summary import Summary, number
from zoommil.units import magnification_label

_STAGES = {
    "open": "opening",
    "mask": "finding tissue",
    "grid": "cutting patches",
    "read": "waiting for pixels",
    "encode": "encoding",
    "head": "the model itself",
}


@dataclass(frozen=True)
class CostRow:
    """One way of answering, ready to be written; "–" where a figure is not known."""

    name: str
    right: str
    patches: str
    pixels: str
    gflops: str
    seconds: str


@dataclass(frozen=True)
class StepRow:
    """One magnification: patches encoded of all that there are, and the share."""

    label: str
    patches: str
    every: str
    share: float


@dataclass(frozen=True)
class CostSection:
    """What a slide took, beside other models and beside encoding everything."""

    rows: tuple[CostRow, ...]
    steps: tuple[StepRow, ...]
    stages: str


def cost_section(
    predictions: Sequence[Prediction],
    summary: Summary,
    rivals: Sequence[Sequence[Prediction]] = (),
) -> CostSection:
    """The section of a model's predictions; rivals in the summary's order."""
    models = (summary.first, *summary.rivals)
    answers = (predictions, *rivals)
    rows = [
        CostRow(
            name=model.name,
            right="–" if model.right is None else f"{model.right} of {model.num_labelled}",
            patches=number(model.patches),
            pixels=_megapixels([one.cost for one in found]),
            gflops=number(model.gflops),
            seconds="–" if model.seconds is None else f"{model.seconds:.2f}",
        )
        for model, found in zip(models, answers, strict=True)
    ]
    rows.append(
        _exhaustive("every patch of the highest magnification",
                    [one.exhaustive_cost.highest for one in predictions])
    )  # fmt: skip
    rows.append(
        _exhaustive("every patch of all magnifications",
                    [one.exhaustive_cost.all_steps for one in predictions])
    )  # fmt: skip
    return CostSection(tuple(rows), tuple(_steps(predictions)), _stages(predictions))


def _exhaustive(name: str, costs: Sequence[Cost]) -> CostRow:
    patches = float(np.mean([cost.patches for cost in costs]))
    gflops = float(np.mean([cost.flops / 1e9 for cost in costs]))
    return CostRow(name, "–", number(patches), _megapixels(costs), number(gflops), "–")


def _megapixels(costs: Sequence[Cost]) -> str:
    """Millions of the file's pixels that were needed; "–" where bags were predicted from."""
    known = [cost.pixels_read for cost in costs if cost.pixels_read is not None]
    return number(float(np.mean(known)) / 1e6) if known else "–"


def _steps(predictions: Sequence[Prediction]) -> list[StepRow]:
    """Every magnification that some slide has patches of."""
    rows = []
    for position in range(max(len(one.exhaustive_cost.all_steps.steps) for one in predictions)):
        pairs = [_counts(one, position) for one in predictions]
        read, every = (float(np.mean(column)) for column in zip(*pairs, strict=True))
        label = _label(predictions, position)
        rows.append(StepRow(label, number(read), number(every), read / every if every else 0.0))
    return rows


def _counts(prediction: Prediction, step: int) -> tuple[int, int]:
    """Patches encoded, and all there are, at one step of the grid."""
    taken = zip(prediction.steps, prediction.cost.steps, strict=True)
    read = {seen.step: cost.patches for seen, cost in taken}
    every = prediction.exhaustive_cost.all_steps.steps
    return read.get(step, 0), every[step].patches if step < len(every) else 0


def _label(predictions: Sequence[Prediction], step: int) -> str:
    """The magnification of a step of the grid, as the first slide that knows it says."""
    for one in predictions:
        steps = one.exhaustive_cost.all_steps.steps
        magnification = steps[step].magnification if step < len(steps) else None
        if magnification is not None:
            return magnification_label(magnification)
    return f"step {step}"


def _stages(predictions: Sequence[Prediction]) -> str:
    """Where the seconds went, in words; "" where they were not measured."""
    measured = [one.measured.seconds for one in predictions if one.measured.seconds.get("total")]
    if not measured:
        return ""
    total = sum(row["total"] for row in measured)
    shares = {name: sum(row.get(name, 0.0) for row in measured) / total for name in _STAGES}
    parts = [f"{_STAGES[name]} {share:.0%}" for name, share in shares.items() if share >= 0.005]
    return f"Of the seconds: {', '.join(parts)}." if parts else ""
