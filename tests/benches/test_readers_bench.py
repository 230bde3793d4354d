"""Bench readers in its short form: both readers, the same native pixels, a page with all of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zoommil.bags.bag import Bag
from zoommil.benches.readers import READERS, bench_readers, compare_features, compare_selections


@pytest.fixture(scope="module")
def encoder():
    from zoommil.encoders.loading import load_encoder

    options = {"weights": "random:0", "precision": "fp32", "runtime": "torch"}
    return load_encoder("resnet18", device="cpu", **options)


@pytest.mark.slow
def test_the_page_says_how_the_readers_compare(tmp_path, encoder):
    result = bench_readers(
        tmp_path, side_px=1536, num_patches=20, rounds=1, seeds=range(2), encoder=encoder
    )
    page = result.write(tmp_path).read_text()
    assert all(reader in page for reader in READERS)
    data = json.loads((tmp_path / "readers.json").read_text())
    assert len(data["speeds"]) == 6
    assert all(speed["jpeg_tiles"] > 0 < speed["openslide"] for speed in data["speeds"])
    change = {one["downsample"]: one for one in data["pixels"]}
    assert change[1.0]["largest"] == change[4.0]["largest"] == change[16.0]["largest"] == 0
    assert 0 < change[2.0]["mean"] < 1
    features = {one["magnification"]: one for one in data["features"]}
    assert features[10.0]["of_spread"] == 0
    assert 0 < features[5.0]["of_spread"] < 0.2
    assert data["selections"]["selected"] > 0


def test_what_changes_is_counted():
    rng = np.random.default_rng(0)
    counts = (8, 8 * 16, 8 * 64)
    features = tuple(rng.normal(size=(count, 12)).astype(np.float32) for count in counts)
    bag = Bag(features=features)
    other = Bag(features=tuple(rows[::-1].copy() for rows in features))
    assert compare_selections(bag, bag, range(3))[0] == 0
    assert compare_selections(bag, other, range(3))[0] > 0
    assert [change.of_spread for change in compare_features(bag, bag)] == [0, 0, 0]
    assert all(change.of_spread > 0.5 for change in compare_features(bag, other))
