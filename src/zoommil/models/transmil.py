"""Row 9, models: TransMIL, a transformer over all patches; features and corners in, answer out.

Shao et al. 2021: a class token and the patches, in reading order and filled up to a square, go
through attention, convolutions on that square, attention again; the class token is classified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from zoommil.errors import ModelError
from zoommil.models.model import Answer, SingleStepModel
from zoommil.models.nystrom_attention import Attended, NystromAttention
from zoommil.models.positions import row_major_order
from zoommil.models.sampling import spread, usable_rows


class AttentionLayer(nn.Module):
    """x + attention(norm(x)); there is no feed-forward part."""

    def __init__(self, attention: NystromAttention, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = attention

    def forward(self, tokens: Float[Tensor, "token dim"]) -> Attended:
        """The tokens with what they attended to added."""
        attended = self.attention(self.norm(tokens))
        return Attended(tokens + attended.tokens, attended.first_weights)


class PositionalConvolutions(nn.Module):
    """PPEG: depthwise convolutions of three sizes over the square of patches, added to it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(dim, dim, size, padding=size // 2, groups=dim) for size in (7, 5, 3)
        )

    def forward(self, tokens: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
        """The tokens, all but the first (the class token) mixed with their neighbours."""
        side = math.isqrt(len(tokens) - 1)
        square = tokens[1:].T.reshape(1, -1, side, side)
        mixed = square + sum(convolution(square) for convolution in self.convolutions)
        return torch.cat([tokens[:1], mixed.flatten(2)[0].T])


class TransMIL(SingleStepModel):
    """Two layers of Nystrom attention around PPEG."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        embed_dim: int = 512,
        num_heads: int = 8,
        num_landmarks: int = 256,
        dropout: float = 0.1,
        max_tokens: int | None = None,
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Args: max_tokens: in training, draw at most so many patches of a bag; None: all."""
        super().__init__(
            feature_dim, num_classes, ratios, at=at, standardise=standardise, seed=seed
        )
        if embed_dim % num_heads:
            raise ModelError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}.")
        if max_tokens is not None and max_tokens < 1:
            raise ModelError(f"max_tokens is {max_tokens}; expected a positive number or None.")
        self.max_tokens = max_tokens
        self.projection = nn.Linear(self.feature_dims[0], embed_dim)
        self.class_token = nn.Parameter(torch.randn(1, embed_dim))
        self.first, self.second = (
            AttentionLayer(
                NystromAttention(
                    embed_dim, num_heads=num_heads, num_landmarks=num_landmarks, dropout=dropout
                ),
                embed_dim,
            )
            for _ in range(2)
        )
        self.positional = PositionalConvolutions(embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """Patches are put in reading order if their corners are given, else kept as they come.

        The attention given is the class token's in the last layer, negative parts (of the
        approximation) cut off.
        """
        rows = self._drawn(usable_rows(features, valid))
        if coords is not None:
            rows = rows[row_major_order(coords[rows])]
        rows = square_rows(rows)
        patches = functional.relu(self.projection(features[rows]))
        tokens = torch.cat([self.class_token.to(patches.dtype), patches])
        tokens = self.positional(self.first(tokens).tokens)
        attended = self.second(tokens)
        logits = self.head(self.norm(attended.tokens[0]))
        return Answer(logits, spread(_shares(attended.first_weights[1:]), rows, len(features)))

    def _drawn(self, rows: Int64[Tensor, " row"]) -> Int64[Tensor, " drawn"]:
        """While training, at most `max_tokens` of the rows, ascending; otherwise all."""
        if not self.training or self.max_tokens is None or len(rows) <= self.max_tokens:
            return rows
        order = torch.randperm(len(rows), generator=self.noise.generator("cpu"))
        return rows[order[: self.max_tokens].sort().values.to(rows.device)]


def square_rows(rows: Int64[Tensor, " row"]) -> Int64[Tensor, " token"]:
    """The rows and as many of the first ones again as fill the smallest square."""
    side = math.isqrt(len(rows) - 1) + 1
    return torch.cat([rows, rows[: side * side - len(rows)]])


def _shares(weights: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    positive = weights.clamp(min=0)
    total = positive.sum()
    return positive / total if total > 0 else torch.full_like(weights, 1 / len(weights))
