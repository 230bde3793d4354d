"""What a grid may be asked for, and the errors that say why not."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from zoommil.errors import GridError
from zoommil.grid import GridSpec


def test_ratios_of_any_list():
    assert GridSpec(magnifications=(1.25, 2.5, 10)).ratios == (2, 4)
    assert GridSpec(magnifications=(20,)).ratios == ()
    assert GridSpec(magnifications=(10 / 9, 10 / 3, 10)).ratios == (3, 3)


def test_the_error_of_style_md():
    with pytest.raises(GridError) as caught:
        GridSpec(magnifications=(1.25, 3))
    assert str(caught.value) == (
        "magnifications 1.25, 3 are 2.4x apart; each step must be a whole multiple of the one "
        "before, as 1.25, 2.5."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"magnifications": ()}, "no magnifications"),
        ({"magnifications": (10, 2.5)}, "do not ascend"),
        ({"magnifications": (10, 10)}, "do not ascend"),
        ({"magnifications": (0, 10)}, "not a positive number"),
        ({"magnifications": (-5, 10)}, "not a positive number"),
        ({"magnifications": (float("nan"), 10)}, "not a positive number"),
        ({"magnifications": (10, float("inf"))}, "not a positive number"),
        ({"patch_px": 0}, "patch_px 0"),
        ({"patch_px": -256}, "patch_px -256"),
        ({"tissue_threshold": 1.5}, "between 0 and 1"),
        ({"child_tissue": -0.1}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_meant_is_one_line(options, message):
    with pytest.raises(GridError, match=message) as caught:
        GridSpec(**{"magnifications": (2.5, 10), **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("overlap", [1, 32, 256, 300, -1])
def test_h12_overlap_is_refused_with_the_reason(overlap):
    with pytest.raises(GridError, match="two parents"):
        GridSpec(magnifications=(2.5, 10), overlap=overlap)


def test_unknown_options_are_errors():
    with pytest.raises(ValidationError):
        GridSpec(magnifications=(2.5, 10), patch_size=224)


def test_a_spec_comes_back_from_json():
    spec = GridSpec(magnifications=(1.25, 2.5), child_tissue=0.05, order="row_major")
    assert GridSpec.model_validate_json(spec.model_dump_json()) == spec
