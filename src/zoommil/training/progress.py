"""Row 11, progress: what a training run says of itself while it goes; a callback takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """Where a run is now. ``stage`` is "reading bags", "training", "validating" or "epoch"."""

    stage: str
    done: int
    total: int
    epoch: int = 0
    epochs: int = 0
    train_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)  # validation, at the end of an epoch
    is_best: bool = False


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class EpochRecord:
    """One row of the curves. Nothing in it depends on the clock."""

    epoch: int
    lr: float
    train_loss: float
    metrics: dict[str, float | None]  # validation: loss and every scalar metric; None: undefined
    is_best: bool
