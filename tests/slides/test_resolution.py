"""Where a slide's resolution comes from, and what happens when it cannot be known."""

from __future__ import annotations

import math

import pytest

from zoommil.errors import ResolutionError
from zoommil.slides.resolution import find_resolution

OPENSLIDE = {"openslide.mpp-x": "0.2265", "openslide.mpp-y": "0.2265"}
APERIO = {"aperio.MPP": "0.499"}
TIFF_CM = {"tiff.XResolution": "20000", "tiff.ResolutionUnit": "centimeter"}
TIFF_INCH = {"tiff.XResolution": "50800", "tiff.ResolutionUnit": "inch"}
POWER = {"openslide.objective-power": "20"}
NONSENSE = {"openslide.mpp-x": "352.78", "openslide.mpp-y": "352.78"}


@pytest.mark.parametrize(
    ("properties", "mpp", "source"),
    [
        (OPENSLIDE | APERIO | TIFF_CM | POWER, 0.2265, "openslide.mpp-x"),
        (APERIO | TIFF_CM | POWER, 0.499, "aperio.MPP"),
        (TIFF_CM | POWER, 0.5, "tiff.XResolution"),
        (TIFF_INCH, 0.5, "tiff.XResolution"),
        (POWER, 0.5, "openslide.objective-power"),
        (NONSENSE | APERIO, 0.499, "aperio.MPP"),
        ({"openslide.mpp-x": "0,25"}, 0.25, "openslide.mpp-x"),
    ],
)
def test_the_chain(properties, mpp, source):
    found = find_resolution("a.svs", properties)
    assert found.mpp == pytest.approx(mpp)
    assert found.source == source


@pytest.mark.parametrize("value", ["352.78", "0", "-0.25", "nan", "inf", "1e-9"])
def test_an_implausible_value_counts_as_missing_and_is_said(value):
    properties = {"openslide.mpp-x": value, "openslide.mpp-y": value}
    with pytest.raises(ResolutionError, match=r"openslide\.mpp-x says") as caught:
        find_resolution("a.svs", properties)
    assert "Pass mpp=" in str(caught.value)
    assert "\n" not in str(caught.value)
    found = find_resolution("a.svs", properties | APERIO)
    assert found.mpp == 0.499
    assert "ignored" in found.warnings[0]


def test_nothing_known_is_an_error_that_says_what_to_do():
    with pytest.raises(ResolutionError, match=r"'a.svs' has no usable mpp\. Pass mpp="):
        find_resolution("a.svs", {})


@pytest.mark.parametrize("given", [0.0, -1.0, math.nan, math.inf, 352.78])
def test_an_implausible_given_value_is_refused(given):
    with pytest.raises(ResolutionError, match="was given mpp"):
        find_resolution("a.svs", OPENSLIDE, given)


def test_a_given_value_wins_and_the_disagreement_is_said_with_both_numbers():
    found = find_resolution("a.svs", OPENSLIDE, 0.25)
    assert (found.mpp, found.source) == (0.25, "given")
    assert "0.25" in found.warnings[0]
    assert "0.2265" in found.warnings[0]


def test_a_given_value_within_one_percent_needs_no_warning():
    assert find_resolution("a.svs", OPENSLIDE, 0.2266).warnings == ()


def test_pixels_that_are_not_quite_square_use_the_mean_and_say_so():
    properties = {"openslide.mpp-x": "0.25", "openslide.mpp-y": "0.26"}
    found = find_resolution("a.svs", properties)
    assert found.mpp == pytest.approx(math.sqrt(0.25 * 0.26))
    assert "across" in found.warnings[0]


def test_pixels_far_from_square_are_not_believed():
    with pytest.raises(ResolutionError, match="more than 10% apart"):
        find_resolution("a.svs", {"openslide.mpp-x": "0.25", "openslide.mpp-y": "0.5"})


def test_an_objective_alone_is_called_nominal():
    assert "nominal" in find_resolution("a.svs", POWER).warnings[0]


def test_h1_mpp_is_never_rounded_to_a_nominal_bucket():
    for mpp in (0.2265, 0.243, 0.2999, 0.3, 0.503, 0.59):
        assert find_resolution("a.svs", {"openslide.mpp-x": str(mpp)}).mpp == mpp
