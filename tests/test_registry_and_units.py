"""Names and numbers that everything else leans on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zoommil.errors import UnknownNameError
from zoommil.registry import Registry
from zoommil.units import (
    is_plausible_mpp,
    magnification_label,
    magnification_of,
    mpp_of,
    nominal_magnification,
    rounded_corners,
)


def test_an_unknown_name_names_the_nearest_known():
    registry = Registry("encoder", {"resnet50": "x:y", "uni2_h": "x:y"})
    with pytest.raises(UnknownNameError, match=r"unknown encoder 'resnet5'. Did you mean 'resnet5"):
        registry.load("resnet5")
    with pytest.raises(UnknownNameError) as caught:
        registry.load("zzz")
    assert "Did you mean" not in str(caught.value)
    assert "Known: resnet50, uni2_h." in str(caught.value)


def test_a_member_is_imported_on_use():
    assert Registry("thing", {"sqrt": "math:sqrt"}).load("sqrt") is math.sqrt


def test_magnification_and_mpp():
    assert mpp_of(40) == 0.25
    assert magnification_of(mpp_of(1.25)) == 1.25
    assert magnification_label(1.25) == "1.25x"
    assert magnification_label(10.0) == "10x"


@pytest.mark.parametrize(
    ("mpp", "nominal"), [(0.243, 40), (0.226, 40), (0.503, 20), (0.499, 20), (1.0, 10), (3.0, None)]
)
def test_nominal_magnification(mpp, nominal):
    assert nominal_magnification(mpp) == nominal


@pytest.mark.parametrize("mpp", [None, 0.0, -1.0, math.nan, math.inf, 352.8])
def test_implausible_mpp(mpp):
    assert not is_plausible_mpp(mpp)


def test_corners_round_half_up():
    boxes = np.array([[0.5, 1.49, 10, 10], [-0.5, 2.5, 10, 10]])
    assert rounded_corners(boxes).tolist() == [[1, 1], [0, 3]]
