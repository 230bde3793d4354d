"""Small bags and a small run for every test of training."""

from __future__ import annotations

import pytest
from training_bags import SMALL_ZOOM, make_bags

from zoommil.bags.bag import Bag
from zoommil.training.run import RunSpec


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
