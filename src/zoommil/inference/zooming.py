"""Row 12, zooming: a model and a source of features come in; what each step saw comes out.

The loop over the model's public steps: features are asked for row by row as the model chooses
them. What limits a prediction is decided here, between two steps.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from zoommil.errors import BudgetError, ConfigError, PredictionError
from zoommil.inference.cost import HeadMacs, Stopwatch, counted
from zoommil.inference.limits import (
    Bound,
    BoundBy,
    Budget,
    Choice,
    Limits,
    Price,
    check_first_step,
    choose_k,
)
from zoommil.inference.sources import FeatureSource, StepFeatures, check_nesting
from zoommil.models.model import Model, StepOutput, is_confident
from zoommil.units import magnification_label

GIGA = 1e9


@dataclass(frozen=True, eq=False)
class SeenStep:
    """One step that was taken: what was looked at, what the model made of it, what it took."""

    step: int
    found: StepFeatures
    output: StepOutput
    head_macs: int


class Zoom:
    """One prediction under way."""

    def __init__(
        self,
        model: Model,
        source: FeatureSource,
        limits: Limits,
        *,
        temperature: float,
        head: HeadMacs,
        encoder_macs: Sequence[int | None],
        watch: Stopwatch,
    ) -> None:
        """Args: encoder_macs: per step of the source, of one patch; head: the model's own."""
        self._model = limited(model, limits)
        self._source = source
        self._limits = limits
        self._temperature = temperature
        self.head = head
        self._steps = model.takes(len(source.counts))
        self._encoder_macs = [encoder_macs[step] for step in self._steps]
        self._watch = watch
        self._ks = wanted_k(model, limits)
        self._spent_patches = 0
        self._reasons: list[BoundBy] = []
        self._stopped_by: BoundBy | None = None
        self.seen: list[SeenStep] = []
        if model.num_steps > 1:
            check_nesting(source, _ratios(model))

    @property
    def bound(self) -> Bound:
        """What has decided so far how far to look."""
        reasons = [self._stopped_by, *self._reasons, "k" if self._limits.k else None, "model"]
        chosen = [one.output.selected for one in self.seen if one.output.selected is not None]
        return Bound(
            by=next(reason for reason in reasons if reason is not None),
            k=tuple(len(rows) for rows in chosen),
            steps_taken=len(self.seen),
        )

    @property
    def is_finished(self) -> bool:
        """Whether no step will follow."""
        return self._stopped_by is not None or len(self.seen) == len(self._steps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know about how it ended."""
        if self._stopped_by in (None, "exit_confidence") or not self.is_finished:
            return ()
        if getattr(self._model, "step_loss", 0.0):
            return ()
        return (
            f"stopped by {self._stopped_by} after {len(self.seen)} of {len(self._steps)} "
            "magnifications, for which the model was not trained (model.step_loss is 0)",
        )

    def head_macs_of_all(self, step: int) -> int:
        """The model's operations on every patch of a step; 0 where it does not look at it.

        A model of one step is reckoned as if it looked at that step instead of its own.
        """
        count = self._source.counts[step]
        if self._model.num_steps > 1:
            return self.head.of(self._steps.index(step), count)
        if step in self._steps and self.seen:
            return self.seen[0].head_macs
        is_reckoned = step in self._steps or step == len(self._source.counts) - 1
        return self.head.of(0, count) if is_reckoned else 0

    def run(self) -> Iterator[SeenStep]:
        """Take the steps, one after the other; ends where the model or a limit ends it.

        Raises:
            BudgetError: a budget is below what the first step needs.
            SlideReadError: the zoom touched a part of the slide that cannot be decoded.
        """
        state = self._model.start()
        for position, step in enumerate(self._steps):
            rows = None if state.rows is None else state.rows.cpu().numpy()
            num_to_encode = self._source.num_to_encode(step, rows)
            if position == 0:
                for budget in self._budgets(seconds_per_patch=None):
                    check_first_step(budget, num_to_encode, self._label(step))
            start = self._watch.total()
            is_timed = position == 0 and self._limits.budget_seconds is not None
            found = self._source.features(step, rows, self._check_time if is_timed else None)
            self._spent_patches += num_to_encode
            rate = (self._watch.total() - start) / max(1, num_to_encode)
            choice = self._choose(position, found, rate)
            output, macs = self._take(found, state, choice)
            self._note(position, choice, output, found)
            if self._stopped_by or position == len(self._steps) - 1:
                output = replace(output, scores=None, selected=None)
            seen = SeenStep(step, found, output, macs)
            self.seen.append(seen)
            yield seen
            if self._stopped_by:
                return
            state = output.state

    def _take(self, found: StepFeatures, state: Any, choice: Choice) -> tuple[StepOutput, int]:
        """One step of the model, its operations counted."""
        features = torch.from_numpy(found.features).clone()  # torch's alignment: the same rounding
        step = partial(
            self._model.step,
            features,
            state,
            coords=found.coords,
            valid=found.valid,
            k=choice.k or None,
        )
        with self._watch.stage("head"), torch.inference_mode(), on_one_thread(self._model):
            return counted(step)

    def _note(self, position: int, choice: Choice, output: StepOutput, found: StepFeatures) -> None:
        """Remember what limited this step, and whether it was the last."""
        if position == len(self._steps) - 1:
            return
        if choice.k == 0:
            self._stopped_by = choice.by
            return
        if self._limits.max_steps is not None and position + 1 >= self._limits.max_steps:
            self._stopped_by = "max_steps"
            return
        threshold = self._limits.exit_confidence
        if threshold is not None and is_confident(output.logits, threshold, self._temperature):
            self._stopped_by = "exit_confidence"
            return
        if choice.by is not None:
            self._reasons.append(choice.by)
        num_chosen = 0 if output.selected is None else len(output.selected)
        if self._limits.attention_mass and num_chosen < min(choice.k, _num_rows(found)):
            self._reasons.append("attention_mass")

    def _choose(self, position: int, found: StepFeatures, rate: float) -> Choice:
        """How many rows to zoom into after this step: the least that any budget allows."""
        if position >= len(self._steps) - 1:
            return Choice(0)
        best = Choice(self._ks[position])
        for budget in self._budgets(seconds_per_patch=rate):
            choice = choose_k(
                budget,
                self._spent(budget, position, len(found.features)),
                position,
                _num_rows(found),
                self._ks[position:],
                _ratios(self._model)[position:],
            )
            if choice.by is not None and (choice.k < best.k or best.by is None):
                best = choice
        return best

    def _budgets(self, seconds_per_patch: float | None) -> list[Budget]:
        """The budgets that are set; that of seconds only once a rate is known."""
        limits, num_steps = self._limits, len(self._steps)
        budgets = []
        if limits.budget_patches is not None:
            each = (Price(0.0, 1.0),) * num_steps
            budgets.append(Budget("budget_patches", limits.budget_patches, "patches", each))
        if limits.budget_gflops is not None:
            budgets.append(
                Budget("budget_gflops", limits.budget_gflops, "GFLOPs", self._gflops_per_step())
            )
        if limits.budget_seconds is not None and seconds_per_patch is not None:
            each = (Price(0.0, seconds_per_patch),) * num_steps
            budgets.append(Budget("budget_seconds", limits.budget_seconds, "seconds", each))
        return budgets

    def _gflops_per_step(self) -> tuple[Price, ...]:
        if None in self._encoder_macs:
            raise ConfigError(
                "budget_gflops needs to know the encoder, which these bags do not say; use "
                "budget_patches."
            )
        return tuple(
            Price(
                2 * self.head.fixed[position] / GIGA,
                2 * (self.head.per_patch[position] + (macs or 0)) / GIGA,
            )
            for position, macs in enumerate(self._encoder_macs)
        )

    def _spent(self, budget: Budget, position: int, num_rows: int) -> float:
        """What all steps up to this one take of a budget, the model's part of it included."""
        if budget.by == "budget_patches":
            return self._spent_patches
        if budget.by == "budget_seconds":
            return self._watch.total()
        macs = [one.head_macs for one in self.seen] + [self.head.of(position, num_rows)]
        patches = [one.found.num_encoded for one in self.seen]
        patches.append(self._spent_patches - sum(patches))
        encoder = sum(
            (each or 0) * count for each, count in zip(self._encoder_macs, patches, strict=False)
        )
        return 2 * (sum(macs) + encoder) / GIGA

    def _check_time(self, done: int, num_patches: int, seconds: float) -> None:
        """After the first patches: whether the first step will fit into the seconds."""
        budget = self._limits.budget_seconds
        assert budget is not None
        needed = self._watch.total() + seconds / max(1, done) * (num_patches - done)
        if needed > budget:
            raise BudgetError(
                f"budget_seconds is {budget:g}, but {self._label(self._steps[0])} alone needs "
                f"about {needed:.2g} seconds here ({num_patches} patches); give more than that."
            )

    def _label(self, step: int) -> str:
        magnification = self._source.magnifications[step]
        return f"step {step}" if magnification is None else magnification_label(magnification)


def limited(model: Model, limits: Limits) -> Model:
    """The model with its choice of rows as the limits want it; weights are shared.

    Raises:
        PredictionError: a limit that needs a model which zooms, or one trained to stop early.
    """
    if model.num_steps == 1:
        for name in ("exit_confidence", "attention_mass", "k"):
            if getattr(limits, name) is not None:
                raise PredictionError(
                    f"{name} was given, but this model looks at one magnification only and does "
                    "not zoom. Leave it out."
                )
        return model
    if limits.exit_confidence is not None and not getattr(model, "step_loss", 0.0):
        raise PredictionError(
            "exit_confidence was given, but the model was not trained to answer after every step. "
            "Train with model.step_loss above 0 (0.3), or leave it out."
        )
    if limits.attention_mass is None:
        return model
    changed: Any = copy.copy(model)  # modules and weights stay those of the model itself
    changed.selector = replace(changed.selector, adaptive_mass=limits.attention_mass)
    return changed


def wanted_k(model: Model, limits: Limits) -> tuple[int, ...]:
    """How many rows to zoom into per zoom, before any budget.

    Raises:
        ConfigError: not one positive number, or one per zoom.
    """
    own: tuple[int, ...] = getattr(model, "k", ())
    if limits.k is None or not own:
        return own
    given = limits.k * len(own) if len(limits.k) == 1 else limits.k
    if len(given) != len(own) or min(given) < 1:
        raise ConfigError(
            f"k is {', '.join(map(str, limits.k))}; expected a number from 1, or one for each of "
            f"{len(own)} zooms."
        )
    return given


@contextlib.contextmanager
def on_one_thread(model: Model) -> Iterator[None]:
    """Inside, the model computes on one thread of the CPU: sums round alike however many there are.

    It is a thousandth of the encoder's work; the encoder has its own threads.
    """
    if model.like.device.type != "cpu":
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _num_rows(found: StepFeatures) -> int:
    """How many rows there are to choose from."""
    return len(found.features) if found.valid is None else max(1, int(np.sum(found.valid)))


def _ratios(model: Model) -> tuple[int, ...]:
    return tuple(getattr(model, "ratios", ()))
