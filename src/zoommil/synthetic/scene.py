"""Row 2, synthetic: what a slide is drawn from: its plan, its swatches, its colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8, UInt32

from zoommil.synthetic.glands import GlandSwatch
from zoommil.synthetic.lesions import Region
from zoommil.synthetic.textures import RankedSwatch, Swatch
from zoommil.synthetic.tissue_shapes import TissueMaps


@dataclass(frozen=True)
class SlidePlan:
    """Where everything lies on a slide; the same for every label."""

    maps: TissueMaps
    regions: tuple[Region, ...]


@dataclass(frozen=True)
class GlandLayer:
    """Glands to show where ``density`` at their centre exceeds their rank."""

    density: UInt8[np.ndarray, "height width"]
    swatch: GlandSwatch
    kind: str
    origin: tuple[int, int]


@dataclass(frozen=True)
class SlideScene:
    """All that the pixels of one slide are made from."""

    mpp: float
    maps: TissueMaps
    stroma: Swatch
    fat: Swatch
    lymphocytes: RankedSwatch
    glands: tuple[GlandLayer, ...]
    edge_um: Float32[np.ndarray, "side side"]
    noise: tuple[UInt8[np.ndarray, "256 256 3"], UInt8[np.ndarray, "256 256 3"]]
    table: UInt32[np.ndarray, 65536]
    origins: dict[str, tuple[int, int]]  # where each swatch begins, px
