"""Row 9, models: one zoom's choice of rows; raw logits and a mask in, scores and rows out.

Rows that are not valid are never chosen while a valid one is left. With fewer valid rows than k,
all valid rows are chosen and no others; with none at all, the one row that scores highest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from zoommil.errors import ModelError
from zoommil.models.scores import default_sigma, normalise_scores
from zoommil.models.topk import JACOBIANS, Selection, hard_topk, select

_KINDS = ("diff", "nondiff", "random_low", "random_high")
_SCHEDULES = ("constant", "linear")


@dataclass(frozen=True)
class Selector:
    """How rows are chosen; the same at every zoom of a model."""

    selection: str = "diff"
    score: str = "softmax"
    sigma: float | None = None  # None: the one that suits the score function
    sigma_schedule: str = "constant"  # "linear": down to 0 as training progresses
    num_samples: int = 100
    jacobian: str = "diagonal"
    baseline: bool = True
    straight_through: bool = True
    explore: float = 0.0  # share of training bags that straight-through shows a perturbed choice
    adaptive_mass: float | None = None  # in evaluation: the fewest rows that hold this attention
    k_min: int = 1  # of adaptive_mass

    def __post_init__(self) -> None:
        default_sigma(self.score)
        _check_choice("selection", self.selection, _KINDS)
        _check_choice("sigma_schedule", self.sigma_schedule, _SCHEDULES)
        _check_choice("jacobian", self.jacobian, JACOBIANS)
        if (self.sigma is not None and self.sigma < 0) or self.num_samples < 1 or self.k_min < 1:
            raise ModelError(
                f"sigma {self.sigma}, num_samples {self.num_samples}, k_min {self.k_min};"
                " expected sigma >= 0 and at least 1 of the others."
            )
        if not 0 <= self.explore <= 1:
            raise ModelError(f"explore is {self.explore}; expected a share from 0 to 1.")
        if self.adaptive_mass is not None and not 0 < self.adaptive_mass <= 1:
            raise ModelError(f"adaptive_mass is {self.adaptive_mass}; expected above 0, at most 1.")

    def sigma_at(self, progress: float) -> float:
        """The noise scale when that fraction of the training is done."""
        sigma = default_sigma(self.score) if self.sigma is None else self.sigma
        return sigma * (1.0 - progress) if self.sigma_schedule == "linear" else sigma

    def scores(
        self, raw: Float[Tensor, " patch"], valid: Bool[Tensor, " patch"] | None
    ) -> Float[Tensor, " patch"]:
        """Scores normalised over the valid rows; the others get the lowest score among these."""
        rows = _candidates(len(raw), valid, raw.device)
        if len(rows) == len(raw):
            return normalise_scores(raw, self.score)
        scores = normalise_scores(raw[rows], self.score)
        return scores.detach().min().expand(len(raw)).index_copy(0, rows, scores)

    def pick(
        self,
        raw: Float[Tensor, " patch"],
        scores: Float[Tensor, " patch"],
        valid: Bool[Tensor, " patch"] | None,
        k: int,
    ) -> Int64[Tensor, " selected"]:
        """The rows of the highest scores, as in evaluation, ascending."""
        rows = _candidates(len(raw), valid, raw.device)
        if valid is not None and not bool(valid.any()):
            k = 1
        if self.adaptive_mass is not None:
            k = self._adapted(raw[rows], k)
        return rows[hard_topk(scores[rows], k)]

    def perturb(
        self,
        scores: Float[Tensor, " patch"],
        valid: Bool[Tensor, " patch"] | None,
        k: int,
        *,
        progress: float,
        generator: torch.Generator,
    ) -> Selection:
        """The differentiable choice of training."""
        rows = _candidates(len(scores), valid, scores.device)
        if valid is not None and not bool(valid.any()):
            k = 1
        sigma = self.sigma_at(progress)
        chosen = select(
            scores[rows],
            k,
            straight_through=self.straight_through,
            rows=self._shown(scores[rows], k, sigma, generator),
            num_samples=self.num_samples,
            sigma=sigma,
            jacobian=self.jacobian,
            baseline=self.baseline,
            generator=generator,
        )
        if len(rows) == len(scores):
            return chosen
        weights = chosen.weights
        if weights is not None:
            wide = weights.new_zeros(len(weights), len(scores))
            weights = wide.index_copy(1, rows, weights)
        return Selection(len(scores), rows[chosen.rows], weights, self.straight_through)

    def draw(
        self,
        num_rows: int,
        valid: Bool[Tensor, " patch"] | None,
        k: int,
        *,
        generator: torch.Generator,
        device: torch.device,
    ) -> Int64[Tensor, " selected"]:
        """k distinct rows uniformly at random, ascending."""
        rows = _candidates(num_rows, valid, device)
        order = torch.randperm(len(rows), generator=generator, device=generator.device)
        return rows[order[:k].sort().values.to(device)]

    def _shown(
        self, scores: Tensor, k: int, sigma: float, generator: torch.Generator
    ) -> Tensor | None:
        """One perturbed choice in place of the best rows, for that share of the bags.

        Starting weights may happen to rank the telling rows last. Shown the best rows alone the
        classifier would then never see one, and could not teach the scores; one perturbed choice
        is nearly random at first and becomes the best rows by itself as scores grow over sigma.
        That takes noise that shrinks with the bag as softmax scores do (methods.md 1.6.4): with
        sigma 0.002 a choice of a thousand rows would stay random for good.
        """
        if not (self.straight_through and self.explore > 0):
            return None
        options = {"generator": generator, "device": scores.device}
        if float(torch.rand((), **options)) >= self.explore:
            return None
        if self.score == "softmax":
            sigma = default_sigma("n_softmax") / len(scores)
        return hard_topk(scores.detach() + sigma * torch.randn(len(scores), **options), k)

    def _adapted(self, raw: Tensor, k_max: int) -> int:
        """The smallest k whose attention reaches adaptive_mass, from k_min to k_max."""
        assert self.adaptive_mass is not None
        mass = raw.detach().double().softmax(dim=0).sort(descending=True).values.cumsum(dim=0)
        enough = int((mass < self.adaptive_mass - 1e-12).sum()) + 1
        return min(max(enough, self.k_min), k_max)


def _candidates(
    num_rows: int, valid: Bool[Tensor, " patch"] | None, device: torch.device
) -> Int64[Tensor, " candidate"]:
    if valid is None or not bool(valid.any()):
        return torch.arange(num_rows, device=device)
    return valid.nonzero()[:, 0]


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ModelError(f"{name} is {value!r}; expected one of {', '.join(allowed)}.")
