"""Row 9, models: ZoomMIL; a bag's matrices of all steps in, an answer and where it looked out.

The paper is Thandiackal et al., "Differentiable Zooming for Multiple Instance Learning on
Whole-Slide Images" (ECCV 2022). Of each step: h = ReLU(W X), attention a = softmax(GA(h)),
pooled g = a^T h; but at the last, scores s = score(GA'(h)) choose the k rows whose descendants
make up all deeper steps. The answer is head(g_1 + ... + g_M). One step alone is ABMIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from zoommil.errors import ModelError
from zoommil.models.attention import (
    ClassifierHead,
    GatedAttention,
    Projections,
    masked_softmax,
)
from zoommil.models.full_bag import FullBag
from zoommil.models.inputs import as_valid, dims_per_step
from zoommil.models.model import MILOutput, Model, State, StepOutput, is_confident
from zoommil.models.selector import Selector
from zoommil.models.topk import Selection


class ZoomMIL(Model):
    """Attention pooling at every step, and a learned choice of where to look closer."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        k: int | Sequence[int] = 12,
        embed_dim: int = 512,
        attention_dim: int = 256,
        attention_depth: int = 1,
        dropout: float = 0.25,
        score_dropout: bool = True,
        projection: str = "separate",
        head: str = "linear",
        head_dim: int = 256,
        aggregation: str = "sum",
        attention: str = "dual",
        selection: str = "diff",
        nondiff_scores: str = "aux",
        score: str = "softmax",
        sigma: float | None = None,
        sigma_schedule: str = "constant",
        num_samples: int = 100,
        jacobian: str = "diagonal",
        baseline: bool = True,
        straight_through: bool = True,
        explore: float | None = None,
        step_loss: float = 0.0,
        adaptive_mass: float | None = None,
        k_min: int = 1,
        standardise: bool = False,
        eval_seed: int = 0,
        seed: int | None = None,
    ) -> None:
        """A ZoomMIL of len(ratios) + 1 steps.

        Args:
            k: rows to zoom into (K of the paper), one number or one per zoom.
            embed_dim: width after the projection. attention_dim: hidden width of attention.
            attention_depth: 2 gives both branches of the attention a layer of their own first.
            dropout: after the projection and in the attention; score_dropout=False scores without.
            projection: "separate", or "shared" by all steps but for a bias.
            head: "linear", or "mlp" with hidden width head_dim.
            aggregation: "sum" of the pooled vectors, "concat", or "last" step alone.
            attention: "dual" has weights of its own for selection, "single" selects by pooling's.
            selection: "diff"; or the paper's ablations "nondiff" (hard, untrained; by the scores
                of "aux", or of "pool"), "random_low" rows, "random_high" children of any rows.
            score, sigma, sigma_schedule, num_samples, jacobian, baseline, straight_through:
                see zoommil.models.scores, .selector and .topk.
            explore: share of the training bags that straight-through shows one perturbed choice
                in place of the best rows. None: all where there is dropout; without dropout
                none, so that training then sees exactly what evaluation sees.
            step_loss: weight of the loss of every earlier step's answer, for early exit.
            adaptive_mass, k_min: in evaluation choose the fewest rows that hold this attention.
            standardise: features by statistics that the trainer sets.
            eval_seed: of random choices in evaluation, which are the same every time.
            seed: of the selection's noise; None takes one from torch's global generator.
        """
        self.ratios = tuple(int(ratio) for ratio in ratios)
        if any(ratio < 2 for ratio in self.ratios):
            raise ModelError(f"ratios are {list(ratios)}; expected whole numbers of at least 2.")
        num_steps = len(self.ratios) + 1
        dims = dims_per_step(feature_dim, num_steps)
        super().__init__(dims, num_classes, standardise=standardise, seed=seed)
        self.k = _per_zoom(k, len(self.ratios))
        self.aggregation = _one_of("aggregation", aggregation, ("sum", "concat", "last"))
        self.is_dual = _one_of("attention", attention, ("dual", "single")) == "dual"
        by_pool = _one_of("nondiff_scores", nondiff_scores, ("aux", "pool")) == "pool"
        is_shared = _one_of("projection", projection, ("separate", "shared")) == "shared"
        if not 0 <= dropout < 1 or step_loss < 0 or embed_dim < 1 or attention_dim < 1:
            raise ModelError(
                f"dropout {dropout}, step_loss {step_loss}, embed_dim {embed_dim}, attention_dim"
                f" {attention_dim}; expected 0 <= dropout < 1, step_loss >= 0, widths >= 1."
            )
        self.selector = Selector(
            selection=selection,
            score=score,
            sigma=sigma,
            sigma_schedule=sigma_schedule,
            num_samples=num_samples,
            jacobian=jacobian,
            baseline=baseline,
            straight_through=straight_through,
            explore=float(dropout > 0) if explore is None else explore,
            adaptive_mass=adaptive_mass,
            k_min=k_min,
        )
        self.dropout = dropout
        self.score_dropout = score_dropout
        self.step_loss = step_loss
        self.eval_seed = eval_seed

        def gated_attention() -> GatedAttention:
            return GatedAttention(embed_dim, attention_dim, dropout=dropout, depth=attention_depth)

        self.projections = Projections(dims, embed_dim, is_shared=is_shared)
        self.pools = nn.ModuleList(gated_attention() for _ in range(num_steps))
        head_input = embed_dim * (num_steps if aggregation == "concat" else 1)
        self.head = ClassifierHead(
            head_input, num_classes, kind=head, hidden_dim=head_dim, dropout=dropout
        )
        # Made last, so that the ablations without them start from the same other weights.
        has_own_scores = selection == "diff" or (selection == "nondiff" and not by_pool)
        num_scorers = num_steps - 1 if self.is_dual and has_own_scores else 0
        self.scorers = nn.ModuleList(gated_attention() for _ in range(num_scorers))

    def takes(self, num_bag_steps: int) -> tuple[int, ...]:
        """All steps; the bag must have as many as the model."""
        if num_bag_steps != self.num_steps:
            raise ModelError(
                f"the bag has {num_bag_steps} steps; this model takes {self.num_steps}"
                f" (ratios {list(self.ratios)}). Give the same magnifications as in training."
            )
        return tuple(range(num_bag_steps))

    def forward(
        self,
        features: Sequence[Any],
        coords: Sequence[Any] | None = None,  # noqa: ARG002 (every model is given them)
        valid: Sequence[Any] | None = None,
        *,
        k: int | Sequence[int] | None = None,
        exit_at: float | None = None,
        temperature: float = 1.0,
    ) -> MILOutput:
        """The answer for one bag whose features are all known.

        Args:
            features: per step (rows, width); the children of row i of a step are rows
                i*r .. i*r+r-1 of the next, r its ratio squared.
            valid: per step (rows,) bool or None; rows that are not get no attention and are not
                chosen while a valid one is left. A step without any valid row adds nothing.
            k: rows to zoom into instead of the model's own number.
            exit_at: in evaluation stop after the first step with this class probability.
            temperature: divides the logits for that probability.
        """
        steps = self.takes(len(features))
        counts = None if k is None else _per_zoom(k, len(self.ratios))
        bag = FullBag.checked(
            features, valid, widths=self.feature_dims, ratios=self.ratios, like=self.like
        )
        state, outputs = self.start(), []
        for step in steps:
            is_last = step == steps[-1]
            output = self.step(
                bag.matrices[step],
                state,
                valid=bag.masks[step],
                k=None if counts is None or is_last else counts[step],
            )
            outputs.append(output)
            state = output.state
            if is_last or (
                exit_at is not None
                and not self.training
                and is_confident(output.logits, exit_at, temperature)
            ):
                break
            bag.zoom(step + 1, output)
        return MILOutput.of(outputs, steps)

    def step(
        self,
        features: Any,
        state: State,
        *,
        coords: Any = None,  # noqa: ARG002
        valid: Any = None,
        k: int | None = None,
    ) -> StepOutput:
        """The outcome of the next step, from the features of the bag's rows `state.rows`.

        In training without straight-through the features are mixtures, and the rows those of the
        unperturbed choice.
        """
        position = state.position
        matrix = self.checked(features, position)
        rows = _rows_of(state, matrix)
        mask = as_valid(valid, len(matrix), position, matrix)
        if position == 0 and mask is not None and not bool(mask.any()):
            raise ModelError(f"none of the {len(matrix)} patches of step 0 is valid; expected one.")
        hidden = self.projections(position, matrix)
        dropped = functional.dropout(hidden, self.dropout, self.training)
        pool_logits = self.pools[position](dropped)[:, 0]
        attention = masked_softmax(pool_logits, mask)
        pooled = (*state.pooled, attention.to(dropped.dtype) @ dropped)
        seen: dict[str, Any] = {
            "logits": self._answer(pooled),
            "attention": attention,
            "rows": rows,
        }
        if position == self.num_steps - 1:
            return StepOutput(state=State(position + 1, None, pooled), **seen)
        scores, chosen, next_rows = self._zoom(position, (hidden, dropped, pool_logits), mask, k)
        ratio = self.ratios[position] ** 2
        return StepOutput(
            # next_rows count from the rows seen here; the bag's own rows are asked for.
            state=State(position + 1, _children(rows, ratio)[next_rows], pooled),
            scores=scores,
            selected=rows[chosen.rows],
            selection=chosen if self.training and self.selector.selection == "diff" else None,
            **seen,
        )

    def loss(
        self, output: MILOutput, label: int | Tensor, class_weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the last answer, averaged with step_loss times that of each earlier."""
        loss = super().loss(output, label, class_weights)
        if self.step_loss == 0:
            return loss
        for logits in output.step_logits[:-1]:
            loss = loss + self.step_loss * self.cross_entropy(logits, label, class_weights)
        return loss / (1 + self.step_loss * (len(output.step_logits) - 1))

    def _answer(self, pooled: tuple[Tensor, ...]) -> Float[Tensor, " class"]:
        """The head's logits of the steps so far; a concatenation has zeros for those to come."""
        if self.aggregation == "last":
            return self.head(pooled[-1])
        if self.aggregation == "sum":
            return self.head(torch.stack(pooled).sum(dim=0))
        missing = [torch.zeros_like(pooled[0])] * (self.num_steps - len(pooled))
        return self.head(torch.cat([*pooled, *missing]))

    def _zoom(
        self,
        position: int,
        seen: tuple[Tensor, Tensor, Tensor],
        mask: Bool[Tensor, " patch"] | None,
        k: int | None,
    ) -> tuple[Tensor | None, Selection, Int64[Tensor, " next"]]:
        """Scores, the chosen rows, and which children to see next, counted from the rows seen."""
        k = self.k[position] if k is None else k
        if k < 1:
            raise ModelError(f"k is {k}; expected at least 1 row to zoom into.")
        num_rows, ratio = len(seen[0]), self.ratios[position] ** 2
        if self.selector.selection.startswith("random"):
            return (None, *self._random_zoom(position, num_rows, mask, k))
        raw = self._raw_scores(position, *seen)
        scores = self.selector.scores(raw, mask)
        if self.training and self.selector.selection == "diff":
            chosen = self.selector.perturb(
                scores,
                mask,
                k,
                progress=self.progress,
                generator=self.noise.generator(scores.device),
            )
        else:
            chosen = Selection(num_rows, self.selector.pick(raw, scores, mask, k))
        return scores, chosen, _children(chosen.rows, ratio)

    def _raw_scores(
        self, position: int, hidden: Tensor, dropped: Tensor, pool_logits: Tensor
    ) -> Float[Tensor, " patch"]:
        """Selection logits: of the step's own scorer, or of its pooling if it has none."""
        if len(self.scorers) == 0 and self.score_dropout:
            return pool_logits
        scorer = self.scorers[position] if len(self.scorers) else self.pools[position]
        return scorer(dropped if self.score_dropout else hidden, drop=self.score_dropout)[:, 0]

    def _random_zoom(
        self, position: int, num_rows: int, mask: Tensor | None, k: int
    ) -> tuple[Selection, Int64[Tensor, " next"]]:
        """The paper's random ablations (methods.md 1.9): new draws, but fixed in evaluation."""
        device, ratio = self.like.device, self.ratios[position] ** 2
        generator = self.noise.generator(device)
        if not self.training:
            seed = (self.eval_seed * 1_000_003 + position) * 1_000_003 + num_rows
            generator = torch.Generator().manual_seed(seed % 2**63)
        options = {"generator": generator, "device": device}
        if self.selector.selection == "random_low":
            drawn = self.selector.draw(num_rows, mask, k, **options)
            return Selection(num_rows, drawn), _children(drawn, ratio)
        drawn = self.selector.draw(num_rows * ratio, None, k * ratio, **options)
        parents = torch.unique(torch.div(drawn, ratio, rounding_mode="floor"))
        return Selection(num_rows, parents), drawn


def _rows_of(state: State, matrix: Tensor) -> Int64[Tensor, " patch"]:
    if state.rows is None:
        return torch.arange(len(matrix), device=matrix.device)
    if len(state.rows) != len(matrix):
        raise ModelError(
            f"step {state.position} was given {len(matrix)} rows of features; expected the"
            f" {len(state.rows)} of state.rows, in that order."
        )
    return state.rows


def _children(rows: Int64[Tensor, " patch"], ratio: int) -> Int64[Tensor, " child"]:
    """The rows of the next step that descend from these, methods.md 1.2."""
    return (rows[:, None] * ratio + torch.arange(ratio, device=rows.device)).flatten()


def _per_zoom(k: int | Sequence[int], num_zooms: int) -> tuple[int, ...]:
    counts = (k,) * num_zooms if isinstance(k, int) else tuple(int(one) for one in k)
    if len(counts) != num_zooms or any(one < 1 for one in counts):
        raise ModelError(
            f"k is {k}; expected at least 1, one number or one per zoom ({num_zooms})."
        )
    return counts


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ModelError(f"{name} is {value!r}; expected one of {', '.join(allowed)}.")
    return value
