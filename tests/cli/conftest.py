"""One small slide and a way to run commands in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from commands import run_here
from zoommil.bags.bag import Bag
from zoommil.bags.store import write_bag
from zoommil.synthetic.slide import SlideSpec, write_slide


@pytest.fixture(scope="session")
def small_slide(tmp_path_factory) -> Path:
    """A slide of 1024 px at 10x."""
    path = tmp_path_factory.mktemp("slide") / "one.svs"
    write_slide(path, SlideSpec(size_px=(1024, 1024), downsamples=(1, 4)), seed=3)
    return path


@pytest.fixture(scope="session")
def vectors(tmp_path_factory) -> Path:
    """Bags of plain vectors in ``bags/``, and their labels in ``cohort.csv``."""
    folder = tmp_path_factory.mktemp("vectors")
    lines = ["case_id,slide_id,label"]
    generator = np.random.default_rng(0)
    for number in range(24):
        rows = generator.normal(size=(40, 16)).astype(np.float32) + number % 2
        write_bag(Bag(features=(rows,), slide_id=f"s{number}"), folder / "bags" / f"s{number}.h5")
        lines.append(f"c{number},s{number},{('no', 'yes')[number % 2]}")
    (folder / "cohort.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def zoommil(capsys, monkeypatch):
    """``zoommil("info", path)`` runs a command here and says how it ended."""
    return partial(run_here, capsys, monkeypatch)
