"""timm models: the published arguments build, tokens are pooled as their authors do."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from zoommil.encoders.building import build_network, count_macs
from zoommil.encoders.card import find_card, list_encoders
from zoommil.encoders.loading import load_encoder
from zoommil.encoders.timm_models import TimmNetwork, build_timm
from zoommil.encoders.weights import load_weights
from zoommil.errors import UnknownNameError

pytestmark = pytest.mark.skipif(
    find_spec("timm") is None, reason="the extra 'timm' is not installed"
)

CARDS = [name for name in list_encoders() if find_card(name).extra == "timm"]
# Gigamultiply-accumulates and millions of parameters as published, at the network's own input.
PUBLISHED = {
    "uni": (61.6, 303),
    "uni2_h": (185.5, 681),
    "virchow2": (170.1, 631),
    "h_optimus_0": (304.2, 1135),
    "gigapath": (228.1, 1135),
    "gpfm": (81.0, 303),
    "lunit_vits8": (22.4, 21.7),
    "kaiko_vitb16": (17.6, 85.8),
}


@pytest.fixture(autouse=True, scope="module")
def operators():
    """Two operators that torchvision needs to be imported and a torch of another build lacks."""
    try:
        import timm
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            library.define(name + arguments)
        import timm  # noqa: F401

        return library


@pytest.mark.parametrize("name", CARDS)
def test_every_card_builds_and_gives_its_dimensions(name):
    card = find_card(name)
    side = card.input_px
    with torch.device("meta"):
        network = build_network(card)
        features = network(torch.empty(2, 3, side, side))
    assert features.shape == (2, card.dim)


@pytest.mark.parametrize("name", PUBLISHED)
def test_architectures_have_the_published_size(name):
    gigamacs, millions = PUBLISHED[name]
    card = find_card(name)
    with torch.device("meta"):
        network = build_network(card)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert round(count_macs(card, 256) / 1e9, 1) == gigamacs
    assert parameters / 1e6 == pytest.approx(millions, rel=0.003)


def _small(pooling: str) -> TimmNetwork:
    network = build_timm(
        "vit_tiny_patch16_224", pooling=pooling, depth=2, img_size=64, reg_tokens=3
    )
    load_weights(network, find_card("kaiko_vits16"), "random:0")
    return network


def test_tokens_are_pooled_without_the_registers():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        tokens = _small("own").published.forward_features(images)
        own, first, both = (_small(kind)(images) for kind in ("own", "class", "class+mean"))
    assert tokens.shape == (2, 1 + 3 + 16, 192)
    assert torch.allclose(own, tokens[:, 0], atol=1e-6)
    assert torch.allclose(first, tokens[:, 0], atol=1e-6)
    expected = torch.cat([tokens[:, 0], tokens[:, 4:].mean(dim=1)], dim=1)
    assert torch.allclose(both, expected, atol=1e-6)


def test_any_model_is_loaded_by_name_on_every_runtime():
    patches = np.random.default_rng(0).integers(0, 256, (3, 256, 256, 3), dtype=np.uint8)
    reference = None
    for runtime in ("torch", "openvino"):
        encoder = load_encoder(
            "timm:resnet18.a1_in1k", runtime=runtime, precision="fp32", weights="random:0"
        )
        assert encoder.card.input_px == 224
        assert encoder.card.source == "hub:timm/resnet18.a1_in1k"
        features = encoder.encode(patches)
        assert features.shape == (3, 512)
        reference = features if reference is None else reference
        assert np.abs(features - reference).max() < 1e-5 * np.abs(reference).max()


def test_vision_transformers_agree_between_runtimes():
    patches = np.random.default_rng(0).integers(0, 256, (3, 256, 256, 3), dtype=np.uint8)
    ours, theirs = (
        load_encoder("kaiko_vits16", runtime=runtime, precision="fp32", weights="random:0")
        for runtime in ("torch", "openvino")
    )
    assert ours.weights_hash == theirs.weights_hash
    expected = ours.encode(patches)
    assert np.abs(theirs.encode(patches) - expected).max() < 1e-4 * np.abs(expected).max()


def test_an_unknown_timm_model_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'resnet5O'.*Did you mean 'resnet50"):
        load_encoder("timm:resnet5O")


def test_weights_are_named_as_timm_names_them():
    network = build_timm("vit_tiny_patch16_224", depth=1)
    assert "cls_token" in network.published.state_dict()
    assert "published.cls_token" in network.state_dict()
