"""Small bags with a class to learn, as training sees them."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.bags.bag import Bag
from zoommil.training.data import BagSet, BagSource, Example
from zoommil.training.run import RunSpec

SMALL_ZOOM = {"k": 3, "embed_dim": 16, "attention_dim": 8, "num_samples": 20}


def make_bags(
    num: int, *, seed: int = 0, shift: float = 2.0, counts: tuple[int, ...] = (6, 24), dim: int = 8
) -> dict[str, Bag]:
    """Bags whose class (slide number modulo 2) shifts the first feature of every step."""
    generator = np.random.default_rng(seed)
    bags = {}
    for number in range(num):
        features = []
        for count in counts:
            rows = generator.normal(size=(count, dim)).astype(np.float32)
            rows[:, 0] += shift * (number % 2)
            features.append(rows)
        name = f"s{number:03d}"
        bags[name] = Bag(features=tuple(features), slide_id=name)
    return bags


def make_examples(bags: dict[str, Bag], first: int, last: int) -> list[Example]:
    """One case per slide, the label as in :func:`make_bags`."""
    names = list(bags)[first:last]
    return [Example(name, f"c{name}", int(name[1:]) % 2) for name in names]


def make_set(bags: dict[str, Bag], first: int, last: int, model, *, keep: bool = True) -> BagSet:
    bag_set = BagSet(BagSource(bags), make_examples(bags, first, last))
    bag_set.prepare(model, next(iter(bags.values())), keep=keep)
    return bag_set


@pytest.fixture
def bags() -> dict[str, Bag]:
    return make_bags(24)


@pytest.fixture
def small_run() -> RunSpec:
    return RunSpec.compose(
        {
            "recipe": "zoommil",
            "model": SMALL_ZOOM,
            "training": {"epochs": 4},
            "optimiser": {"lr": 1e-3},
            "evaluation": {"resamples": 50},
        }
    )
