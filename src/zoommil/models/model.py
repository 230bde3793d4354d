"""Row 9, models: the contract of every model; a bag's feature matrices in, a MILOutput out.

A model is taken through a bag step by step, lowest magnification first:

    state = model.start()
    for step in model.takes(num_bag_steps):        # (0, 1, ..) for ZoomMIL, one for a baseline
        rows = state.rows                          # None: every row of this step of the bag
        output = model.step(features_of(step, rows), state, coords=..., valid=...)
        state = output.state

`forward` is that loop over a bag whose features are all known; inference runs the same loop and
encodes the rows as they are asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from zoommil.errors import ModelError
from zoommil.models.inputs import as_coords, as_matrix, as_valid, dims_per_step
from zoommil.models.noise import NoiseSource


@dataclass(frozen=True)
class State:
    """Where a model stands in a bag: what it keeps from one step to the next."""

    position: int = 0  # how many steps were taken
    rows: Int64[Tensor, " patch"] | None = None  # the bag's rows to give next; None: all of them
    pooled: tuple[Float[Tensor, " embed"], ...] = ()  # one vector per step taken (g of the paper)


@dataclass(frozen=True)
class StepOutput:
    """What one step gave; rows are rows of the bag at this step, ascending."""

    state: State
    logits: Float[Tensor, " class"]  # the answer if it stopped here
    attention: Float[Tensor, " patch"]  # sums to 1 over the valid rows, 0 on the others
    rows: Int64[Tensor, " patch"]  # what was seen, in the order of attention and scores
    scores: Float[Tensor, " patch"] | None = None  # what selected; None where nothing was scored
    selected: Int64[Tensor, " selected"] | None = None  # None at the last step
    selection: Any = None  # zoommil.models.topk.Selection, while training with a gradient
    extras: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class MILOutput:
    """A model's answer for one bag. Entry i of each tuple belongs to the bag's step `steps[i]`."""

    logits: Float[Tensor, " class"]
    attention: tuple[Tensor, ...]  # one (rows seen,) per step taken
    scores: tuple[Tensor, ...]  # one (rows seen,) per step that scored its rows to select
    selected: tuple[Tensor, ...]  # ascending rows of the bag's step, per step but the last
    rows: tuple[Tensor, ...]  # which rows of the bag's step were seen, in the order of attention
    steps: tuple[int, ...]
    step_logits: tuple[Tensor, ...]  # the answer after each step; the last one is `logits`
    auxiliary_loss: Tensor | None = None  # added to the loss as it is
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # a model's own, for its loss

    @classmethod
    def of(cls, outputs: Sequence[StepOutput], steps: Sequence[int]) -> MILOutput:
        """The outputs of all steps taken as one answer."""
        return cls(
            logits=outputs[-1].logits,
            attention=tuple(output.attention for output in outputs),
            # A selection that was never followed (an early exit) is not part of the answer.
            scores=tuple(one.scores for one in outputs[:-1] if one.scores is not None),
            selected=tuple(one.selected for one in outputs[:-1] if one.selected is not None),
            rows=tuple(output.rows for output in outputs),
            steps=tuple(steps[: len(outputs)]),
            step_logits=tuple(output.logits for output in outputs),
            extras=outputs[-1].extras,
        )


def confidence(logits: Float[Tensor, " class"], temperature: float = 1.0) -> float:
    """The highest class probability after temperature scaling."""
    return float((logits.detach().float() / temperature).softmax(dim=0).max())


def is_confident(
    logits: Float[Tensor, " class"], threshold: float, temperature: float = 1.0
) -> bool:
    """Whether to stop at this step. A threshold of 1 never stops, whatever rounding does."""
    return threshold < 1.0 and confidence(logits, temperature) >= threshold


class Model(nn.Module, ABC):
    """What every model can do. Members are rows of zoommil.models.creation's registry."""

    settings: Mapping[str, Any] = {}  # what create_model was called with, all defaults resolved

    def __init__(
        self, feature_dims: Sequence[int], num_classes: int, *, standardise: bool, seed: int | None
    ) -> None:
        """Args: feature_dims: widths of the steps it takes; seed: of its own random draws."""
        super().__init__()
        if num_classes < 2:
            raise ModelError(f"num_classes is {num_classes}; expected at least 2.")
        self.num_classes = num_classes
        self.feature_dims = tuple(feature_dims)
        self.standardise = standardise
        self.noise = NoiseSource(seed)
        self.progress = 0.0
        if standardise:
            for position, width in enumerate(self.feature_dims):
                self.register_buffer(f"feature_mean_{position}", torch.zeros(width))
                self.register_buffer(f"feature_std_{position}", torch.ones(width))

    @property
    def num_steps(self) -> int:
        """How many steps it takes."""
        return len(self.feature_dims)

    @property
    def like(self) -> Tensor:
        """A parameter: its device and dtype are those of the computation."""
        return next(self.parameters())

    @abstractmethod
    def takes(self, num_bag_steps: int) -> tuple[int, ...]:
        """Which steps of a bag of that many it takes, in order. Raises ModelError if it cannot."""

    def start(self) -> State:
        """The state before the first step."""
        return State()

    @abstractmethod
    def step(
        self,
        features: Any,
        state: State,
        *,
        coords: Any = None,
        valid: Any = None,
        k: int | None = None,
    ) -> StepOutput:
        """The outcome of the next step, given the features of the rows `state.rows` of the bag.

        Args: features: (rows, width) array or tensor; coords: (rows, 2) level-0 corners; valid:
        (rows,) bool; k: how many rows to zoom into instead of the model's own number.
        """

    @abstractmethod
    def forward(
        self,
        features: Sequence[Any],
        coords: Sequence[Any] | None = None,
        valid: Sequence[Any] | None = None,
    ) -> MILOutput:
        """The answer for one bag: per step of the bag one (rows, width) array or tensor."""

    def loss(
        self, output: MILOutput, label: int | Tensor, class_weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """The training loss of one bag: cross-entropy, times the weight of the bag's class."""
        loss = self.cross_entropy(output.logits, label, class_weights)
        return loss if output.auxiliary_loss is None else loss + output.auxiliary_loss

    @staticmethod
    def cross_entropy(
        logits: Float[Tensor, " class"], label: int | Tensor, class_weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """Cross-entropy of one bag in float32, times its class's weight."""
        target = torch.as_tensor(label, device=logits.device, dtype=torch.long).reshape(())
        loss = functional.cross_entropy(logits.float(), target)
        return loss if class_weights is None else loss * class_weights[target]

    def set_standardisation(self, mean: Sequence[Any], std: Sequence[Any]) -> None:
        """Store each taken step's feature mean and standard deviation, from training bags only."""
        if not self.standardise:
            raise ModelError("this model was made without standardise=True; make it with it.")
        if len(mean) != self.num_steps or len(std) != self.num_steps:
            raise ModelError(f"expected {self.num_steps} means and deviations, one per step taken.")
        for position, (one_mean, one_std) in enumerate(zip(mean, std, strict=True)):
            deviation = torch.as_tensor(one_std)
            # A constant feature stays at zero instead of being blown up.
            deviation = torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation))
            self.get_buffer(f"feature_mean_{position}").copy_(torch.as_tensor(one_mean))
            self.get_buffer(f"feature_std_{position}").copy_(deviation)

    def checked(self, features: Any, position: int) -> Float[Tensor, "patch feature"]:
        """One step's features as a finite matrix of the right width, standardised if asked."""
        matrix = as_matrix(features, self.feature_dims[position], position, self.like)
        if not self.standardise:
            return matrix
        mean = self.get_buffer(f"feature_mean_{position}")
        return (matrix - mean) / self.get_buffer(f"feature_std_{position}")

    def set_progress(self, fraction: float) -> None:
        """Tell the model how far training is, 0 to 1; only schedules of its own listen."""
        if not 0.0 <= fraction <= 1.0:
            raise ModelError(f"progress is {fraction}; expected a fraction from 0 to 1.")
        self.progress = fraction

    def seed_noise(self, seed: int) -> None:
        """Restart the model's own random draws (selection noise, sampling)."""
        self.noise.seed(seed)

    def get_extra_state(self) -> Tensor:
        """The state of the model's own random draws, part of state_dict as a uint8 tensor."""
        return self.noise.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the model's own random draws where that state was taken."""
        self.noise.set_state(state)


