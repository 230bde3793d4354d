"""Row 11, specs: the sections of a run file, each a frozen, strict table with its defaults.

TOML has no null: where something can be off, zero or an empty list means off, and says so here.
Nothing in this module imports torch.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SELECTORS = ("loss", "last", "weighted_f1", "accuracy", "balanced_accuracy", "auroc", "auprc",
             "quadratic_kappa", "brier", "ece")  # fmt: skip


class Section(BaseModel):
    """One table of a run file: frozen, and no key it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSpec(Section):
    """Which slides, where their bags lie, and how they are split."""

    cohort: str = ""
    bags: str = ""
    # A file of `zoommil split` or another tool; empty: the cohort's columns, else a draw.
    split: str = ""
    fold: int = Field(default=0, ge=0)  # which split, where there are several
    val_fraction: float = Field(default=0.15, gt=0, lt=1)
    test_fraction: float = Field(default=0.2, ge=0, lt=1)
    split_seed: int = 0
    keep_sites: bool = False  # no site on both sides of a split
    classes: tuple[str, ...] = ()  # names in order; empty: the labels of the cohort, sorted
    magnifications: tuple[float, ...] = ()  # steps to use; empty: all that the bags have
    memory: Literal["auto", "memory", "mapped"] = "auto"
    allow_absent_classes: bool = False  # a split that lacks a class is an error unless this


class ModelSpec(Section):
    """A model's name and its constructor's arguments; in TOML they stand in one table."""

    name: str = "zoommil"
    arguments: dict[str, Any] = {}


class OptimiserSpec(Section):
    """How weights are moved. ``group_lr`` gives parameters whose name starts so their own rate."""

    name: Literal["adam", "adamw", "radam", "lookahead_radam", "sgd"] = "adam"
    lr: float = Field(default=1e-4, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    decay_vectors: bool = True  # decay 1-d parameters (biases, norms) like the others
    lookahead_alpha: float = Field(default=0.5, gt=0, le=1)
    lookahead_steps: int = Field(default=6, ge=1)
    group_lr: dict[str, float] = {}


class ScheduleSpec(Section):
    """How the learning rate falls. ``plateau`` steps on the validation loss, whatever selects."""

    name: Literal["constant", "plateau", "cosine"] = "plateau"
    factor: float = Field(default=0.8, gt=0, lt=1)
    patience: int = Field(default=5, ge=0)
    warmup_epochs: int = Field(default=0, ge=0)


class TrainingSpec(Section):
    """The loop: how long, in what order, and which epoch is kept."""

    epochs: int = Field(default=100, ge=1)
    batch_bags: int = Field(
        default=1, ge=1
    )  # bags per step; their gradients are accumulated one by one
    weighted_sampler: bool = True  # N / n_class, with replacement
    class_weights: bool = False  # N / (C n_class) in the training loss
    clip_norm: float = Field(default=0.0, ge=0)  # 0: off
    autocast: Literal["auto", "off", "bfloat16", "float16"] = "auto"  # auto: on CUDA only
    # What the best epoch is best in, on validation; strict improvement. "last": the last epoch.
    select: str = "loss"
    checkpoint_every: int = Field(default=1, ge=1)

    @field_validator("select")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in SELECTORS:
            raise ValueError(f"unknown metric {value!r}; one of {', '.join(SELECTORS)}")
        return value


class StoppingSpec(Section):
    """Early stopping on validation, in the metric that selects."""

    patience: int = Field(default=0, ge=0)  # epochs without improvement; 0: train to the end
    min_epochs: int = Field(default=0, ge=0)  # never stop before this many epochs
    ties_improve: bool = False  # an equal epoch resets the count (CLAM), though it is not kept


class EvaluationSpec(Section):
    """What is computed from the chosen epoch."""

    resamples: int = Field(default=1000, ge=0)
    seed: int = 0
    calibrate: bool = True


class LogSpec(Section):
    """Where curves go besides curves.csv."""

    loggers: tuple[Literal["tensorboard", "mlflow"], ...] = ()
