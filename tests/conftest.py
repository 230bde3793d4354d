"""Fixtures for every test: where real data lies, and no network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real slides, bags and tiles; tests that need it are skipped without it."""
    folder = os.environ.get("ZOOMMIL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ZOOMMIL_DATA is not set to a folder of real data")
    return Path(folder)
