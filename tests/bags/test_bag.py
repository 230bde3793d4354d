"""Bags: what they accept, what they refuse, nesting, and selecting steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.checks import as_storage
from zoommil.errors import BagError


def test_numpy_torch_and_half_become_float32():
    bag = Bag(features=(np.zeros((2, 3)), torch.zeros(8, 4, dtype=torch.bfloat16)))
    assert [rows.dtype for rows in bag.features] == [np.float32, np.float32]
    assert bag.dtype == "float32"
    assert Bag(features=[torch.ones(2, 3, dtype=torch.float16)]).dtype == "float16"
    assert Bag(features=(np.ones((2, 3), np.int64),)).features[0].dtype == np.float32
    grad = torch.ones(2, 3, requires_grad=True)
    assert (
        Bag(features=(grad,), coords=(torch.tensor([[0, 0], [1, 2]]),)).coords[0].dtype == np.int64
    )


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((), "one matrix of features per step"),
        (np.zeros((3, 2)), "one matrix of features per step"),
        ((np.zeros(3),), "expected numbers of shape"),
        ((np.zeros((0, 3)),), "empty"),
        ((np.zeros((3, 0)),), "empty"),
        ((np.array([["a"]]),), "expected numbers"),
        ((np.array([[0.0, 1.0], [np.nan, 0.0]]),), "nan in row 1, column 0"),
        ((np.array([[0.0, np.inf]]),), "inf in row 0, column 1"),
        ((np.zeros((2, 3)), np.zeros((7, 3))), "step 0 has 2 rows and step 1 has 7"),
        ((np.zeros((2, 3)), np.zeros((2, 3))), "ratio of 2 or more"),
        ((np.zeros((8, 3)), np.zeros((2, 3))), "step 0 has 8 rows"),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises(BagError, match=message):
        Bag(features=features, slide_id="s")


def test_bad_coords_valid_and_types():
    rows = np.zeros((2, 3))
    with pytest.raises(BagError, match=r"expected \(2, 2\)"):
        Bag(features=(rows,), coords=(np.zeros((3, 2), int),))
    with pytest.raises(BagError, match="whole numbers"):
        Bag(features=(rows,), coords=(np.full((2, 2), 0.5),))
    with pytest.raises(BagError, match="1 steps of features but 2 of coords"):
        Bag(features=(rows,), coords=(np.zeros((2, 2), int),) * 2)
    with pytest.raises(BagError, match="expected 2 booleans"):
        Bag(features=(rows,), valid=(np.ones(3, bool),))
    with pytest.raises(BagError, match="'int8' is not known"):
        Bag(features=(rows,), dtype="int8")


def test_geometry_gives_exact_corners_and_coords(make_bag):
    bag = make_bag(ratios=(2, 4))
    assert bag.ratios == (2, 4)
    assert bag.magnifications == (1.25, 2.5, 10)
    for step in range(3):
        boxes = bag.boxes(step)
        np.testing.assert_array_equal(bag.coords[step], np.floor(boxes[:, :2] + 0.5))
    parents, children = bag.boxes(0), bag.boxes(1)
    for row in range(5):
        inside = children[bag.children(0, np.array([row]))]
        assert (inside[:, :2] >= parents[row, :2] - 1e-6).all()
        corner = parents[row, :2] + parents[row, 2:] + 1e-6
        assert (inside[:, :2] + inside[:, 2:] <= corner).all()
    np.testing.assert_array_equal(bag.children(1, np.array([0, 2]))[[0, 15, 16]], [0, 15, 32])


def test_h9_level_0_coordinates_are_divided_by_their_own_steps_side(make_bag):
    """Rows and columns follow from the stored corners with each step's own level-0 side."""
    bag = make_bag(ratios=(2, 4), num_parents=7)
    for info, coords in zip(bag.steps, bag.coords, strict=True):
        cells = np.rint((coords - [info.origin_x, info.origin_y]) / info.side)[:, ::-1]
        np.testing.assert_array_equal(cells, info.rows_columns)
        assert info.side == pytest.approx(info.patch_px * info.downsample)
        assert len(np.unique(cells, axis=0)) == len(cells)


def test_boxes_are_bit_for_bit_those_of_the_grid(make_bag):
    from zoommil.grid.cells import boxes_of_cells

    bag = make_bag(ratios=(2, 4), num_parents=7, mpp=0.2265)
    for info in bag.steps:
        exact = boxes_of_cells(info.rows_columns, (info.origin_x, info.origin_y), info.side)
        np.testing.assert_array_equal(info.boxes, exact)


