"""Runtimes: parity with plain torch, precision, threads, the cache, choices and their errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from zoommil import machine
from zoommil.encoders.building import build_network
from zoommil.encoders.card import find_card
from zoommil.encoders.encoder import Encoder, check_patches
from zoommil.encoders.loading import load_encoder
from zoommil.encoders.openvino_runtime import OpenVINORuntime, cache_folder
from zoommil.encoders.weights import load_weights
from zoommil.errors import ConfigError, EncoderError, MissingExtraError, UnknownNameError

NAMES = ["resnet50", "efficientnet_lite0"]
RUNTIMES = [
    "torch",
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(
            not OpenVINORuntime.is_available(), reason="the extra 'openvino' is not installed"
        ),
    ),
]


def _encoder(name: str, runtime: str, precision: str, **options) -> Encoder:
    """Real weights where a package has them."""
    weights = None if find_card(name).extra == "demo" else "random:0"
    return load_encoder(name, runtime=runtime, precision=precision, weights=weights, **options)


def _plain_features(name: str, patches: np.ndarray) -> np.ndarray:
    """What a straightforward port computes: no folding, no special memory layout."""
    card = find_card(name)
    network = build_network(card)
    load_weights(network, card, None if card.extra == "demo" else "random:0")
    mean, std = torch.tensor(card.mean), torch.tensor(card.std)
    images = (torch.from_numpy(patches).float() / 255.0 - mean) / std
    with torch.inference_mode():
        return network(images.permute(0, 3, 1, 2).contiguous()).numpy()


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", NAMES)
def test_fp32_is_what_a_plain_port_computes(name, runtime, tissue_patches):
    plain = _plain_features(name, tissue_patches)
    features = _encoder(name, runtime, "fp32").encode(tissue_patches)
    assert np.abs(features - plain).max() < 1e-5 * np.abs(plain).max()
    assert np.abs(features - plain).max() < 1e-3 * plain.std(axis=0).mean()


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", NAMES)
def test_bf16_errs_little_against_the_spread_between_patches(name, runtime, tissue_patches):
    exact = _encoder(name, runtime, "fp32").encode(tissue_patches)
    features = _encoder(name, runtime, "bf16").encode(tissue_patches)
    error = np.sqrt(((features - exact) ** 2).sum(axis=1).mean())
    spread = np.sqrt(((exact - exact.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert error < 0.15 * spread
    if machine.has_fast_bf16():
        assert error > 1e-4 * spread, "bf16 was not used: this is as exact as fp32"


def test_batch_norm_statistics_are_folded_in(tissue_patches):
    """Random weights leave every batch norm at mean 0 and variance 1; the packaged ones do not."""
    card = find_card("efficientnet_lite0")
    network = build_network(card)
    load_weights(network, card, None)
    variances = network.state_dict()["_blocks.3._bn1.running_var"]
    assert (variances - 1.0).abs().max() > 0.1


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_bit(name, runtime, precision, tissue_patches):
    before = torch.get_num_threads()
    try:
        single, double = (
            _encoder(name, runtime, precision, threads=threads).encode(tissue_patches[:3])
            for threads in (1, 2)
        )
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(single, double)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_threads_are_left_alone_unless_given(runtime, tissue_patches):
    before = torch.get_num_threads()
    _encoder("efficientnet_lite0", runtime, "fp32").encode(tissue_patches[:1])
    assert torch.get_num_threads() == before


def test_auto_takes_openvino_on_the_cpu_where_it_is_installed(monkeypatch):
    expected = "openvino" if OpenVINORuntime.is_available() else "torch"
    encoder = load_encoder("resnet18", device="cpu", weights="random:0")
    assert encoder.runtime == expected
    assert encoder.precision == ("bf16" if machine.has_fast_bf16() else "fp32")
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert load_encoder("resnet18", device="cpu", weights="random:0").runtime == "torch"
    with pytest.raises(MissingExtraError, match=r"pip install 'zoommil\[openvino\]'"):
        load_encoder("resnet18", runtime="openvino", device="cpu", weights="random:0")


def test_bf16_is_left_alone_where_it_is_slow(monkeypatch):
    monkeypatch.setattr(machine, "has_fast_bf16", lambda: False)
    encoder = load_encoder("resnet18", device="cpu", weights="random:0")
    assert encoder.precision == "fp32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "'tpu' is not known"),
        ({"device": "cuda:99"}, "torch sees . CUDA devices"),
        ({"precision": "fp16", "device": "cpu"}, "does not compute in fp16"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(options, message):
    with pytest.raises(ConfigError, match=message):
        load_encoder("resnet18", weights="random:0", **options)


def test_an_unknown_runtime_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown runtime 'onnx'. Known: torch, openvino"):
        load_encoder("resnet18", runtime="onnx", weights="random:0")


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (np.zeros((2, 64, 64, 3), np.float32), "float32"),
        ([1, 2], "list"),
        (np.zeros((2, 3, 64, 64), np.uint8), r"\(2, 3, 64, 64\), expected \(N, side, side, 3\)"),
        (np.zeros((2, 64, 32, 3), np.uint8), "side, side"),
        (np.zeros((64, 64, 3), np.uint8), "side, side"),
        (np.zeros((2, 16, 16, 3), np.uint8), "16 px wide"),
    ],
)
def test_arrays_that_are_no_patches_are_refused(patches, message):
    with pytest.raises(EncoderError, match=message):
        check_patches(patches)


openvino_only = pytest.mark.skipif(
    not OpenVINORuntime.is_available(), reason="the extra 'openvino' is not installed"
)


@openvino_only
def test_a_converted_network_is_kept_and_gives_the_same_bits(tmp_path, monkeypatch, tissue_patches):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = _encoder("efficientnet_lite0", "openvino", "fp32").encode(tissue_patches)
    kept = list(cache_folder().iterdir())
    assert [sorted(path.name for path in folder.iterdir()) for folder in kept] == [
        ["model.bin", "model.xml"]
    ]
    written = (kept[0] / "model.xml").stat().st_mtime_ns
    again = _encoder("efficientnet_lite0", "openvino", "fp32").encode(tissue_patches)
    assert np.array_equal(fresh, again)
    assert list(cache_folder().iterdir()) == kept
    assert (kept[0] / "model.xml").stat().st_mtime_ns == written
    (kept[0] / "model.xml").write_text("spoilt")
    assert np.array_equal(
        fresh, _encoder("efficientnet_lite0", "openvino", "fp32").encode(tissue_patches)
    )
    assert (kept[0] / "model.xml").stat().st_size > 1000


@openvino_only
def test_other_weights_are_another_entry_of_the_cache(tmp_path, monkeypatch, tissue_patches):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for seed in (0, 1):
        encoder = load_encoder("resnet18", runtime="openvino", weights=f"random:{seed}")
        encoder.encode(tissue_patches[:1])
    assert len(list(cache_folder().iterdir())) == 2


@openvino_only
def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch, tissue_patches):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    encoder = load_encoder("resnet18", runtime="openvino", weights="random:0")
    assert np.isfinite(encoder.encode(tissue_patches[:1])).all()


@openvino_only
def test_converting_reports_nothing_to_anybody(tmp_path):
    """Importing OpenVINO alone would: its sender must not be made, nor a connection tried."""
    code = (
        "import socket\n"
        "def refuse(*arguments, **options): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "import numpy as np, threading\n"
        "from zoommil.encoders.loading import load_encoder\n"
        "encoder = load_encoder('resnet18', runtime='openvino', weights='random:0')\n"
        "encoder.encode(np.zeros((1, 64, 64, 3), np.uint8))\n"
        "import sys\n"
        "sender = sys.modules.get('openvino_telemetry.main')\n"
        "made = sender and sender.Telemetry.__dict__.get('_SingletonMetaClass__single_instance')\n"
        "print('sender made' if made else 'quiet', threading.active_count())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stdout.strip() == "quiet 1", ended.stderr


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu(tissue_patches):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    exact = _encoder("efficientnet_lite0", "torch", "fp32", device="cpu").encode(tissue_patches)
    features = _encoder("efficientnet_lite0", "torch", "fp32", device="cuda").encode(tissue_patches)
    assert np.abs(features - exact).max() < 1e-4 * np.abs(exact).max()
    half = _encoder("efficientnet_lite0", "torch", "auto", device="cuda").encode(tissue_patches)
    assert np.abs(half - exact).max() < 0.1 * np.abs(exact).max()
