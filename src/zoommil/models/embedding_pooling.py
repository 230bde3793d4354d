"""Row 9, models: what MaxMIL and MeanMIL share; features in, one pooled vector, answer out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from zoommil.models.attention import ClassifierHead
from zoommil.models.model import Answer, SingleStepModel
from zoommil.models.sampling import check_num_patches, sampled_rows, spread, usable_rows


class EmbeddingPoolingMIL(SingleStepModel):
    """The features of all patches, or of some drawn ones, pooled into one vector and classified."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        hidden_dim: int = 128,
        num_patches: int | None = None,
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Args: num_patches: drawn per bag with replacement (published: 100); None: use all."""
        super().__init__(
            feature_dim, num_classes, ratios, at=at, standardise=standardise, seed=seed
        )
        check_num_patches(num_patches)
        self.num_patches = num_patches
        self.head = ClassifierHead(
            self.feature_dims[0], num_classes, kind="mlp", hidden_dim=hidden_dim, dropout=0.0
        )

    @abstractmethod
    def pool(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " feature"]:
        """One vector from all patches."""

    @abstractmethod
    def shares(self, features: Float[Tensor, "patch feature"]) -> Float[Tensor, " patch"]:
        """How much each patch had a part in the vector; they sum to 1."""

    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,  # noqa: ARG002 (their order is irrelevant)
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """The attention given is each patch's share in the pooled vector."""
        rows = usable_rows(features, valid)
        rows = sampled_rows(rows, self.num_patches, self.noise, self.training)
        pooled = features[rows]
        attention = spread(self.shares(pooled.detach()), rows, len(features))
        return Answer(self.head(self.pool(pooled)), attention)
