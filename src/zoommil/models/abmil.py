"""Row 9, models: ABMIL, gated-attention pooling; one step's features in, an answer out.

Ilse et al. 2018 with the widths of the ZoomMIL paper: ZoomMIL with a single step.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoommil.models.attention import ClassifierHead, GatedAttention, masked_softmax
from zoommil.models.model import Answer, SingleStepModel


class ABMIL(SingleStepModel):
    """a = softmax(GA(h)) over patches, logits = head(sum of a h)."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        embed_dim: int = 512,
        attention_dim: int = 256,
        attention_depth: int = 1,
        head: str = "linear",
        dropout: float = 0.25,
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Args: attention_depth=2 with head="mlp" is the paper's text, the default its code."""
        super().__init__(
            feature_dim, num_classes, ratios, at=at, standardise=standardise, seed=seed
        )
        self.projection = nn.Sequential(
            nn.Linear(self.feature_dims[0], embed_dim), nn.ReLU(), nn.Dropout(dropout)
        )
        self.attention = GatedAttention(
            embed_dim, attention_dim, dropout=dropout, depth=attention_depth
        )
        self.head = ClassifierHead(
            embed_dim, num_classes, kind=head, hidden_dim=attention_dim, dropout=dropout
        )

    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,  # noqa: ARG002 (their order is irrelevant)
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """Attention is what the patches were weighted with; the order of patches is irrelevant."""
        hidden = self.projection(features)
        attention = masked_softmax(self.attention(hidden)[:, 0], valid)
        return Answer(self.head(attention.to(hidden.dtype) @ hidden), attention)
