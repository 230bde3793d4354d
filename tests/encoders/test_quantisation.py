"""Int8: what quantising keeps of the features, what is stored, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from zoommil.encoders.loading import load_encoder
from zoommil.encoders.quantisation import (
    CONSTANTS_FILE,
    RECORD_FILE,
    copy_quantised,
    find_quantised,
    is_installed,
    kept_quantised,
    load_quantised,
    quantise,
)
from zoommil.errors import ConfigError, EncoderError, WeightsError

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'int8' is not installed")
LITE = "efficientnet_lite0"


@pytest.fixture(scope="module")
def patches() -> np.ndarray:
    """80 overlapping patches of stained tissue, 64 px."""
    import skimage.data

    image = skimage.data.immunohistochemistry()
    corners = np.random.default_rng(0).integers(0, 448, (80, 2))
    return np.stack([image[y : y + 64, x : x + 64] for x, y in corners])


@pytest.fixture(scope="module")
def network(patches, tmp_path_factory):
    """Lite0 with its real weights, calibrated on the first half."""
    return quantise(LITE, patches[:40], tmp_path_factory.mktemp("artefact"), slides=("abc",))


def test_features_err_less_than_they_spread(network, patches):
    exact = load_encoder(LITE, precision="fp32", device="cpu").encode(patches[40:])
    encoder = load_encoder(LITE, precision="int8", device="cpu", quantised=network.folder)
    features = encoder.encode(patches[40:])
    error = np.sqrt(((features - exact) ** 2).sum(axis=1).mean())
    spread = np.sqrt(((exact - exact.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert 0.05 * spread < error < 0.4 * spread  # below: it would not be int8
    assert np.array_equal(features[:3], encoder.encode(patches[40:43]))  # alone or among others
    assert (encoder.precision, encoder.runtime) == ("int8", "openvino")
    exact_identity = load_encoder(LITE, precision="fp32", device="cpu").identity()
    changed = {"precision": "int8", "runtime": "openvino", "quantised": network.hash}
    assert encoder.identity() == {**exact_identity, **changed}


def test_it_is_found_again_with_what_it_was_calibrated_on(network, tmp_path):
    root = network.folder.parent.parent
    assert find_quantised(root) == (network,)
    assert kept_quantised(LITE, root, 64) == network
    assert kept_quantised(LITE, root, 128) is None
    assert kept_quantised(LITE, tmp_path, 64) is None
    assert (network.calibration["patches"], network.calibration["slides"]) == (40, ["abc"])
    copied = copy_quantised(network, tmp_path)
    assert (copied.hash, copied.folder.parent.parent) == (network.hash, tmp_path)
    assert copy_quantised(network, tmp_path) == copied
    assert not list((tmp_path / "int8").glob(".*"))


@pytest.mark.parametrize("name", [CONSTANTS_FILE, RECORD_FILE])
def test_a_changed_file_is_refused(network, tmp_path, name):
    folder = shutil.copytree(network.folder, tmp_path / "copy")
    if name == RECORD_FILE:
        record = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**record, "files": {}}))
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"x")
    with pytest.raises(WeightsError, match="calibrate again"):
        load_quantised(folder)


def test_what_does_not_fit_is_one_line(network, patches, tmp_path):
    with pytest.raises(ConfigError, match="needs a network that was calibrated"):
        load_encoder(LITE, precision="int8", device="cpu")
    with pytest.raises(ConfigError, match="'torch' does not compute in int8"):
        load_encoder(LITE, precision="int8", device="cpu", runtime="torch")
    with pytest.raises(WeightsError, match="is not an int8 network"):
        load_encoder(LITE, precision="int8", device="cpu", quantised=tmp_path)
    with pytest.raises(WeightsError, match="of the encoder 'efficientnet_lite0', not of"):
        load_encoder("resnet18", precision="int8", device="cpu", quantised=network.folder)
    encoder = load_encoder(LITE, precision="int8", device="cpu", quantised=network.folder)
    with pytest.raises(EncoderError, match="32 px wide, the int8 network was calibrated on 64 px"):
        encoder.encode(np.ascontiguousarray(patches[:2, :32, :32]))
    with pytest.raises(EncoderError, match="31 patches are too few"):
        quantise(LITE, patches[:31], tmp_path)
    with pytest.raises(WeightsError, match="expected 0123"):
        quantise(LITE, patches[:40], tmp_path, weights_hash="0123")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_same_patches_give_the_same_bytes_quietly(tmp_path, patches):
    """In processes of their own: nothing printed, nobody told over the network."""
    np.save(tmp_path / "patches.npy", patches[:40])
    code = (
        "import socket\n"
        "def refuse(*arguments, **options): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "import sys, numpy as np\n"
        "from zoommil.encoders.quantisation import quantise\n"
        f"found = quantise('{LITE}', np.load('patches.npy'), sys.argv[1])\n"
        "sender = sys.modules.get('openvino_telemetry.main')\n"
        "made = sender and sender.Telemetry.__dict__.get('_SingletonMetaClass__single_instance')\n"
        "print('sender made' if made else 'quiet', found.hash)\n"
    )
    said = []
    for folder in ("first", "second"):
        ended = subprocess.run(
            [sys.executable, "-c", code, folder],
            env={"PATH": "/usr/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.stdout.startswith("quiet "), ended.stderr
        assert "INFO" not in ended.stderr
        said.append(ended.stdout)
    assert said[0] == said[1]
