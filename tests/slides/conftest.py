"""Slide files that several tests of this folder read, written once."""

from __future__ import annotations

from pathlib import Path

import pytest
from slide_files import halving_pyramid, noise_picture, write_cells, write_tiff


@pytest.fixture(scope="session")
def noise_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A three-level pyramid (1, 2, 4) of noise, of odd size, mpp 0.25."""
    path = tmp_path_factory.mktemp("slides") / "noise.tif"
    return write_tiff(path, halving_pyramid(noise_picture(701, 533), 3), mpp=0.25)


@pytest.fixture(scope="session")
def one_level_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One level of noise, 2311 x 1203, mpp 0.25."""
    path = tmp_path_factory.mktemp("slides") / "one.tif"
    return write_tiff(path, [noise_picture(2311, 1203)], mpp=0.25, tile=256)


@pytest.fixture(scope="session")
def cells_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cells of 64 px on levels 1, 4 and 16, mpp 0.25."""
    path = tmp_path_factory.mktemp("slides") / "cells.tif"
    return write_cells(path, (4099, 3011), (1.0, 4.0, 16.0))
