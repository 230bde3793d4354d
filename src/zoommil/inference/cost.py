"""Row 12, cost: what was read and computed comes in; a ledger beside the exhaustive one goes out.

Operations are counted from the networks themselves as their operators run: matrix products and
convolutions. One multiply-accumulate (MAC) is two floating-point operations (FLOPs).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from zoommil.models.model import Model

CHANNELS = 3


@dataclass(frozen=True)
class StepCost:
    """What one step takes; everything here follows from slide, artefact and limits alone.

    Attributes:
        magnification: of the step, None where a bag does not say.
        patches: encoded.
        pixels: shown to the encoder.
        pixels_read: of the file's own levels that went into these; less where the pixels had been
            read for the tissue mask. None for stored features.
        encoder_macs: multiply-accumulates of the encoder; None where a bag does not say which.
        head_macs: multiply-accumulates of the model.
    """

    magnification: float | None
    patches: int
    pixels: int
    pixels_read: int | None
    encoder_macs: int | None
    head_macs: int


@dataclass(frozen=True)
class Cost:
    """What a way of answering takes, step by step and altogether."""

    steps: tuple[StepCost, ...]
    mask_pixels_read: int | None = None

    @property
    def patches(self) -> int:
        """Patches encoded."""
        return sum(step.patches for step in self.steps)

    @property
    def pixels(self) -> int:
        """Pixels shown to the encoder."""
        return sum(step.pixels for step in self.steps)

    @property
    def pixels_read(self) -> int | None:
        """Pixels of the file's levels that were needed, the mask's with them; None: unknown."""
        parts = [self.mask_pixels_read, *(step.pixels_read for step in self.steps)]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    @property
    def bytes_read(self) -> int | None:
        """The same as uncompressed RGB bytes."""
        return None if self.pixels_read is None else self.pixels_read * CHANNELS

    @property
    def macs(self) -> int:
        """Multiply-accumulates of encoder and model."""
        return sum((step.encoder_macs or 0) + step.head_macs for step in self.steps)

    @property
    def flops(self) -> int:
        """Floating-point operations: 2 per multiply-accumulate."""
        return 2 * self.macs

    def to_json(self) -> dict[str, Any]:
        """The steps and their sums."""
        return {
            "steps": [asdict(step) for step in self.steps],
            "mask_pixels_read": self.mask_pixels_read,
            "patches": self.patches,
            "pixels": self.pixels,
            "pixels_read": self.pixels_read,
            "bytes_read": self.bytes_read,
            "macs": self.macs,
            "flops": self.flops,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cost:
        """The cost that :meth:`to_json` gave."""
        return cls(tuple(StepCost(**step) for step in value["steps"]), value["mask_pixels_read"])


@dataclass(frozen=True)
class ExhaustiveCost:
    """The alternative to zooming: every patch of the highest step, as the literature counts.

    ``all_steps`` has every patch of every step, what filling a bag for this artefact takes.
    """

    highest: Cost
    all_steps: Cost

    @property
    def patches(self) -> int:
        """Patches of the highest step."""
        return self.highest.patches

    @property
    def flops(self) -> int:
        """Floating-point operations of the highest step alone: 2 per multiply-accumulate."""
        return self.highest.flops

    def to_json(self) -> dict[str, Any]:
        """Both ledgers."""
        return {"highest": self.highest.to_json(), "all_steps": self.all_steps.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ExhaustiveCost:
        """The cost that :meth:`to_json` gave."""
        return cls(Cost.from_json(value["highest"]), Cost.from_json(value["all_steps"]))


@dataclass(frozen=True)
class Measured:
    """What differs from run to run, kept apart from the answer.

    Attributes:
        seconds: per stage: open, mask, grid, read (the encoder waiting for pixels), encode, head,
            and total.
        peak_memory_bytes: the largest resident size of the process so far.
        compressed_bytes: fetched from the file; None where the reader cannot know.
        pixels_decoded: decoded from the file; depends on what the cache still held.
        files: where slide and artefact lay.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    compressed_bytes: int | None = None
    pixels_decoded: int | None = None
    files: dict[str, str] = field(default_factory=dict)


class Stopwatch:
    """Seconds per stage of one prediction."""

    def __init__(self) -> None:
        """Starts now."""
        self._start = time.perf_counter()
        self._stages: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the block's seconds to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self._stages[name] = self._stages.get(name, 0.0) + seconds

    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def seconds(self) -> dict[str, float]:
        """Every stage and the total, to the microsecond."""
        found = {**self._stages, "total": self.total()}
        return {name: round(value, 6) for name, value in found.items()}


def counted(function: Callable[[], Any]) -> tuple[Any, int]:
    """What a function returns, and the multiply-accumulates that torch spent in it."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    products = {torch.ops.aten.mv: _flops_of_vector, torch.ops.aten.dot: _flops_of_vector}
    with FlopCounterMode(display=False, custom_mapping=products) as counter:
        value = function()
    return value, counter.get_total_flops() // 2


class HeadMacs:
    """The multiply-accumulates of a model's steps, for any number of patches.

    A step is a fixed part and a part per patch, so two counts give them all: exactly for models
    that zoom, nearly for baselines that pad their bags. What was run is counted itself instead.
    """

    def __init__(self, model: Model) -> None:
        """Counts each step of the model on one and on two rows."""
        import torch

        counts = []
        with torch.inference_mode():
            for num_rows in (1, 2):
                counts.append(_counts_of_steps(model, num_rows))
        self.per_patch = tuple(two - one for one, two in zip(*counts, strict=True))
        self.fixed = tuple(one - each for one, each in zip(counts[0], self.per_patch, strict=True))

    def of(self, position: int, num_patches: int) -> int:
        """Multiply-accumulates of one step on that many patches."""
        return self.fixed[position] + self.per_patch[position] * num_patches


def summed(costs: Iterable[Cost]) -> dict[str, int]:
    """Patches, pixels and operations of many predictions, as one row of a report."""
    total = {"patches": 0, "pixels": 0, "pixels_read": 0, "macs": 0, "flops": 0}
    for cost in costs:
        for name in total:
            total[name] += getattr(cost, name) or 0
    return total


def _counts_of_steps(model: Model, num_rows: int) -> list[int]:
    """The count of every step, each on zeros of so many rows."""
    from zoommil.models.model import State

    found = []
    pooled: tuple[Tensor, ...] = ()
    for position, width in enumerate(model.feature_dims):
        rows = model.like.new_zeros((num_rows, width))
        corners = 256 * rows.new_ones(num_rows, 2).cumsum(0).long()
        state = State(position, None, pooled)
        step = partial(model.step, rows, state, coords=corners, k=1)
        output, macs = counted(step)
        pooled = output.state.pooled
        found.append(macs)
    return found


def _flops_of_vector(first: Sequence[int], *_: Any, **__: Any) -> int:
    """Of a matrix, or vector, of this shape times a vector."""
    return 2 * math.prod(first)
