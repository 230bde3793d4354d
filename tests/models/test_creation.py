"""Models by name: the table, the presets of methods.md B, and what is refused."""

from __future__ import annotations

import sys

import pytest
import torch

from zoommil.errors import ModelError, UnknownNameError
from zoommil.models.creation import create_model, list_models, list_presets


def zoommil(**settings):
    return create_model("zoommil", feature_dim=8, num_classes=2, ratios=(2,), k=3, **settings)


def test_the_models_are_those_of_the_design():
    assert list_models()[:8] == [
        "zoommil",
        "abmil",
        "clam_sb",
        "clam_mb",
        "transmil",
        "sparseconvmil",
        "maxmil",
        "meanmil",
    ]


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("default", ("softmax", 0.002, 0.002, "diagonal", True)),
        ("paper", ("softmax", 0.002, 0.002, "diagonal", False)),
        ("robust", ("zero_one", 0.3, 0.0, "diagonal", True)),
        ("exact", ("softmax", 0.002, 0.002, "full", False)),
    ],
)
def test_presets_are_those_of_the_specification(preset, expected):
    assert preset in list_presets("zoommil")
    model = zoommil(preset=preset)
    selector = model.selector
    found = (selector.score, selector.sigma_at(0.0), selector.sigma_at(1.0))
    assert (*found, selector.jacobian, selector.straight_through) == expected
    assert selector.num_samples == 100
    assert model.dropout == 0.25


def test_keywords_go_before_the_preset():
    assert zoommil(preset="robust", sigma=0.1).selector.sigma_at(0.0) == 0.1


def test_without_a_seed_torch_decides_weights_and_noise():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(zoommil().state_dict())
    assert all(map(torch.equal, states[0].values(), states[1].values()))
    other = zoommil().state_dict()
    assert not torch.equal(other["_extra_state"], states[0]["_extra_state"])


def test_what_nobody_knows_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'transmil'"):
        create_model("transmill", feature_dim=8, num_classes=2)
    with pytest.raises(UnknownNameError, match=r"preset of zoommil 'papr'\. Did you mean 'paper'"):
        zoommil(preset="papr")
    with pytest.raises(ModelError, match=r"no setting 'sgima'\. Did you mean 'sigma'"):
        zoommil(sgima=0.1)


def test_feature_widths_that_do_not_fit_the_steps_are_refused():
    for widths in ((8, 8, 8), (0, 8), ()):
        with pytest.raises(ModelError, match="feature_dim"):
            create_model("zoommil", feature_dim=widths, num_classes=2, ratios=(2,))


def test_members_are_imported_on_use(tmp_path):
    import subprocess

    code = (
        "import sys; from zoommil.models.creation import create_model, list_models; list_models();"
        "create_model('meanmil', feature_dim=4, num_classes=2);"
        "assert 'zoommil.models.transmil' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
