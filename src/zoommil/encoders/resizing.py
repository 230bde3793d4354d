"""Row 5, encoders: patches at the side a network needs; images flow in, resized images flow out.

Two products with a constant matrix: the same on every runtime, and it converts to all.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def resize_square(
    images: Float[Tensor, "batch 3 side side"],
    to_px: int,
    interpolation: Literal["bicubic", "bilinear"] = "bicubic",
) -> Float[Tensor, "batch 3 new new"]:
    """The images at another side length, antialiased, clamped to the range of bytes."""
    weights = resampling_weights(int(images.shape[2]), to_px, interpolation)
    matrix = torch.from_numpy(weights.astype(np.float32)).to(images)
    return (matrix @ images @ matrix.T).clamp(0.0, 255.0)


def resampling_weights(
    from_px: int, to_px: int, interpolation: Literal["bicubic", "bilinear"]
) -> Float[np.ndarray, "to from"]:
    """The matrix of a resize along one axis, as Pillow defines it; each row sums to 1.

    The kernel is a triangle, or Keys' cubic with a = -0.5, widened by the ratio when it shrinks.
    """
    ratio = from_px / to_px
    centres = (np.arange(to_px) + 0.5) * ratio
    distance = np.abs(np.arange(from_px)[None, :] + 0.5 - centres[:, None]) / max(ratio, 1.0)
    if interpolation == "bilinear":
        weights = np.maximum(1.0 - distance, 0.0)
    else:
        near = (1.5 * distance - 2.5) * distance**2 + 1.0
        far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
        weights = np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)
