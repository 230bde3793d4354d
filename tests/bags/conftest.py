"""Bags of every shape for the tests of row 7."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from zoommil.bags.bag import Bag, StepInfo


def make_grids(ratios, num_parents: int, columns: int = 3) -> list[np.ndarray]:
    """Rows and columns of nested patches, slot = dh + 2 dw for powers of two."""
    index = np.arange(num_parents)
    grids = [np.stack([index // columns, index % columns], axis=1)]
    for ratio in ratios:
        slots = [(dh, dw) for dw in range(ratio) for dh in range(ratio)]
        grids.append((grids[-1][:, None] * ratio + np.array(slots)[None]).reshape(-1, 2))
    return grids


@pytest.fixture
def make_bag() -> Callable[..., Bag]:
    """A function that builds a bag with geometry: ratios, parents, width and dtype are free."""

    def build(
        ratios=(2, 4), num_parents=5, width=8, dtype="float32", seed=0, mpp=0.2431, **changes
    ) -> Bag:
        rng = np.random.default_rng(seed)
        grids = make_grids(ratios, num_parents)
        magnification, steps, features = 1.25, [], []
        for step, grid in enumerate(grids):
            magnification *= ratios[step - 1] if step else 1
            downsample = 10 / magnification / mpp
            side = 256 * downsample
            steps.append(
                StepInfo(
                    magnification, 10 / magnification, downsample, 256, 101.0, 57.0, side, grid,
                    encoder="random",
                )
            )  # fmt: skip
            features.append(rng.normal(size=(len(grid), width)).astype(dtype))
        arguments = {
            "features": tuple(features),
            "slide_id": "007",
            "steps": tuple(steps),
            "provenance": {"grid": {"patch_px": 256}, "package": "0.1.0"},
            "slide_mpp": mpp,
            "slide_size": (60_000, 40_000),
        }
        return Bag(**{**arguments, **changes})

    return build
