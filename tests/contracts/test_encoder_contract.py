"""What every encoder promises on every runtime that is installed here."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from zoommil.encoders.card import find_card, list_encoders
from zoommil.encoders.encoder import Encoder
from zoommil.encoders.loading import load_encoder
from zoommil.encoders.runtime import RUNTIMES

OWN = [name for name in list_encoders() if find_card(name).extra != "timm"]
RUNTIME_NAMES = [name for name in RUNTIMES.names() if RUNTIMES.load(name).is_available()]
SIDE = 64


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def _cases():
    for name in OWN:
        for runtime in RUNTIME_NAMES:
            # Longer forms of resnet18; test_encoder_runtimes.py has resnet50 in the fast run.
            marks = [pytest.mark.slow] if name in {"resnet34", "resnet50"} else []
            yield pytest.param((name, runtime), id=f"{name}-{runtime}", marks=marks)


@pytest.fixture(params=_cases())
def encoder(request) -> Encoder:
    return _encoder(*request.param)


@cache
def _encoder(name: str, runtime: str) -> Encoder:
    return load_encoder(name, runtime=runtime, weights="random:7", batch_size=4)


def _patches(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_any_number_of_patches_gives_a_row_each(encoder, count):
    features = encoder.encode(_patches(count))
    assert features.shape == (count, encoder.card.dim)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_different_patches_have_different_features(encoder):
    features = encoder.encode(_patches(9))
    assert len(np.unique(features, axis=0)) == 9


def test_a_feature_depends_on_its_patch_alone(encoder):
    patches = _patches(9)
    together = encoder.encode(patches)
    order = np.random.default_rng(0).permutation(9)
    assert np.array_equal(encoder.encode(patches[order]), together[order])
    alone = np.concatenate([encoder.encode(patches[i : i + 1]) for i in range(9)])
    assert np.array_equal(alone, together)


def test_patches_are_neither_changed_nor_need_to_be_contiguous(encoder):
    patches = _patches(5)
    before = patches.copy()
    mirrored = patches[:, :, ::-1]
    assert np.array_equal(encoder.encode(mirrored), encoder.encode(mirrored.copy()))
    assert np.array_equal(patches, before)


def test_features_stay_when_the_next_batch_is_computed(encoder):
    first = encoder.encode(_patches(4))
    kept = first.copy()
    encoder.encode(255 - _patches(4))
    assert np.array_equal(first, kept)


def test_threads_may_share_an_encoder(encoder):
    chunks = [_patches(count) for count in range(1, 9)]
    one_by_one = [encoder.encode(chunk) for chunk in chunks]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(encoder.encode, chunks))
    assert all(map(np.array_equal, one_by_one, at_once))


def test_loading_again_gives_the_same_bits(encoder):
    again = load_encoder(encoder.name, runtime=encoder.runtime, weights="random:7", batch_size=4)
    assert again.identity() == encoder.identity()
    assert np.array_equal(again.encode(_patches(5)), encoder.encode(_patches(5)))


def test_other_patch_sides_are_taken(encoder):
    larger = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
    assert encoder.encode(larger).shape == (2, encoder.dim)
    assert encoder.encode(_patches(3)).shape == (3, encoder.dim)


def test_identity_is_json_and_names_what_decides_a_feature(encoder):
    identity = encoder.identity()
    assert json.loads(json.dumps(identity)) == identity
    for key in ("name", "dim", "mean", "std", "weights_hash", "runtime", "precision", "device"):
        assert key in identity
    other = load_encoder(encoder.name, runtime=encoder.runtime, weights="random:8")
    assert other.identity() != identity
    assert other.weights_hash != encoder.weights_hash


@pytest.mark.parametrize("name", list_encoders())
def test_every_card_says_what_people_need(name):
    card = find_card(name)
    assert card.name == name
    assert card.title
    assert card.licence
    assert card.source.startswith(("hub:", "package:"))
    assert all(0.0 < value < 1.0 for value in (*card.mean, *card.std))
    json.dumps(card.identity())
