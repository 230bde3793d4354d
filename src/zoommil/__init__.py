"""zoommil: whole-slide image classification that learns where to look.

The public names below are imported on first use, so that ``import zoommil`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Slide": "zoommil.slides.slide",
    "open_slide": "zoommil.slides.opening",
    "TissueSpec": "zoommil.tissue",
    "TissueMask": "zoommil.tissue",
    "find_tissue": "zoommil.tissue",
    "GridSpec": "zoommil.grid",
    "PatchPyramid": "zoommil.grid",
    "load_encoder": "zoommil.encoders.loading",
    "list_encoders": "zoommil.encoders.loading",
    "Bag": "zoommil.bags.bag",
    "read_bag": "zoommil.bags.store",
    "write_bag": "zoommil.bags.store",
    "extract": "zoommil.extraction",
    "create_model": "zoommil.models.creation",
    "list_models": "zoommil.models.creation",
    "MILOutput": "zoommil.models.model",
    "Artefact": "zoommil.artefact",
    "RunSpec": "zoommil.training.run",
    "train": "zoommil.training.train",
    "Predictor": "zoommil.inference.predictor",
    "Prediction": "zoommil.inference.prediction",
    "Limits": "zoommil.inference.limits",
    "ZoomMILError": "zoommil.errors",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'zoommil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
