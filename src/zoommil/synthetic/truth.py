"""Row 2, synthetic: where the foci of a slide truly are, as polygons in level-0 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from zoommil.synthetic.scene import SlidePlan
from zoommil.synthetic.spec import SlideSpec

DECOY = "decoy"
LOOK_ALIKE = "look_alike"

_COLORS = {
    "low_grade": (230, 159, 0),
    "high_grade": (213, 94, 0),
    "tumor": (213, 94, 0),
    LOOK_ALIKE: (0, 114, 178),
    DECOY: (120, 120, 120),
}


@dataclass(frozen=True)
class TruthPolygon:
    """One place: a lesion of a class, a harmless look-alike, or a decoy with part of the hint."""

    name: str
    corners: Float64[np.ndarray, "corner 2"]  # level-0 px, x and y

    @property
    def is_focus(self) -> bool:
        """Whether the place carries the slide's class (a look-alike does: normal)."""
        return self.name != DECOY

    @property
    def is_lesion(self) -> bool:
        """Whether the place is diseased."""
        return self.name not in (DECOY, LOOK_ALIKE)


@dataclass(frozen=True)
class SlideTruth:
    """What is known of a synthetic slide: its label and its places."""

    label: str
    size_px: tuple[int, int]
    mpp: float
    polygons: tuple[TruthPolygon, ...]

    @property
    def lesions(self) -> tuple[TruthPolygon, ...]:
        """The diseased places; none on a normal slide."""
        return tuple(polygon for polygon in self.polygons if polygon.is_lesion)

    @property
    def foci(self) -> tuple[TruthPolygon, ...]:
        """The places that carry the class: lesions, or a normal slide's look-alikes."""
        return tuple(polygon for polygon in self.polygons if polygon.is_focus)

    def to_geojson(self) -> dict[str, Any]:
        """A FeatureCollection as QuPath reads it."""
        return {
            "type": "FeatureCollection",
            "properties": {
                "label": self.label,
                "size_px": list(self.size_px),
                "mpp": self.mpp,
            },
            "features": [_feature(polygon) for polygon in self.polygons],
        }


def truth_of(spec: SlideSpec, plan: SlidePlan) -> SlideTruth:
    """The truth of a slide, from the plan it is rendered from."""
    focus_name = spec.label if spec.is_lesion else LOOK_ALIKE
    polygons = tuple(
        TruthPolygon(focus_name if region.is_focus else DECOY, region.outline_um / spec.mpp)
        for region in plan.regions
    )
    return SlideTruth(spec.label, spec.size_px, spec.mpp, polygons)


def read_truth(value: dict[str, Any]) -> SlideTruth:
    """The truth that a FeatureCollection of :meth:`SlideTruth.to_geojson` holds."""
    about = value["properties"]
    polygons = tuple(
        TruthPolygon(
            feature["properties"]["classification"]["name"],
            np.array(feature["geometry"]["coordinates"][0][:-1], dtype=np.float64),
        )
        for feature in value["features"]
    )
    width, height = about["size_px"]
    return SlideTruth(about["label"], (width, height), about["mpp"], polygons)


def _feature(polygon: TruthPolygon) -> dict[str, Any]:
    ring = [[round(float(x), 2), round(float(y), 2)] for x, y in polygon.corners]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
        "properties": {
            "objectType": "annotation",
            "classification": {"name": polygon.name, "color": list(_COLORS[polygon.name])},
            "isLocked": True,
        },
    }