@dataclass(frozen=True)
class Answer:
    """What a single-step model makes of one matrix."""

    logits: Float[Tensor, " class"]
    attention: Float[Tensor, " patch"]  # non-negative, sums to 1, 0 where not valid
    extras: Mapping[str, Tensor] = field(default_factory=dict)


class SingleStepModel(Model):
    """A baseline: it sees every patch of one step of the bag. Members write `answer` only."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Args: ratios: of the bag's steps, may be left out; at: index of the step it takes."""
        num_widths = 1 if isinstance(feature_dim, int) else len(feature_dim)
        widths = dims_per_step(feature_dim, num_widths)
        num_known = max(num_widths, len(ratios) + 1 if ratios else 1)
        if (ratios or num_widths > 1) and not -num_known <= at < num_known:
            raise ModelError(f"at is {at}; expected an index of one of {num_known} steps.")
        width = widths[at] if num_widths > 1 else widths[0]
        super().__init__((width,), num_classes, standardise=standardise, seed=seed)
        self.at = at
        self.ratios = tuple(ratios)

    @abstractmethod
    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """The model's answer. coords: level-0 (x, y) corners or None; valid: None = all are."""

    def takes(self, num_bag_steps: int) -> tuple[int, ...]:
        """The one step it takes, counted from the lowest."""
        if not -num_bag_steps <= self.at < num_bag_steps:
            raise ModelError(
                f"the model takes step {self.at} of a bag; this bag has {num_bag_steps} steps."
            )
        return (self.at % num_bag_steps,)

    def step(
        self,
        features: Any,
        state: State,
        *,
        coords: Any = None,
        valid: Any = None,
        k: int | None = None,  # noqa: ARG002 (nothing is selected)
    ) -> StepOutput:
        """The one step there is; every row counts, `k` is ignored."""
        matrix = self.checked(features, 0)
        corners = as_coords(coords, len(matrix), self.at, matrix)
        mask = as_valid(valid, len(matrix), self.at, matrix)
        if mask is not None and not bool(mask.any()):
            raise ModelError(f"none of the {len(matrix)} patches of step {self.at} is valid.")
        answer = self.answer(matrix, corners, mask)
        rows = torch.arange(len(matrix), device=matrix.device) if state.rows is None else state.rows
        return StepOutput(
            state=State(position=1),
            logits=answer.logits,
            attention=answer.attention,
            rows=rows,
            extras=answer.extras,
        )

    def forward(
        self,
        features: Sequence[Any],
        coords: Sequence[Any] | None = None,
        valid: Sequence[Any] | None = None,
    ) -> MILOutput:
        """The answer for one bag, from its step `at`."""
        (step,) = self.takes(len(features))
        output = self.step(
            features[step],
            self.start(),
            coords=None if coords is None else coords[step],
            valid=None if valid is None else valid[step],
        )
        return MILOutput.of((output,), (step,))
