"""Findings about this machine and about machines that lack something."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from zoommil import machine
from zoommil.diagnosis import diagnose, selftest
from zoommil.diagnosis.computer import check_disk, check_memory, check_threads
from zoommil.diagnosis.software import check_requirements, lacking, requirements
from zoommil.diagnosis.weights import check_encoder, where_weights_are
from zoommil.encoders.card import find_card
from zoommil.errors import UnknownNameError


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path, monkeypatch):
    """No weights on this disk, no token, no network asked for."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def test_every_finding_that_is_not_ok_has_a_remedy():
    findings = list(diagnose(["uni", "resnet18"], has_selftest=False))
    assert len({finding.name for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.text
        assert finding.status == "ok" or finding.remedy, finding


def test_a_machine_that_runs_these_tests_has_no_problem_but_weights():
    problems = [f.name for f in diagnose(has_selftest=False) if f.status == "problem"]
    assert problems == []


def test_no_connection_is_opened(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert any(f.name == "hub" and f.status == "ok" for f in diagnose(has_selftest=False))


def test_online_says_that_the_hub_cannot_be_reached(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    (hub,) = [f for f in diagnose(is_online=True, has_selftest=False) if f.name == "hub"]
    assert hub.status == "problem"
    assert "no route" in hub.text
    assert "HTTPS_PROXY" in hub.remedy


def test_an_unknown_encoder_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'resnet50'"):
        list(diagnose(["resnet5"], has_selftest=False))


def test_weights_that_are_needed_and_gated():
    card = find_card("uni")
    assert where_weights_are(card) == "gated"
    needed = check_encoder(card, is_needed=True)
    assert needed.status == "problem"
    assert "huggingface.co/MahmoodLab/UNI" in needed.remedy
    assert check_encoder(card, is_needed=False).status == "note"


def test_weights_that_are_needed_offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    finding = check_encoder(find_card("resnet50"), is_needed=True)
    assert finding.status == "problem"
    assert "hf download timm/resnet50.tv_in1k model.safetensors" in finding.remedy


def test_weights_in_the_cache_are_here(tmp_path):
    repository = tmp_path / "hub" / "models--timm--resnet18.tv_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"\0")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    assert check_encoder(find_card("resnet18"), is_needed=True).status == "ok"
    assert where_weights_are(find_card("resnet34")) == "hub"


def test_requirements_that_are_not_met():
    found = lacking(
        [Requirement("numpy<1"), Requirement("surely-not-here>=1"), Requirement("h5py")]
    )
    assert found == {
        "numpy": f"{metadata.version('numpy')}, expected <1",
        "surely-not-here": "not installed",
    }
    assert check_requirements().status == "ok"


def test_extras_have_their_own_requirements():
    assert {one.name for one in requirements("tables")} == {"pyarrow", "openpyxl"}
    assert "pyarrow" not in {one.name for one in requirements()}
    assert "torch" in {one.name for one in requirements()}


def test_memory_and_disk_are_judged(tmp_path, monkeypatch):
    assert [check_memory(gb * 1e9).status for gb in (1, 3, 30)] == ["problem", "note", "ok"]
    deep = tmp_path / "not" / "there"
    for free, status in ((5e8, "problem"), (5e9, "note"), (5e10, "ok")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: _Usage(free))
        assert check_disk("disk", deep).status == status


class _Usage:
    def __init__(self, free: float) -> None:
        self.free = int(free)


def test_threads_that_are_told_otherwise(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(machine.num_cores() + 3))
    assert "wait for each other" in check_threads().text
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert check_threads().status == "ok"


def test_the_self_test_passes_here():
    start = time.process_time()  # what else runs here does not count
    findings = list(selftest.run_selftest())
    assert [f.status for f in findings] == ["ok"] * len(findings), findings
    names = {finding.name for finding in findings}
    assert {"self-test torch fp32", "self-test reader openslide"} <= names
    assert "self-test reader jpeg_tiles" in names
    assert time.process_time() - start < 30


def test_the_self_test_sees_wrong_features():
    wrong = selftest.stored_features() * 1.01
    finding, *_ = selftest.check_runtime("torch", wrong)
    assert finding.status == "problem"
    assert "--runtime openvino" in finding.remedy


def test_the_self_test_sees_wrong_pixels(tmp_path):
    """Lossless ones as they were written, JPEG as another decoder has it."""
    for reader, compression in (("openslide", "deflate"), ("jpeg_tiles", "jpeg")):
        path = tmp_path / f"{reader}.tiff"
        selftest.write_slide(path, compression)
        pixels = selftest.read_slide("openslide", path)
        right, wrong = pixels, np.roll(pixels, 1, axis=1)
        assert selftest.check_reader(reader, path, right, 3).status == "ok"
        assert selftest.check_reader(reader, path, wrong, 3).status == "problem"


def test_the_self_test_says_why_a_slide_cannot_be_read(tmp_path):
    path = tmp_path / "no.tiff"
    path.write_bytes(b"nothing")
    finding = selftest.check_reader("openslide", path, selftest.slide_pixels())
    assert (finding.status, finding.text[:12]) == ("problem", "cannot read:")


def test_stored_features_are_what_the_script_writes():
    """The patch and the weights come from seeds, so the file can be made again."""
    found = selftest.compute_features("torch", "fp32")
    stored = selftest.stored_features()
    assert stored.shape == (selftest.NUM_PATCHES, 512)
    np.testing.assert_allclose(found, stored, atol=1e-3 * stored.max())
    assert float(stored.std()) > 0.1  # features that say something


def test_doctor_without_a_cache_of_converted_networks(tmp_path):
    """The command in a process of its own, as a new user runs it."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    environment.pop("OMP_NUM_THREADS", None)
    words = [sys.executable, "-m", "zoommil", "doctor"]
    ended = subprocess.run(
        words, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Everything that is needed is here" in ended.stdout
    assert Path(tmp_path, "zoommil").exists() or "openvino: not installed" in ended.stdout
