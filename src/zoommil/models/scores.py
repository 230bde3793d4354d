"""Row 9, models: how raw selection logits become the scores that noise is added to.

What noise of one size does depends on the scale of the scores (methods.md 1.6.4), so each
function comes with the sigma that suits it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from zoommil.errors import ModelError

_Raw = Float[Tensor, " patch"]


def softmax(raw: _Raw) -> _Raw:
    """Attention weights: the paper's scores. They sum to 1, so they shrink with the bag."""
    return raw.softmax(dim=0)


def n_softmax(raw: _Raw) -> _Raw:
    """Attention weights times the number of patches: their mean is 1 in bags of any size."""
    return raw.softmax(dim=0) * len(raw)


def zero_one(raw: _Raw) -> _Raw:
    """The lowest at 0, the highest at 1 (within 1e-5)."""
    lowest, highest = raw.min(), raw.max()
    return (raw - lowest) / (highest - lowest + 1e-5)


def zscore(raw: _Raw) -> _Raw:
    """Mean 0, standard deviation 1 (of the population)."""
    return (raw - raw.mean()) / (raw.std(correction=0) + 1e-5)


def none(raw: _Raw) -> _Raw:
    """The logits as they are."""
    return raw


_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "softmax": (softmax, 0.002),
    "n_softmax": (n_softmax, 0.12),
    "zero_one": (zero_one, 0.3),
    "zscore": (zscore, 0.5),
    "none": (none, 1.0),
}


def list_scores() -> list[str]:
    """The names of the score functions."""
    return list(_FUNCTIONS)


def default_sigma(name: str) -> float:
    """The noise scale that suits a score function."""
    return _function(name)[1]


def normalise_scores(raw: _Raw, name: str) -> _Raw:
    """Scores of finite logits, in float32 or finer: sigma 0.002 is lost in bfloat16 near 1."""
    if raw.dtype in (torch.float16, torch.bfloat16):
        raw = raw.float()
    return _function(name)[0](raw)


def _function(name: str) -> tuple[Callable[[Tensor], Tensor], float]:
    if name not in _FUNCTIONS:
        raise ModelError(f"score is {name!r}; expected one of {', '.join(_FUNCTIONS)}.")
    return _FUNCTIONS[name]
