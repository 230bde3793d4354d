"""One small slide and a way to run commands in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from commands import run_here
from zoommil.synthetic.slide import SlideSpec, write_slide


@pytest.fixture(scope="session")
def small_slide(tmp_path_factory) -> Path:
    """A slide of 1024 px at 10x."""
    path = tmp_path_factory.mktemp("slide") / "one.svs"
    write_slide(path, SlideSpec(size_px=(1024, 1024), downsamples=(1, 4)), seed=3)
    return path


@pytest.fixture
def zoommil(capsys, monkeypatch):
    """``zoommil("info", path)`` runs a command here and says how it ended."""
    return partial(run_here, capsys, monkeypatch)
