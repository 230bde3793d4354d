"""Cards: names, errors, third parties."""

from __future__ import annotations

import sys

import pytest
from pydantic import ValidationError

from zoommil.encoders.building import build_network, count_macs
from zoommil.encoders.card import EncoderCard, find_card, list_encoders
from zoommil.encoders.loading import load_encoder
from zoommil.errors import EncoderError, MissingExtraError, UnknownNameError


def test_h17_resnet50_is_the_third_stage_of_1024_features():
    card = find_card("resnet50")
    network = build_network(card)
    assert (card.dim, network.dim) == (1024, 1024)
    assert not any("layer4" in name for name in network.state_dict())
    encoder = load_encoder("resnet50", runtime="torch", weights="random:0")
    assert encoder.dim == 1024


def test_check_16_macs_are_counted_from_the_network():
    assert count_macs(find_card("resnet50"), 256) == 4_281_335_808
    assert round(count_macs(find_card("resnet50"), 224) / 1e9, 6) == 3.277898
    assert round(count_macs(find_card("resnet34"), 256) / 1e9, 6) == 4.784652
    assert round(count_macs(find_card("resnet34"), 224) / 1e9, 3) == 3.663
    assert round(count_macs(find_card("resnet18"), 224) / 1e9, 3) == 1.814


def test_the_encoder_counts_the_macs_of_its_own_network():
    encoder = load_encoder("efficientnet_lite0", runtime="torch", weights="random:0")
    assert 0.37e9 < encoder.macs_per_patch(224) < 0.41e9
    assert encoder.macs_per_patch(256) > encoder.macs_per_patch(224)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'uni_v3'.*Did you mean 'uni2_h'.*Known: resnet50"):
        load_encoder("uni_v3")


def test_pathology_models_are_listed_without_timm():
    names = list_encoders()
    for name in ("uni", "uni2_h", "virchow2", "h_optimus_1", "gigapath", "phikon_v2", "midnight"):
        assert name in names
    assert find_card("uni").gated
    assert not find_card("phikon_v2").gated


@pytest.mark.parametrize("name", ["uni2_h", "timm:resnet18"])
def test_without_timm_the_error_names_the_install_line(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=rf"'{name}'.*pip install 'zoommil\[timm\]'"):
        load_encoder(name, weights="random:0")


def test_cards_refuse_unknown_keys():
    row = find_card("resnet18").model_dump()
    with pytest.raises(ValidationError, match="licnse"):
        EncoderCard(**row, licnse="MIT")
    with pytest.raises(ValidationError, match="above 0"):
        EncoderCard(**{**row, "std": (0.2, 0.0, 0.2)})


def test_a_card_of_ones_own_is_loaded():
    card = find_card("resnet18").model_copy(update={"name": "mine", "mean": (0.5, 0.5, 0.5)})
    encoder = load_encoder(card, runtime="torch", weights="random:0")
    assert encoder.identity()["name"] == "mine"


def test_a_card_with_a_wrong_length_is_an_error():
    card = find_card("resnet18").model_copy(update={"dim": 513})
    with pytest.raises(EncoderError, match="gives 512 features, its card says 513"):
        load_encoder(card, weights="random:0")


def test_third_parties_add_cards_by_entry_point(tmp_path, monkeypatch):
    row = find_card("resnet18").model_copy(update={"name": "theirs"}).model_dump_json()
    (tmp_path / "their_package.py").write_text(
        "from zoommil.encoders.card import EncoderCard\n"
        f"card = EncoderCard.model_validate_json({row!r})\n"
        "no_card = 'a string'\n"
    )
    installed = tmp_path / "their_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their_package\nVersion: 1.0\n"
    )
    (installed / "entry_points.txt").write_text(
        "[zoommil.encoders]\ntheirs = their_package:card\nbroken = their_package:no_card\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {"theirs", "broken"} <= set(list_encoders())
    assert find_card("theirs").dim == 512
    with pytest.raises(EncoderError, match="'broken' of 'their_package:no_card'"):
        find_card("broken")
