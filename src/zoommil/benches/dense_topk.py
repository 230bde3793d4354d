"""Row 16, benches: the selection as it is written down, dense; what the lean form must equal.

One-hot matrices of all samples and the Kronecker product of methods.md 1.7 are formed as they
stand. It is the truth of the tests and the other side of `zoommil bench step`; nothing else uses
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoommil.models.selector import Selector
from zoommil.models.topk import Selection


class DenseTopK(torch.autograd.Function):
    """Scores to T through the (samples, k, rows) one-hot tensor, kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, k: int, sigma: float, noise: Tensor, form: str) -> Tensor:
        chosen = torch.topk(scores + sigma * noise, k, dim=1).indices.sort(dim=1).values
        one_hot = torch.nn.functional.one_hot(chosen, len(scores)).to(scores.dtype)
        ctx.save_for_backward(one_hot, noise)
        ctx.sigma, ctx.form = sigma, form
        return one_hot.mean(dim=0)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, upstream: Tensor
    ) -> tuple[Tensor | None, ...]:
        one_hot, noise = ctx.saved_tensors
        scale = 1.0 / (len(noise) * ctx.sigma)
        if ctx.form == "diagonal":
            gradient = torch.einsum("skn,kn,sn->n", one_hot, upstream, noise) * scale
        else:
            loss = torch.einsum("skn,kn->s", one_hot, upstream)
            if ctx.form == "full + baseline":
                loss = loss - (loss.sum() - loss) / (len(loss) - 1)  # less the mean of the others
            gradient = torch.einsum("s,sn->n", loss, noise) * scale
        return gradient, None, None, None, None


def dense_zoom_in(
    scores: Float[Tensor, " patch"],
    finer: list[Tensor],
    k: int,
    *,
    sigma: float,
    noise: Float[Tensor, "sample patch"],
    form: str = "diagonal",
) -> list[Tensor]:
    """What `zoommil.models.topk.zoom_in` must give. form: diagonal, full, full + baseline."""
    weights = DenseTopK.apply(scores, k, sigma, noise, form)
    return [_kronecker(weights, matrix) for matrix in finer]


def _kronecker(weights: Tensor, finer: Tensor) -> Tensor:
    ratio = len(finer) // weights.shape[1]
    identity = torch.eye(ratio, dtype=weights.dtype, device=weights.device)
    return torch.kron(weights, identity) @ finer


@dataclass(frozen=True)
class DenseSelection(Selection):
    """A selection that is applied as a Kronecker product."""

    def apply(self, finer: Float[Tensor, "fine d"]) -> Float[Tensor, "chosen_fine d"]:
        """The mixed blocks."""
        assert self.weights is not None
        return _kronecker(self.weights, finer)


class DenseSelector(Selector):
    """ZoomMIL's selector with the dense operator, mixing, diagonal gradient."""

    def perturb(
        self,
        scores: Float[Tensor, " patch"],
        valid: Bool[Tensor, " patch"] | None,
        k: int,
        *,
        progress: float,
        generator: torch.Generator,
    ) -> Selection:
        """The dense choice, from the same noise as the lean one draws."""
        assert valid is None
        noise = torch.randn(self.num_samples, len(scores), generator=generator)
        weights = DenseTopK.apply(scores, k, self.sigma_at(progress), noise, "diagonal")
        rows = self.pick(scores, scores, None, k)
        return DenseSelection(len(scores), rows, weights)
