"""Row 9, models: differentiable selection; scores and finer matrices in, the chosen blocks out.

`methods.md` 1.6 and 1.7. For noise Z_j the perturbed selection I_j holds the k largest entries
of s + sigma Z_j in ascending order of index; T[k, n] is the share of samples with I_j[k] = n.
T is applied to a block of R children per row as a matrix: no (k, R, n, R) product is formed and
no sample is ever expanded to a one-hot matrix. Usable without the rest of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from zoommil.errors import ModelError

JACOBIANS = ("diagonal", "full")
_DENSE_IS_QUICKER = 16  # times per entry, about: a matrix product against gathered rows


def hard_topk(scores: Float[Tensor, " patch"], k: int) -> Int64[Tensor, " selected"]:
    """The rows of the k highest scores, ascending; of equal scores the lowest row goes first."""
    _check(scores, k)
    # torch.topk promises nothing about ties; a stable sort does, on every device.
    best = torch.sort(scores.detach(), descending=True, stable=True).indices[:k]
    return best.sort().values


def perturbed_topk(
    scores: Float[Tensor, " patch"],
    k: int,
    *,
    num_samples: int = 100,
    sigma: float = 0.002,
    jacobian: str = "diagonal",
    baseline: bool = True,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "selected patch"]:
    """T, the mean of the perturbed selections: rows sum to 1, row i is about the i-th chosen.

    The identity, without noise or gradient, where k reaches the number of rows; the hard
    selection, without gradient, at sigma 0. float32 or finer whatever autocast says.
    """
    _check(scores, k)
    if jacobian not in JACOBIANS:
        raise ModelError(f"jacobian is {jacobian!r}; expected one of {', '.join(JACOBIANS)}.")
    if sigma < 0 or num_samples < 1:
        raise ModelError(
            f"sigma is {sigma} and num_samples {num_samples}; expected sigma >= 0, samples >= 1."
        )
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if k >= len(scores):
        return torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
    if sigma == 0:
        return _one_hot(hard_topk(scores, k), scores)
    if noise is None:
        noise = _draw(scores, num_samples, generator)
    elif noise.ndim != 2 or noise.shape[1] != len(scores):
        raise ModelError(
            f"noise has shape {tuple(noise.shape)}; expected (samples, {len(scores)})."
        )
    noise = noise.to(dtype=scores.dtype, device=scores.device)
    return _PerturbedTopK.apply(scores, k, sigma, noise, jacobian, baseline)


@dataclass(frozen=True)
class Selection:
    """A choice of rows that can be applied to every deeper step."""

    num_rows: int  # n: rows chosen from
    rows: Int64[Tensor, " selected"]  # the unperturbed choice, ascending
    weights: Float[Tensor, "selected patch"] | None = None  # T; None: rows alone, no gradient
    straight_through: bool = False

    def apply(self, finer: Float[Tensor, "fine d"]) -> Float[Tensor, "chosen_fine d"]:
        """The blocks of the chosen rows: mixed by T, or real ones with T's gradient."""
        ratio = len(finer) // self.num_rows
        if ratio * self.num_rows != len(finer):
            raise ModelError(
                f"a finer matrix has {len(finer)} rows; expected a whole multiple of the"
                f" {self.num_rows} scores. Give the children of every scored row, in its order."
            )
        if len(self.rows) == self.num_rows:
            return finer
        blocks = finer.reshape(self.num_rows, -1)
        # (T (x) I_R) H' = reshape(T reshape(H')): methods.md 1.7, step 3.
        with torch.autocast(finer.device.type, enabled=False):
            if self.weights is None:
                chosen = blocks[self.rows]
            elif self.straight_through:
                chosen = _StraightThrough.apply(self.weights, blocks, self.rows)
            else:
                chosen = _mix(self.weights, blocks)
        return chosen.reshape(len(self.rows) * ratio, -1)


def select(
    scores: Float[Tensor, " patch"],
    k: int,
    *,
    straight_through: bool = False,
    rows: Int64[Tensor, " selected"] | None = None,
    **options: Any,
) -> Selection:
    """The perturbed selection of k rows; options are those of `perturbed_topk`.

    rows: ascending, what straight-through shows in place of the k best.
    """
    rows = hard_topk(scores, k) if rows is None else rows
    if len(rows) == len(scores):
        return Selection(len(scores), rows)
    weights = perturbed_topk(scores, k, **options)
    return Selection(len(scores), rows, weights, straight_through)


