"""Row 9, models: MeanMIL, the mean of the patch features; features in, answer out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from zoommil.models.embedding_pooling import EmbeddingPoolingMIL


class MeanMIL(EmbeddingPoolingMIL):
    """The mean over the patches, then a two-layer classifier."""

    def pool(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " feature"]:
        """The mean."""
        return features.mean(dim=0)

    def shares(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " patch"]:
        """The same for every patch."""
        return torch.full((len(features),), 1 / len(features), device=features.device)
