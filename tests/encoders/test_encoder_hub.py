"""The hub, played by a server on this machine, and the local cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from safetensors.torch import save_file

from zoommil.encoders.building import build_network
from zoommil.encoders.card import find_card
from zoommil.encoders.weights import load_weights

REVISION = "0123456789abcdef0123456789abcdef01234567"


class _Hub(BaseHTTPRequestHandler):
    """Answers as the hub does when it refuses."""

    def do_HEAD(self):
        gated = "uni" in self.path.lower()
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "EntryNotFound")
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def _load(names: list[str], home, **environment: str) -> list[str]:
    """What loading in a process of its own prints: huggingface_hub reads its settings once."""
    code = (
        "from zoommil.encoders.card import find_card\n"
        "from zoommil.encoders.building import build_network\n"
        "from zoommil.encoders import weights\n"
        f"for name in {names!r}:\n"
        "    card = find_card(name)\n"
        "    try:\n"
        "        path = weights.find_weights(card)\n"
        "        print(weights.load_weights(build_network(card), card, path))\n"
        "    except weights.WeightsError as error:\n"
        "        print('WeightsError:', error)\n"
    )
    settings = {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ended.stdout.strip().splitlines()


def test_refused_weights_say_where_to_accept_and_what_was_looked_for(hub, tmp_path):
    gated, without = _load(["uni", "resnet18"], tmp_path, HF_ENDPOINT=hub)
    assert gated.startswith("WeightsError: the hub refuses the weights of the encoder 'uni'")
    assert "https://huggingface.co/MahmoodLab/UNI" in gated
    assert "hf auth login" in gated
    assert "has none of model.safetensors, pytorch_model.bin" in without


def test_offline_takes_what_is_cached_and_says_how_to_fetch_the_rest(hub, tmp_path):
    card = find_card("resnet18")
    network = build_network(card)
    expected = load_weights(network, card, "random:5")
    _fill_cache(tmp_path, network.state_dict())
    cached, missing = _load(["resnet18", "resnet50"], tmp_path, HF_ENDPOINT=hub, HF_HUB_OFFLINE="1")
    assert cached == expected
    assert "not in the local cache" in missing
    assert "hf download timm/resnet50.tv_in1k model.safetensors" in missing
    assert "--weights FILE" in missing


def _fill_cache(home, tensors) -> None:
    repository = home / "hub" / "models--timm--resnet18.tv_in1k"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    save_file(tensors, snapshot / "model.safetensors")