def zoom_in(
    scores: Float[Tensor, " patch"],
    finer: Sequence[Tensor],
    k: int,
    *,
    num_samples: int = 100,
    sigma: float = 0.002,
    jacobian: str = "diagonal",
    baseline: bool = True,
    straight_through: bool = False,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """The blocks of the k best rows in every deeper step, differentiable in scores and in finer.

    Args:
        scores: one per row; finite, higher is better.
        finer: per deeper step the (rows * R, width) matrix whose rows i*R .. i*R+R-1 descend
            from row i.
        k: how many rows; more than there are means all of them, as they are.
        jacobian: `full` is the gradient of the smoothed selection, `diagonal` the published one.
        baseline: leave-one-out variance reduction of the full form.
        straight_through: give the real blocks of the unperturbed selection, with T's gradient.
        noise: (samples, rows) standard normal draws in place of the generator's.
        generator: on the device of the scores; None is torch's global one.

    Raises:
        ModelError: k below 1, no scores, NaN scores, or rows that are no multiple of them.
    """
    selection = select(
        scores,
        k,
        straight_through=straight_through,
        num_samples=num_samples,
        sigma=sigma,
        jacobian=jacobian,
        baseline=baseline,
        noise=noise,
        generator=generator,
    )
    return [selection.apply(matrix) for matrix in finer]


class _PerturbedTopK(torch.autograd.Function):
    """Scores to T. Keeps the noise and S x k indices, nothing of size S x k x n."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        k: int,
        sigma: float,
        noise: Tensor,
        jacobian: str,
        baseline: bool,
    ) -> Tensor:
        num_samples, num_rows = noise.shape
        chosen = torch.topk(scores + sigma * noise, k, dim=1, sorted=False).indices.sort(1).values
        ctx.save_for_backward(noise, chosen)
        ctx.sigma, ctx.jacobian, ctx.baseline = sigma, jacobian, baseline
        cells = (chosen + torch.arange(k, device=chosen.device) * num_rows).flatten()
        counts = torch.zeros(k * num_rows, dtype=scores.dtype, device=scores.device)
        counts.index_add_(0, cells, counts.new_ones(()).expand(len(cells)))
        return counts.reshape(k, num_rows).div_(num_samples)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator's doing)
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, ...]:
        noise, chosen = ctx.saved_tensors
        num_samples = len(noise)
        upstream = grad_output.gather(1, chosen.T).T  # G[k, I_j[k]], (S, k): all that is used
        scale = 1.0 / (num_samples * ctx.sigma)
        if ctx.jacobian == "full":
            gradient = _full_gradient(upstream.sum(dim=1), noise, ctx.baseline) * scale
        else:
            gradient = torch.zeros_like(noise[0])
            terms = upstream * noise.gather(1, chosen)
            gradient.index_add_(0, chosen.flatten(), terms.flatten()).mul_(scale)
        return gradient, None, None, None, None, None


def _full_gradient(loss: Tensor, noise: Tensor, baseline: bool) -> Tensor:
    """sum_j ell_j Z_j (methods.md 1.6.2), each ell less the mean of the others if asked."""
    num_samples = len(loss)
    if baseline and num_samples > 1:
        loss = (loss - loss.mean()) * (num_samples / (num_samples - 1))
    return loss @ noise


class _StraightThrough(torch.autograd.Function):
    """T_hard + (T - stopgrad(T)), applied (methods.md 6.4): real rows, and T's gradient.

    T itself is never applied: its product would only be replaced by the real rows.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, blocks: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(weights, blocks, rows)
        return blocks[rows]

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (the decorator's doing)
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, ...]:
        weights, blocks, rows = ctx.saved_tensors
        for_weights = for_blocks = None
        if ctx.needs_input_grad[0]:
            for_weights = _products_where_used(weights, grad_output, blocks).to(weights.dtype)
        if ctx.needs_input_grad[1]:
            for_blocks = torch.zeros_like(blocks).index_add_(0, rows, grad_output)
        return for_weights, for_blocks, None


def _products_where_used(
    weights: Float[Tensor, "selected patch"],
    gradient: Float[Tensor, "selected d"],
    blocks: Float[Tensor, "patch d"],
) -> Float[Tensor, "selected patch"]:
    """G = gradient blocks^T (methods.md 1.7, step 4), exact at least where T is not zero.

    The operator reads no other entry. Of a sparse T only these are computed, row by row; a dense
    product is quicker per entry by far, so it is taken unless it has many times as many.
    """
    columns, rows = weights.detach().nonzero(as_tuple=True)
    if blocks.device.type != "cpu" or weights.numel() <= _DENSE_IS_QUICKER * len(rows):
        return gradient @ blocks.T
    products = torch.zeros_like(weights)
    used = rows.split(torch.bincount(columns, minlength=len(weights)).tolist())
    for column, own in enumerate(used):
        products[column, own] = (blocks[own] @ gradient[column]).to(products.dtype)
    return products


def _mix(
    weights: Float[Tensor, "selected patch"], blocks: Float[Tensor, "patch d"]
) -> Float[Tensor, "selected d"]:
    """T times the blocks, of which only the rows T has non-zeros for are read.

    Its gradient is exact at the non-zeros of T, the only entries the operator ever uses, and
    left at zero elsewhere. At N = 2284, k = 300 that is 8 times faster than the whole product.
    """
    weights = weights.to(blocks.dtype)
    if blocks.device.type != "cpu" or blocks.dtype not in (torch.float32, torch.float64):
        return weights @ blocks
    columns, rows = weights.detach().nonzero(as_tuple=True)
    counts = torch.bincount(columns, minlength=len(weights))
    return functional.embedding_bag(
        rows,
        blocks,
        counts.cumsum(0) - counts,
        mode="sum",
        per_sample_weights=weights[columns, rows],
    )


def _draw(scores: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
    shape = (num_samples, len(scores))
    return torch.randn(shape, dtype=scores.dtype, device=scores.device, generator=generator)


def _one_hot(rows: Tensor, like: Tensor) -> Tensor:
    weights = torch.zeros(len(rows), len(like), dtype=like.dtype, device=like.device)
    return weights.scatter_(1, rows[:, None], 1.0)


def _check(scores: Tensor, k: int) -> None:
    if scores.ndim != 1 or len(scores) == 0:
        raise ModelError(
            f"scores have shape {tuple(scores.shape)}; expected (rows,), at least one."
        )
    if k < 1:
        raise ModelError(f"k is {k}; expected at least 1 row to zoom into.")
    if bool(scores.detach().isnan().any()):
        raise ModelError("scores hold NaN; expected numbers. Check the features and the weights.")
