"""Row 12, limits: what a prediction may cost comes in; how many patches to zoom into goes out.

Three budgets bound the whole prediction. Patches and floating-point operations are known before
they are spent, so the choice is the same on every machine; seconds are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from zoommil.errors import BudgetError

BoundBy = Literal[
    "model", "k", "max_steps", "budget_patches", "budget_gflops", "budget_seconds",
    "exit_confidence", "attention_mass",
]  # fmt: skip


class Limits(BaseModel):
    """What a prediction may cost and when it may stop; nothing set: as the model was trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    budget_patches: int | None = Field(
        default=None, ge=0, description="The most patches to encode, all magnifications together."
    )
    budget_gflops: float | None = Field(
        default=None, ge=0, description="The most GFLOPs of encoder and model (2 per MAC)."
    )
    budget_seconds: float | None = Field(
        default=None, ge=0, description="The most seconds; measured, so not the same every time."
    )
    exit_confidence: float | None = Field(
        default=None, ge=0, le=1, description="Stop zooming at this calibrated class probability."
    )
    attention_mass: float | None = Field(
        default=None, gt=0, le=1, description="Zoom into the fewest patches holding this attention."
    )
    k: tuple[int, ...] | None = Field(
        default=None, description="Patches to zoom into instead of the model's own, per zoom."
    )
    max_steps: int | None = Field(default=None, ge=1, description="The most magnifications.")

    def to_json(self) -> dict[str, Any]:
        """The limits that are set, as JSON values."""
        return self.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True)
class Bound:
    """What decided how far a prediction looked.

    Attributes:
        by: "model" (its own numbers), a limit's name, or what stopped it early.
        k: how many patches were zoomed into, per zoom made.
        steps_taken: how many of the model's steps were taken.
    """

    by: BoundBy
    k: tuple[int, ...]
    steps_taken: int


@dataclass(frozen=True)
class Price:
    """What a step costs in one budget's unit: ``fixed``, and ``per_patch`` for each patch."""

    fixed: float
    per_patch: float

    def of(self, num_patches: int) -> float:
        """The price of that many patches."""
        return self.fixed + self.per_patch * num_patches


@dataclass(frozen=True)
class Budget:
    """One bound of a prediction: what it is called, how much there is, and what steps cost."""

    by: BoundBy
    amount: float
    unit: str
    prices: tuple[Price, ...]  # one per step


@dataclass(frozen=True)
class Choice:
    """How many patches to zoom into now; 0: stop here. ``by``: what made it less than wanted."""

    k: int
    by: BoundBy | None = None


def check_first_step(budget: Budget, num_patches: int, step: str) -> None:
    """Nothing, or a BudgetError that says what the first step needs."""
    needed = budget.prices[0].of(num_patches)
    if needed > budget.amount:
        raise BudgetError(
            f"{budget.by} is {budget.amount:.6g}, but {step} alone needs {_up(needed)} "
            f"{budget.unit} ({num_patches} patches); give at least {_up(needed)}."
        )


def choose_k(
    budget: Budget, spent: float, position: int, num_rows: int, ks: Sequence[int],
    ratios: Sequence[int],
) -> Choice:  # fmt: skip
    """How many of a step's rows to zoom into so that the rest of the way is within the budget.

    As many zooms as can be paid for with one patch each are made; over these, the model's own
    numbers are shrunk in proportion, no more than needed.

    Args:
        spent: by the steps up to this one, in the budget's unit.
        position: of the step whose rows are chosen.
        num_rows: how many rows there are to choose from.
        ks: wanted numbers of this zoom and all later ones.
        ratios: linear ratios of the same zooms.
    """
    left = budget.amount - spent
    prices = budget.prices[position + 1 :]
    for num_zooms in range(len(ks), 0, -1):
        way = (prices[:num_zooms], ratios[:num_zooms], num_rows)
        chosen = _largest(lambda shrunk, way=way: _price(shrunk, *way) <= left, ks[:num_zooms])
        if chosen is not None:
            is_less = num_zooms < len(ks) or chosen != tuple(ks[:num_zooms])
            return Choice(chosen[0], budget.by if is_less else None)
    return Choice(0, budget.by)


def _price(
    ks: Sequence[int], prices: Sequence[Price], ratios: Sequence[int], num_rows: int
) -> float:
    """What zooms into these numbers of rows cost at most, one after the other."""
    total = 0.0
    for k, price, ratio in zip(ks, prices, ratios, strict=True):
        num_rows = min(k, num_rows) * ratio**2
        total += price.of(num_rows)
    return total


def _largest(
    is_affordable: Callable[[tuple[int, ...]], bool], ks: Sequence[int]
) -> tuple[int, ...] | None:
    """The wanted numbers shrunk by the largest affordable common factor, at least 1 each."""
    shares = sorted({k / wanted for wanted in ks for k in range(1, wanted + 1)})
    candidates = list(dict.fromkeys(_shrunk(ks, share) for share in shares))
    low, high = 0, len(candidates)  # candidates grow, so does their price
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_affordable(candidates[middle]) else (low, middle)
    assert all(a <= b for one, two in pairwise(candidates) for a, b in zip(one, two, strict=True))
    return candidates[low - 1] if low else None


def _shrunk(ks: Sequence[int], share: float) -> tuple[int, ...]:
    return tuple(max(1, math.floor(wanted * share + 1e-9)) for wanted in ks)


def _up(number: float) -> str:
    """A number no smaller than this, short."""
    return f"{math.ceil(number * 1000) / 1000:.10g}"
