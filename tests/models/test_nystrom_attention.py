"""Landmark attention against softmax attention."""

from __future__ import annotations

import pytest
import torch

from zoommil.models.nystrom_attention import (
    NystromAttention,
    landmark_weights,
    pseudo_inverse,
)


def gaussian_tokens(seed: int, num_tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 8, num_tokens, 64, generator=generator)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_tokens", [64, 200, 256])
def test_check_18_one_token_a_landmark_approximates_softmax_attention(seed, num_tokens):
    query, key, value = gaussian_tokens(seed, num_tokens)
    query = query * 64**-0.5
    exact = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
    approximate = landmark_weights(query, key, num_landmarks=num_tokens).mix(value)
    error = ((approximate - exact).norm() / exact.norm()).item()
    assert error < 0.15


def test_more_iterations_bring_it_closer():
    query, key, value = gaussian_tokens(0, 128)
    query = query * 64**-0.5
    exact = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
    errors = [
        (landmark_weights(query, key, 128, iterations).mix(value) - exact).norm().item()
        for iterations in (2, 4, 6, 8)
    ]
    assert errors == sorted(errors, reverse=True)


def test_the_pseudo_inverse_scales_all_heads_by_the_same_maxima():
    matrix = torch.softmax(torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0)), -1)
    matrix[1] = torch.eye(5)
    start = pseudo_inverse(matrix, iterations=0)
    scale = matrix.sum(-2).max() * matrix.sum(-1).max()
    assert torch.allclose(start[1], torch.eye(5) / scale)
    assert torch.allclose(pseudo_inverse(matrix, iterations=30)[1], torch.eye(5), atol=1e-4)


@pytest.mark.parametrize("num_tokens", [1, 2, 255, 256, 257, 1000])
def test_check_18_front_padding_does_not_change_the_number_of_tokens(num_tokens):
    torch.manual_seed(0)
    attention = NystromAttention(64, num_heads=2).eval()
    tokens = torch.randn(num_tokens, 64)
    output = attention(tokens).tokens
    assert output.shape == tokens.shape
    padding = torch.zeros(-num_tokens % 256, 64)  # what is padded inside may be given outside
    explicit = attention(torch.cat([padding, tokens])).tokens
    assert torch.allclose(explicit[len(padding) :], output, atol=1e-6)


def test_half_precision_stays_finite_and_close():
    torch.manual_seed(0)
    attention = NystromAttention(64, num_heads=2).eval()
    tokens = torch.randn(300, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = attention(tokens).tokens
    exact = attention(tokens).tokens
    assert (half.float() - exact).norm() / exact.norm() < 0.05
