"""Row 3, tissue: a slide comes in, where it has tissue (TissueMask) comes out."""

from zoommil.tissue.finding import find_tissue
from zoommil.tissue.mask import SlideFrame, TissueMask, tissue_identity
from zoommil.tissue.reading import load_mask
from zoommil.tissue.spec import OtsuSettings, PaperSettings, TissueSpec

__all__ = [
    "OtsuSettings",
    "PaperSettings",
    "SlideFrame",
    "TissueMask",
    "TissueSpec",
    "find_tissue",
    "load_mask",
    "tissue_identity",
]
