"""Fixtures of the encoder tests: patches with something to see, and a cache of their own."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Converted networks of these tests go to a folder that goes with them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tissue_patches() -> np.ndarray:
    """Ten patches of stained tissue, 128 px."""
    skimage_data = pytest.importorskip("skimage.data")
    image = skimage_data.immunohistochemistry()
    return np.stack([image[30 * i : 30 * i + 128, 37 * i : 37 * i + 128] for i in range(10)])
