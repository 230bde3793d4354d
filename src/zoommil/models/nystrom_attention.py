"""Row 9, models: attention of n tokens through landmarks; tokens in, tokens out, linear in n.

The n x n softmax matrix is approximated by three small ones that meet in the landmarks, the means
of consecutive groups of tokens (Nystrom's method; the formulas of TransMIL's layer).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


def pseudo_inverse(
    matrix: Float[Tensor, "*batch landmark landmark"], iterations: int = 6
) -> Float[Tensor, "*batch landmark landmark"]:
    """The iterated pseudo-inverse; the starting scale takes its maxima over all heads together."""
    magnitude = matrix.abs()
    scale = magnitude.sum(dim=-2).max() * magnitude.sum(dim=-1).max()
    inverse = matrix.transpose(-1, -2) / scale
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = 0.25 * inverse @ (13 * identity - product @ inner)
    return inverse


@dataclass(frozen=True)
class LandmarkWeights:
    """The attention matrix as the product of two thin ones."""

    left: Float[Tensor, "head token landmark"]
    right: Float[Tensor, "head landmark token"]

    def mix(self, value: Float[Tensor, "head token width"]) -> Float[Tensor, "head token width"]:
        """The values of all tokens, weighted for each token."""
        return self.left @ (self.right @ value)

    def of_token(self, token: int) -> Float[Tensor, " token"]:
        """What one token pays to each, averaged over heads; the approximation may be negative."""
        return (self.left[:, None, token] @ self.right).mean(dim=0)[0]


def landmark_weights(
    query: Float[Tensor, "head token width"],
    key: Float[Tensor, "head token width"],
    num_landmarks: int,
    iterations: int = 6,
) -> LandmarkWeights:
    """Approximately softmax(query key^T); the query comes scaled.

    The number of tokens must be a multiple of `num_landmarks`.
    """
    heads, tokens, width = query.shape
    groups = (heads, num_landmarks, tokens // num_landmarks, width)
    query_landmarks = query.reshape(groups).mean(dim=2)
    key_landmarks = key.reshape(groups).mean(dim=2)
    to_landmarks = torch.softmax(query @ key_landmarks.transpose(-1, -2), dim=-1)
    among_landmarks = torch.softmax(query_landmarks @ key_landmarks.transpose(-1, -2), dim=-1)
    from_landmarks = torch.softmax(query_landmarks @ key.transpose(-1, -2), dim=-1)
    inverse = pseudo_inverse(among_landmarks, iterations)
    return LandmarkWeights(to_landmarks @ inverse, from_landmarks)


@dataclass(frozen=True)
class Attended:
    """The tokens after attention, and what the first of them paid to each."""

    tokens: Float[Tensor, "token dim"]
    first_weights: Float[Tensor, " token"]


class NystromAttention(nn.Module):
    """Multi-head landmark attention with a depthwise convolution of the values added."""

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int = 8,
        num_landmarks: int = 256,
        iterations: int = 6,
        residual_kernel: int = 33,
        dropout: float = 0.1,
    ) -> None:
        """Args: dim: token width, a multiple of num_heads; residual_kernel: odd, in tokens."""
        super().__init__()
        self.num_heads = num_heads
        self.num_landmarks = num_landmarks
        self.iterations = iterations
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.residual = nn.Conv2d(
            num_heads,
            num_heads,
            (residual_kernel, 1),
            padding=(residual_kernel // 2, 0),
            groups=num_heads,
            bias=False,
        )
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(dropout))

    def forward(self, tokens: Float[Tensor, "token dim"]) -> Attended:
        """As many tokens as came in; zeros fill the front up to a multiple of the landmarks."""
        num_tokens, dim = tokens.shape
        num_padding = -num_tokens % self.num_landmarks
        padded = functional.pad(tokens, (0, 0, num_padding, 0))
        qkv = self.to_qkv(padded).reshape(len(padded), 3, self.num_heads, dim // self.num_heads)
        wide = torch.promote_types(qkv.dtype, torch.float32)
        query, key, value = qkv.to(wide).permute(1, 2, 0, 3)
        query = query * (dim // self.num_heads) ** -0.5
        with torch.autocast(tokens.device.type, enabled=False):  # the inverse needs the digits
            weights = landmark_weights(query, key, self.num_landmarks, self.iterations)
            mixed = weights.mix(value)
            first_weights = weights.of_token(num_padding).detach()
        mixed = mixed + self.residual(value[None])[0]
        merged = self.to_out(mixed.transpose(0, 1).reshape(len(padded), dim))
        return Attended(merged[num_padding:], first_weights[num_padding:])
