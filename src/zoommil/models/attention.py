"""Row 9, models: the layers most models share; patch features in, embeddings and scores out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from zoommil.errors import ModelError


class Projections(nn.Module):
    """Linear and ReLU per step: raw features to the width the model works in."""

    def __init__(
        self, feature_dims: Sequence[int], embed_dim: int, *, is_shared: bool = False
    ) -> None:
        """Args: is_shared: one weight for all steps, a bias per step; fewer parameters."""
        super().__init__()
        if is_shared and len(set(feature_dims)) != 1:
            raise ModelError(
                f"a shared projection needs one feature width; the steps have {list(feature_dims)}."
                " Use projection='separate'."
            )
        own = feature_dims[:1] if is_shared else feature_dims
        self.layers = nn.ModuleList(nn.Linear(width, embed_dim) for width in own)
        # Not tied Linear layers: the weight must be in state_dict once to be stored safely.
        shape = (len(feature_dims) - len(own), embed_dim)
        self.later_biases = nn.Parameter(torch.zeros(shape)) if is_shared else None

    def forward(
        self, position: int, features: Float[Tensor, "patch feature"]
    ) -> Float[Tensor, "patch embed"]:
        """The projected features of the step at that position."""
        if self.later_biases is None or position == 0:
            return functional.relu(self.layers[position](features))
        first = cast(nn.Linear, self.layers[0])
        bias = self.later_biases[position - 1]
        return functional.relu(functional.linear(features, first.weight, bias))


class GatedAttention(nn.Module):
    """Unnormalised attention of each patch: w (tanh(V h) * sigmoid(U h)), Ilse et al. 2018."""

    def __init__(
        self,
        embed_dim: int,
        attention_dim: int,
        *,
        dropout: float = 0.0,
        num_outputs: int = 1,
        depth: int = 1,
    ) -> None:
        """Args: depth: 2 puts a Linear-ReLU of its own before each branch (the paper's text)."""
        super().__init__()
        if depth not in (1, 2):
            raise ModelError(f"attention depth is {depth}; expected 1 or 2.")
        self.before = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(2 * (depth - 1)))
        self.value = nn.Linear(embed_dim, attention_dim)
        self.gate = nn.Linear(embed_dim, attention_dim)
        self.weight = nn.Linear(attention_dim, num_outputs)
        self.dropout = dropout

    def forward(
        self, hidden: Float[Tensor, "patch embed"], *, drop: bool = True
    ) -> Float[Tensor, "patch output"]:
        """Logits per patch and output, to be normalised over patches. drop: dropout if training."""
        is_dropping = drop and self.training
        for_value, for_gate = (
            (functional.relu(layer(hidden)) for layer in self.before)
            if self.before
            else (hidden, hidden)
        )
        value = functional.dropout(torch.tanh(self.value(for_value)), self.dropout, is_dropping)
        gate = functional.dropout(torch.sigmoid(self.gate(for_gate)), self.dropout, is_dropping)
        return self.weight(value * gate)


def masked_softmax(
    logits: Float[Tensor, "*output patch"], valid: Bool[Tensor, " patch"] | None = None
) -> Float[Tensor, "*output patch"]:
    """Softmax over patches in float32; 0 on invalid ones, and 0 everywhere if none is valid."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if valid is None:
        return logits.softmax(dim=-1)
    if not bool(valid.any()):
        return torch.zeros_like(logits)
    return logits.masked_fill(~valid, float("-inf")).softmax(dim=-1)


class ClassifierHead(nn.Module):
    """Logits from one vector: `linear` (the authors' code) or a two-layer `mlp` (their text)."""

    def __init__(
        self, input_dim: int, num_classes: int, *, kind: str, hidden_dim: int, dropout: float
    ) -> None:
        super().__init__()
        if kind == "linear":
            self.layers = nn.Sequential(nn.Linear(input_dim, num_classes))
        elif kind == "mlp":
            self.layers = nn.Sequential(
                nn.Linear(input_dim, hidden_dim),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(hidden_dim, num_classes),
            )
        else:
            raise ModelError(f"head is {kind!r}; expected 'linear' or 'mlp'.")

    def forward(self, vector: Float[Tensor, "*bag embed"]) -> Float[Tensor, "*bag class"]:
        """The logits."""
        return self.layers(vector)
