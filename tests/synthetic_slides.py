"""Small synthetic slides for tests, and a look at their levels through OpenSlide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoommil.synthetic.spec import SlideSpec

SEED = 11


def small_spec(**changes: Any) -> SlideSpec:
    """Four by three and a half millimetres at 5x: the swatches are small and quick to draw."""
    settings: dict[str, Any] = {
        "size_px": (2048, 1800),
        "magnification": 5.0,
        "tissue": 0.6,
        "num_foci": (2, 2),
        "num_decoys": (1, 1),
        "focus_mm": (0.7, 1.0),
        "quality": 92,
    }
    return SlideSpec(**(settings | changes))


def read_level(path: Path, level: int) -> np.ndarray:
    """All pixels of one level of a slide, as OpenSlide sees them."""
    import openslide

    with openslide.OpenSlide(path) as slide:
        size = slide.level_dimensions[level]
        return np.asarray(slide.read_region((0, 0), level, size).convert("RGB"))
