"""Ctrl-C and SIGTERM: one line that says how to go on, exit code 130, no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from commands import interrupt, run, start, wait_until
from zoommil.cli.interruption import sentence


@pytest.fixture(scope="module")
def slides(tmp_path_factory) -> Path:
    """A folder of twelve small pictures with a piece of something on white."""
    folder = tmp_path_factory.mktemp("slides")
    picture = np.full((1500, 1500, 3), 245, np.uint8)
    picture[300:1100, 200:1300] = (190, 90, 160)
    for number in range(12):
        Image.fromarray(picture).save(folder / f"s{number}.tif")
    return folder


def test_it_says_what_is_kept_and_how_to_go_on():
    assert sentence(["extract", "my slides", "-o", "bags"]) == (
        "interrupted. Every finished bag is kept; to go on, give the same command again: "
        "zoommil extract 'my slides' -o bags"
    )
    assert "Nothing is kept without --out DIR" in sentence(["predict", "model", "a.svs"])
    assert "Every answer" in sentence(["-v", "predict", "model", "a.svs", "--out=there"])
    assert "Nothing is left half-written" in sentence(["tissue", "a.svs", "-o", "there"])


def test_ctrl_c_ends_a_command_with_130(zoommil, monkeypatch, small_slide):
    def interrupt_it(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("zoommil.cli.options.grid_spec", interrupt_it)
    ended = zoommil("info", small_slide)
    assert ended.code == 130
    assert ended.errors == f"{sentence(['info', str(small_slide)])}\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_background_job_stays_deaf_to_ctrl_c():
    """As under nohup: what was ignored when we were started is ignored."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from zoommil.cli.interruption import handled\n"
        "with handled(): assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tissue_with_workers(slides, tmp_path, number):
    process = start("tissue", slides, "-o", tmp_path, "--mpp", "1", "--workers", "2")
    wait_until(process, lambda: any((tmp_path / "masks").glob("*.png")))
    interrupt(process, number)
    assert not list(tmp_path.rglob(".*.tmp"))
    assert not (tmp_path / "contact_sheet.png").exists()


def test_workers_end_with_a_command_that_is_killed(slides, tmp_path):
    process = start("tissue", slides, "-o", tmp_path, "--mpp", "1", "--workers", "2")
    wait_until(process, lambda: any((tmp_path / "masks").glob("*.png")))
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.communicate(timeout=60)
    assert not psutil.wait_procs(family, timeout=20)[1]


def train_words(vectors: Path, out: Path) -> list[str | Path]:
    words = ["--cohort", vectors / "cohort.csv", "--bags", vectors / "bags", "-o", out]
    return [*words, "--set", "training.epochs=15"]


def test_train_goes_on_after_its_last_epoch(vectors, tmp_path):
    words = ["train", "abmil", *train_words(vectors, tmp_path)]
    process = start(*words)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline().startswith('{"epoch": ')
    errors = interrupt(process, signal.SIGTERM)
    assert "the last checkpoint" in errors
    before = (tmp_path / "curves.csv").read_text().splitlines()
    done = run(*words)
    assert done.returncode == 0, done.stderr
    after = (tmp_path / "curves.csv").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 16
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_crossval_with_workers_goes_on(vectors, tmp_path):
    words = ["crossval", "abmil", *train_words(vectors, tmp_path), "--folds", "3", "--workers", "2"]
    process = start(*words)
    wait_until(process, lambda: any(tmp_path.glob("*/seed_0/artefact/artefact.json")))
    interrupt(process)
    (finished,) = list(tmp_path.glob("*/seed_0/artefact/artefact.json"))[:1]
    before = finished.stat().st_mtime_ns
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert finished.stat().st_mtime_ns == before
    assert (tmp_path / "crossval.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("demo", "--quick"), ("bench", "step")], ids=lambda w: w[0])
def test_demo_and_bench(words, tmp_path):
    process = start(*words, cwd=tmp_path)
    time.sleep(4)
    interrupt(process)
    assert not list(tmp_path.rglob(".*.tmp"))
