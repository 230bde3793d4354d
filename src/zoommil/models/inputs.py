"""Row 9, models: checks of what a model is given; arrays of any kind in, finite matrices out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoommil.errors import ModelError


def as_matrix(features: object, width: int, step: int, like: Tensor) -> Float[Tensor, "patch d"]:
    """One step's features as a finite matrix of `like`'s dtype on its device.

    Raises ModelError for a wrong shape or width, an empty step and NaN or infinite values.
    """
    matrix = _as_tensor(features)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise ModelError(
            f"features of step {step} have shape {tuple(matrix.shape)}; expected"
            f" (patches, {width}). Use the encoder the model was made for, or pass its feature_dim."
        )
    if len(matrix) == 0:
        raise ModelError(f"step {step} of the bag has no patches; a bag needs at least one.")
    matrix = matrix.to(device=like.device, dtype=like.dtype)
    check_finite(matrix, step)
    return matrix


def check_finite(matrix: Tensor, step: int) -> None:
    """Nothing, or a ModelError that says in which row the first NaN or infinity is."""
    # One sum reads everything once and needs no mask; only a bad one is looked at closer.
    if math.isfinite(float(matrix.detach().sum())):
        return
    bad = (~torch.isfinite(matrix)).any(dim=1).nonzero()
    if len(bad):
        raise ModelError(
            f"features of step {step} hold NaN or infinity in {len(bad)} of {len(matrix)} rows,"
            f" first in row {int(bad[0])}; expected finite numbers. Extract this slide again."
        )


def as_valid(
    valid: object, num_rows: int, step: int, like: Tensor
) -> Bool[Tensor, " patch"] | None:
    """The mask on `like`'s device, or None when every patch is valid."""
    if valid is None:
        return None
    mask = _as_tensor(valid)
    if mask.shape != (num_rows,):
        raise ModelError(
            f"valid of step {step} has shape {tuple(mask.shape)}; expected ({num_rows},)."
        )
    mask = mask.to(device=like.device, dtype=torch.bool)
    return None if bool(mask.all()) else mask


def as_coords(coords: object, num_rows: int, step: int, like: Tensor) -> Tensor | None:
    """The (rows, 2) level-0 top-left corners (x, y) as a tensor, or None."""
    if coords is None:
        return None
    corners = _as_tensor(coords)
    if corners.shape != (num_rows, 2):
        raise ModelError(
            f"coords of step {step} have shape {tuple(corners.shape)}; expected ({num_rows}, 2)."
        )
    return corners.to(like.device)


def check_ratios(num_rows: Sequence[int], ratios: Sequence[int]) -> None:
    """Nothing, or a ModelError when a step's rows are not the children of the step before."""
    for step, ratio in enumerate(ratios):
        expected = num_rows[step] * ratio**2
        if num_rows[step + 1] != expected:
            raise ModelError(
                f"step {step + 1} has {num_rows[step + 1]} rows; expected {expected}:"
                f" {ratio}x{ratio} children for each of the {num_rows[step]} rows of step {step}."
                " Check the model's ratios against the bag's magnifications."
            )


def dims_per_step(feature_dim: int | Sequence[int], num_steps: int) -> tuple[int, ...]:
    """The feature width of each of `num_steps` steps, from one number or one per step."""
    dims = (feature_dim,) * num_steps if isinstance(feature_dim, int) else tuple(feature_dim)
    if len(dims) != num_steps or any(int(dim) < 1 for dim in dims):
        raise ModelError(
            f"feature_dim is {feature_dim}; expected one positive number, or one per step"
            f" ({num_steps})."
        )
    return tuple(int(dim) for dim in dims)


def _as_tensor(values: object) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    # A read-only array (a memory map, a bag) cannot be shared with torch without a warning.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
