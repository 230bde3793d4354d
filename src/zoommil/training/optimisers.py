"""Row 11, optimisers: a model's parameters and a spec come in, an optimiser and a schedule go out.

Lookahead follows Zhang et al. 2019, algorithm 1: every ``k`` steps of the fast optimiser the slow
weights move the share ``alpha`` of the way to the fast ones, and the fast ones restart there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zoommil.errors import ConfigError
from zoommil.training.specs import OptimiserSpec, ScheduleSpec


class Lookahead(torch.optim.Optimizer):
    """Slow weights that follow a fast optimiser."""

    def __init__(self, fast: torch.optim.Optimizer, *, alpha: float = 0.5, steps: int = 6) -> None:
        """Args: fast: the inner optimiser; alpha: share of the way; steps: fast ones per slow."""
        self.fast, self.alpha, self.steps = fast, alpha, steps
        super().__init__(fast.param_groups, {})
        self.param_groups = fast.param_groups  # one list: schedules move the fast rate
        self.count = 0
        self._slow = [
            [parameter.detach().clone() for parameter in group["params"]]
            for group in self.param_groups
        ]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        """One fast step; every ``steps`` of them the slow weights follow."""
        loss = self.fast.step(closure)  # type: ignore[arg-type]
        self.count += 1
        if self.count % self.steps == 0:
            for group, slow_group in zip(self.param_groups, self._slow, strict=True):
                for parameter, slow in zip(group["params"], slow_group, strict=True):
                    slow.lerp_(parameter, self.alpha)
                    parameter.copy_(slow)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The fast optimiser's state, the slow weights and the count of steps."""
        state = self.fast.state_dict()
        slow = [weights for group in self._slow for weights in group]
        for index, weights in enumerate(slow):
            state["state"].setdefault(index, {})["slow"] = weights
        return state | {"lookahead_count": self.count}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        entries = {index: dict(entry) for index, entry in state_dict["state"].items()}
        slow = [weights for group in self._slow for weights in group]
        for index, weights in enumerate(slow):
            weights.copy_(entries[index].pop("slow"))
        entries = {index: entry for index, entry in entries.items() if entry}
        self.fast.load_state_dict({"state": entries, "param_groups": state_dict["param_groups"]})
        self.param_groups = self.fast.param_groups
        self.count = state_dict["lookahead_count"]


def build_optimiser(model: nn.Module, spec: OptimiserSpec) -> torch.optim.Optimizer:
    """The optimiser of a spec over a model's trainable parameters.

    Raises:
        ConfigError: ``group_lr`` names a prefix that no parameter has.
    """
    groups = parameter_groups(model.named_parameters(), spec)
    if spec.name == "sgd":
        return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.betas[0])
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    kind = kinds.get(spec.name, torch.optim.RAdam)
    # One pass over the weights in place of about ten: a step of ZoomMIL spent a third of its time.
    fused = {"fused": True} if spec.name in kinds else {}
    optimiser = kind(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, **fused)
    if spec.name == "lookahead_radam":
        return Lookahead(optimiser, alpha=spec.lookahead_alpha, steps=spec.lookahead_steps)
    return optimiser


def parameter_groups(
    parameters: Iterable[tuple[str, Tensor]], spec: OptimiserSpec
) -> list[dict[str, Any]]:
    """Parameters grouped by learning rate and decay, each group in the model's own order."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    used: set[str] = set()
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        prefix = max((p for p in spec.group_lr if name.startswith(p)), key=len, default=None)
        used |= {prefix} if prefix is not None else set()
        rate = spec.lr if prefix is None else spec.group_lr[prefix]
        is_decayed = spec.decay_vectors or parameter.ndim > 1
        decay = spec.weight_decay if is_decayed else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    for prefix in spec.group_lr:
        if prefix not in used:
            raise ConfigError(
                f"optimiser.group_lr names {prefix!r}, but no trainable parameter of the model "
                "starts so; name a module of the model, as 'encoder'."
            )
    return [
        {"params": members, "lr": rate, "weight_decay": decay}
        for (rate, decay), members in groups.items()
    ]


def build_schedule(
    optimiser: torch.optim.Optimizer, spec: ScheduleSpec, epochs: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """The schedule of a spec; ``step`` it once an epoch (``plateau`` with the validation loss)."""
    if spec.name == "plateau":
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimiser, "min", factor=spec.factor, patience=spec.patience
        )

    def share(epoch: int) -> float:
        if epoch < spec.warmup_epochs:
            return (epoch + 1) / (spec.warmup_epochs + 1)
        if spec.name == "constant":
            return 1.0
        done = (epoch - spec.warmup_epochs) / max(1, epochs - spec.warmup_epochs)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))

    return torch.optim.lr_scheduler.LambdaLR(optimiser, share)
