"""Bags as training holds them: in memory when they fit, in order, ahead of their use."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from training_bags import make_bags, make_examples

from zoommil.bags.bag import Bag
from zoommil.bags.store import write_bag
from zoommil.errors import BagError
from zoommil.models.creation import create_model
from zoommil.training.data import BagSet, BagSource, is_kept
from zoommil.training.prefetch import Stopwatch, load_ahead


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, bag in make_bags(6).items():
        write_bag(bag, tmp_path / f"{name}.h5", dtype="float16")
    return tmp_path


def test_bags_are_kept_when_they_fit_into_half_of_the_free_memory(folder, monkeypatch) -> None:
    source, names = BagSource(folder), list(make_bags(6))
    needed = source.num_bytes(names)
    assert needed > 0
    for free, fits in ((2 * needed + 2, True), (2 * needed - 2, False)):
        monkeypatch.setattr(
            psutil, "virtual_memory", lambda free=free: SimpleNamespace(available=free)
        )
        assert is_kept("auto", source, names) is fits
        assert source.fits_in_memory(names, copies=2) is False
    assert is_kept("memory", source, names)
    assert not is_kept("mapped", source, names)


@pytest.mark.parametrize("keep", [True, False])
def test_loaded_features_are_what_the_file_stores(folder: Path, keep: bool) -> None:
    bags = make_bags(6)
    model = create_model("meanmil", feature_dim=8, num_classes=2, ratios=(2,))
    bag_set = BagSet(BagSource(folder), make_examples(bags, 0, 6))
    source = BagSource(folder)
    bag_set.prepare(model, source.bag("s000"), keep=keep)
    loaded = bag_set.load(3)
    assert loaded.features[0] is None  # the model looks at the last step only
    assert loaded.features[1] is not None
    assert loaded.features[1].dtype == torch.float32
    stored = bags["s003"].features[1].astype(np.float16).astype(np.float32)
    assert (loaded.features[1].numpy() == stored).all()
    maps = Path("/proc/self/maps")  # Linux says which files are mapped
    if maps.exists():
        assert (str(folder) in maps.read_text()) is not keep


def test_lists_of_bags_need_names_of_their_own() -> None:
    bag = Bag(features=(np.zeros((2, 3)),))
    with pytest.raises(BagError, match="1 different slide ids"):
        BagSource([bag, bag])


@pytest.mark.parametrize("depth", [0, 2])
def test_bags_come_in_order_and_loading_is_clocked(depth: int) -> None:
    stopwatch = Stopwatch()
    found = list(load_ahead(lambda index: index, [3, 1, 2, 1], stopwatch, depth=depth))
    assert found == [3, 1, 2, 1]
    assert 0 <= stopwatch.waiting <= stopwatch.total


@pytest.mark.parametrize("depth", [0, 2])
def test_error_of_loading_is_the_error_of_its_use_and_leaves_no_thread(depth: int) -> None:
    def load(index: int):
        if index == 2:
            raise BagError("bad")
        return index

    before = threading.active_count()
    seen = []
    with pytest.raises(BagError, match="bad"):
        for index in load_ahead(load, [0, 1, 2, 3], depth=depth):
            seen.append(index)
    assert seen == [0, 1]
    assert threading.active_count() == before


def test_invalid_patches_are_masked_in_training_too() -> None:
    features = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    valid = np.array([True, False, True, True])
    bag = Bag(features=(features,), slide_id="s000", valid=(valid,))
    model = create_model("meanmil", feature_dim=8, num_classes=2).eval()
    bag_set = BagSet(BagSource([bag]), make_examples({"s000": bag}, 0, 1))
    bag_set.prepare(model, bag, keep=True)
    loaded = bag_set.load(0)
    expected = model([features[valid]]).logits
    assert torch.allclose(model(loaded.features, loaded.coords, loaded.valid).logits, expected)
