"""Row 4, grid: a slide and its tissue mask come in, nested patches (PatchPyramid) come out."""

from zoommil.grid.pyramid import PatchPyramid, PatchStep
from zoommil.grid.spec import GridSpec

__all__ = ["GridSpec", "PatchPyramid", "PatchStep"]
