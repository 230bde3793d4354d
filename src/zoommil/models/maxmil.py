"""Row 9, models: MaxMIL, the element-wise maximum over patches; features in, answer out."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from zoommil.models.embedding_pooling import EmbeddingPoolingMIL


class MaxMIL(EmbeddingPoolingMIL):
    """Each feature's largest value over the patches, then a two-layer classifier."""

    def pool(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " feature"]:
        """The maxima."""
        return features.amax(dim=0)

    def shares(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " patch"]:
        """The fraction of maxima that each patch holds; patches that tie share one equally."""
        holds = (features == features.amax(dim=0)).float()
        return (holds / holds.sum(dim=0)).mean(dim=1)
