"""Row 9, models: which rows of a bag a model uses; masks and generators in, rows out."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from zoommil.errors import ModelError
from zoommil.models.noise import NoiseSource

_EVALUATION_SEED = 0  # every bag is sampled afresh from it, so that an answer can be repeated


def usable_rows(features: Tensor, valid: Bool[Tensor, " patch"] | None) -> Int64[Tensor, " row"]:
    """The rows that are valid, ascending."""
    if valid is None:
        return torch.arange(len(features), device=features.device)
    return torch.nonzero(valid)[:, 0]


def spread(
    shares: Float[Tensor, " row"], rows: Int64[Tensor, " row"], num_patches: int
) -> Float[Tensor, " patch"]:
    """Shares added up per patch: 0 where a patch is not among the rows."""
    return shares.new_zeros(num_patches).index_add(0, rows, shares)


def sampled_rows(
    rows: Int64[Tensor, " row"], num_patches: int | None, noise: NoiseSource, is_training: bool
) -> Int64[Tensor, " sample"]:
    """That many of the rows drawn with replacement, or all of them when it is None.

    While training the draws are the model's own; otherwise they start from one fixed seed per bag.
    """
    if num_patches is None:
        return rows
    generator = (
        noise.generator("cpu") if is_training else torch.Generator().manual_seed(_EVALUATION_SEED)
    )
    return rows[torch.randint(len(rows), (num_patches,), generator=generator).to(rows.device)]


def check_num_patches(num_patches: int | None) -> None:
    """Nothing, or a ModelError for a number of patches that cannot be drawn."""
    if num_patches is not None and num_patches < 1:
        raise ModelError(
            f"num_patches is {num_patches}; expected a positive number, or None for all patches."
        )