def test_links_and_corners_that_do_not_fit_are_refused(make_bag):
    bag = make_bag(ratios=(2,), num_parents=2)
    low, high = bag.steps
    shuffled = StepInfo(**{**vars(high), "rows_columns": high.rows_columns[::-1]})
    with pytest.raises(BagError, match="row 0 of step 1 is not inside row 0 of step 0"):
        Bag(bag.features, steps=(low, shuffled))
    with pytest.raises(BagError, match=r"8x apart, but the rows of their features 2x"):
        Bag(bag.features, steps=(low, StepInfo(**{**vars(high), "magnification": 10})))
    with pytest.raises(BagError, match=r"coords of step 1, row 6.*level-0 top-left"):
        Bag(bag.features, [bag.coords[0], bag.coords[1] // 2], steps=bag.steps)
    with pytest.raises(BagError, match="finite and above 0"):
        StepInfo(**{**vars(high), "side": 0})


def test_steps_without_a_grid_use_their_corners():
    info = StepInfo(20, 0.5, 2, 256, 0, 0, 512)
    bag = Bag((np.zeros((2, 3)),), (np.array([[7, 9], [519, 9]]),), steps=(info,))
    np.testing.assert_array_equal(bag.boxes(0), [[7, 9, 512, 512], [519, 9, 512, 512]])
    with pytest.raises(BagError, match="not on one grid"):
        _ = info.boxes
    with pytest.raises(BagError, match="does not say where"):
        Bag((np.zeros((2, 3)),)).boxes(0)


def test_check_9_skipping_a_stored_step_equals_building_without_it(make_bag):
    bag = make_bag(ratios=(2, 2, 2))
    skipped = bag.at_magnifications((1.25, 2.5, 10))
    assert skipped.ratios == (2, 4)
    for row in range(20):
        block = skipped.children(1, np.array([row]))
        through = bag.children(2, bag.children(1, np.array([row])))
        np.testing.assert_array_equal(skipped.features[2][block], bag.features[3][through])
    assert skipped.key != bag.key
    assert bag.select((0, 1, 2, 3)) is bag
    assert bag.select([-1]).magnifications == (10,)


def test_steps_that_cannot_be_selected(make_bag):
    bag = make_bag(ratios=(3, 2), num_parents=2)
    with pytest.raises(BagError, match="powers of two"):
        bag.select((0, 2))
    assert bag.select((1, 2)).ratios == (2,)
    for steps in ((), (1, 0), (0, 0), (-4,)):
        with pytest.raises(BagError, match="ascending"):
            bag.select(steps)
    with pytest.raises(BagError, match="has 3"):
        bag.select((3,))
    with pytest.raises(BagError, match="5x is not in the bag"):
        bag.at_magnifications((5,))


def test_storage_rounding_is_to_nearest_even():
    values = np.array([[2049.0, 2051.0, 1 / 3]])
    assert as_storage(values, "float16")[0].tolist() == [2048.0, 2052.0, np.float16(1 / 3)]
    assert as_storage(values, "float32").dtype == np.float32
    with pytest.raises(BagError, match="does not fit float16"):
        as_storage(np.array([[-1e5]]), "float16")


@pytest.mark.parametrize("name", ["musk1", "elephant", "fox"])
def test_classic_mil_sets_become_bags(real_data, name):
    """The documented way from a MATLAB MIL set to bags."""
    import scipy.io

    folder = real_data / "bags" / f"{name}_scaled"
    arrays = {}
    for path in folder.glob("*.mat"):
        content = scipy.io.loadmat(path)
        arrays |= {key.lower(): value for key, value in content.items() if key[0] != "_"}
    # In these files bag2 names the bag of every vector and bagi the label (0, 1) of every bag.
    vectors, index, labels = arrays["x"], arrays["bag2"].ravel(), arrays["bagi"].ravel()
    bags = [Bag(features=(vectors[index == i],), slide_id=str(i)) for i in np.unique(index)]
    assert set(labels.tolist()) == {0, 1}
    assert len(bags) == len(labels) == {"musk1": 92, "elephant": 200, "fox": 200}[name]
    expected = vectors[np.argsort(index, kind="stable")].astype(np.float32)
    np.testing.assert_array_equal(np.concatenate([bag.features[0] for bag in bags]), expected)
