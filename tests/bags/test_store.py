"""Bag files: round trips, byte identity, partial and mapped reading, damage."""

from __future__ import annotations

import time

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoommil.bags.bag import Bag
from zoommil.bags.store import bag_key, open_features, read_bag, read_header, write_bag
from zoommil.errors import BagError


def assert_same(a: Bag, b: Bag) -> None:
    for name in ("slide_id", "dtype", "slide_mpp", "slide_size", "provenance", "key"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("features", "coords", "valid"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        for x, y in zip(left or (), right or (), strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype
    for x, y in zip(a.steps or (), b.steps or (), strict=True):
        np.testing.assert_array_equal(x.boxes, y.boxes)
        assert (x.magnification, x.mpp, x.patch_px, x.encoder) == (
            y.magnification, y.mpp, y.patch_px, y.encoder,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_round_trip_is_exact(tmp_path, make_bag, dtype):
    bag = make_bag(dtype=dtype)
    write_bag(bag, tmp_path / "a.h5")
    assert_same(bag, read_bag(tmp_path / "a.h5"))


def test_plain_vectors_round_trip(tmp_path):
    bag = Bag(features=(np.arange(6.0).reshape(3, 2),), coords=None)
    write_bag(bag, tmp_path / "a.h5")
    assert_same(bag, read_bag(tmp_path / "a.h5"))


def test_validity_round_trips(tmp_path, make_bag):
    bag = make_bag(ratios=(2,), num_parents=2)
    valid = tuple(np.arange(len(rows)) % 3 > 0 for rows in bag.features)
    bag = make_bag(ratios=(2,), num_parents=2, valid=valid)
    write_bag(bag, tmp_path / "a.h5")
    assert_same(bag, read_bag(tmp_path / "a.h5"))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ratios=st.lists(st.sampled_from([2, 3, 4, 8]), max_size=2).map(tuple),
    num_parents=st.integers(1, 4),
    width=st.integers(1, 5),
    mpp=st.floats(0.1, 1.0),
    dtype=st.sampled_from(["float16", "float32"]),
)
def test_any_bag_round_trips(tmp_path, make_bag, ratios, num_parents, width, mpp, dtype):
    bag = make_bag(ratios, num_parents, width, dtype, mpp=mpp)
    write_bag(bag, tmp_path / "a.h5")
    assert_same(bag, read_bag(tmp_path / "a.h5"))


def test_same_content_gives_same_bytes_at_any_time(tmp_path, make_bag):
    write_bag(make_bag(), tmp_path / "a.h5")
    time.sleep(1.1)  # HDF5 times have whole seconds
    (tmp_path / "elsewhere").mkdir()
    write_bag(make_bag(), tmp_path / "elsewhere" / "b.h5")
    written = (tmp_path / "a.h5").read_bytes()
    assert written == (tmp_path / "elsewhere" / "b.h5").read_bytes()
    write_bag(read_bag(tmp_path / "a.h5"), tmp_path / "c.h5")
    assert written == (tmp_path / "c.h5").read_bytes()


def test_float16_rounds_and_refuses_overflow(tmp_path, make_bag):
    bag = make_bag(ratios=(), num_parents=3)
    write_bag(bag, tmp_path / "a.h5", dtype="float16")
    read = read_bag(tmp_path / "a.h5")
    assert read.dtype == "float16"
    np.testing.assert_array_equal(read.features[0], bag.features[0].astype(np.float16))
    large = Bag(features=(np.array([[1.0, 65520.0]]),), slide_id="x")
    with pytest.raises(BagError, match=r"65520 in row 0, column 1 does not fit float16.*float32"):
        write_bag(large, tmp_path / "b.h5", dtype="float16")
    assert not list(tmp_path.glob("*b.h5*"))
    write_bag(large, tmp_path / "b.h5")
    assert read_bag(tmp_path / "b.h5").features[0][0, 1] == 65520.0


def test_other_tools_can_read_a_step(tmp_path, make_bag):
    bag = make_bag()
    write_bag(bag, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        group = file["10x"]
        assert group["features"].shape == (5 * 4 * 16, 8)
        assert group["coords"].dtype == np.int64
        np.testing.assert_array_equal(group["coords"], np.floor(bag.boxes(2)[:, :2] + 0.5))
        attributes = dict(group["coords"].attrs)
        assert attributes["patch_size"] == 256
        assert attributes["patch_size_level0"] == round(256 / 0.2431)
        assert attributes["level0_magnification"] == 40
        assert attributes["target_magnification"] == 10
        assert (attributes["overlap"], attributes["name"]) == (0, "007")
        assert (attributes["level0_width"], attributes["level0_height"]) == (60_000, 40_000)
        np.testing.assert_array_equal(group["parents"], np.arange(320) // 16)
        np.testing.assert_array_equal(
            group["rows_columns"][:] // 4, file["2.5x"]["rows_columns"][:][group["parents"][:]]
        )


def test_steps_are_read_alone(tmp_path, make_bag):
    bag = make_bag(ratios=(2, 2, 2))
    write_bag(bag, tmp_path / "a.h5")
    read = read_bag(tmp_path / "a.h5", steps=[-1])
    np.testing.assert_array_equal(read.features[0], bag.features[3])
    assert_same(read_bag(tmp_path / "a.h5", steps=(0, 1, 3)), bag.select((0, 1, 3)))
    assert_same(
        read_bag(tmp_path / "a.h5", magnifications=(1.25, 2.5, 10)),
        bag.at_magnifications((1.25, 2.5, 10)),
    )
    with h5py.File(tmp_path / "a.h5", "r+") as file:  # damage one step: the others still read
        file["2.5x/features"][0, 0] += 1
    assert read_bag(tmp_path / "a.h5", steps=[0]).num_steps == 1
    with pytest.raises(BagError, match=r"damaged: /2.5x/features"):
        read_bag(tmp_path / "a.h5", steps=[1])
    with pytest.raises(BagError, match=r"20x is not in the bag; it has 1.25x, 2.5x, 5x, 10x"):
        read_bag(tmp_path / "a.h5", magnifications=[20])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_features_are_memory_mapped(tmp_path, make_bag, dtype):
    bag = make_bag(dtype=dtype)
    write_bag(bag, tmp_path / "a.h5")
    for step in range(3):
        rows = open_features(tmp_path / "a.h5", step)
        assert isinstance(rows, np.memmap)
        assert rows.dtype == dtype
        assert rows.offset % 64 == 0
        np.testing.assert_array_equal(rows[[3, 1]], bag.features[step][[3, 1]])
    with pytest.raises(ValueError):
        rows[0, 0] = 1


def test_header_needs_no_features(tmp_path, make_bag):
    bag = make_bag()
    write_bag(bag, tmp_path / "a.h5")
    header = read_header(tmp_path / "a.h5")
    assert (header.counts, header.widths, header.ratios) == ((5, 20, 320), (8, 8, 8), (2, 4))
    assert header.magnifications == (1.25, 2.5, 10)
    assert header.key == bag.key == bag_key(tmp_path / "a.h5")


def test_h3_key_follows_the_provenance_not_the_file(tmp_path, make_bag):
    write_bag(make_bag(), tmp_path / "a.h5")
    changed = make_bag(provenance={"grid": {"patch_px": 256, "tissue_threshold": 0.2}})
    assert bag_key(tmp_path / "a.h5") == make_bag().key != changed.key
    assert read_bag(tmp_path / "a.h5", steps=[0]).key != make_bag().key


def test_h5_damaged_files_are_no_bags(tmp_path, make_bag):
    path = tmp_path / "a.h5"
    write_bag(make_bag(), path)
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert bag_key(path) is None
        with pytest.raises(BagError, match="truncated, damaged or not HDF5"):
            read_bag(path)
    path.write_text("slide,label\n")
    assert bag_key(path) is None
    assert bag_key(tmp_path / "missing.h5") is None
    assert bag_key(tmp_path) is None
    with pytest.raises(BagError, match="does not exist"):
        read_bag(tmp_path / "missing.h5")


def test_any_flipped_byte_is_noticed_or_harmless(tmp_path, make_bag):
    path = tmp_path / "a.h5"
    bag = make_bag(ratios=(2,), num_parents=2, width=2)
    write_bag(bag, path)
    whole = path.read_bytes()
    noticed = 0
    for place in np.random.default_rng(0).choice(len(whole), 60, replace=False):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        try:
            assert_same(read_bag(path), bag)
        except BagError:
            noticed += 1
    assert noticed > 10


def test_h5_a_failed_write_leaves_the_old_file(tmp_path, make_bag, monkeypatch):
    path = tmp_path / "a.h5"
    write_bag(make_bag(), path)
    whole = path.read_bytes()
    monkeypatch.setattr("zoommil.bags.store.metadata_hash", lambda file: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_bag(make_bag(seed=1), path)
    assert path.read_bytes() == whole
    assert [item.name for item in tmp_path.iterdir()] == ["a.h5"]


def test_other_files_and_versions_are_named(tmp_path, make_bag):
    with h5py.File(tmp_path / "clam.h5", "w") as file:
        file["features"] = np.zeros((2, 3))
    with pytest.raises(BagError, match=r"not a bag.*zoommil convert"):
        read_bag(tmp_path / "clam.h5")
    write_bag(make_bag(), tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["version"] = 9
    with pytest.raises(BagError, match="version 9; this zoommil reads version 1"):
        read_bag(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["version"] = 1
        file.attrs["level0_mpp"] = 0.5
    with pytest.raises(BagError, match="does not match its checksum"):
        read_bag(tmp_path / "a.h5")


def test_provenance_must_be_json(tmp_path, make_bag):
    with pytest.raises(BagError, match="not plain JSON"):
        write_bag(make_bag(provenance={"path": tmp_path}), tmp_path / "a.h5")
    with pytest.raises(BagError, match="not plain JSON"):
        write_bag(make_bag(provenance={"mpp": float("nan")}), tmp_path / "a.h5")
