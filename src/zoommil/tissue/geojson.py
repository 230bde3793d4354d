"""Row 3, tissue: masks come in, QuPath's GeoJSON comes out, and the polygons of such files back."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Literal

from shapely.geometry.base import BaseGeometry

from zoommil.tissue.raster import RASTER_KEY, Raster

if TYPE_CHECKING:
    from zoommil.tissue.mask import TissueMask

_COLOUR = [0, 128, 96]


def feature_collection(mask: TissueMask, frame: Literal["slide", "bounds"]) -> dict[str, Any]:
    """A mask as a feature collection: one annotation per piece, level-0 coordinates.

    An extra member says which raster it came from, so that reading it back is exact; other tools
    pass over it.
    """
    from zoommil.tissue.outlines import outlines_of

    shift = mask.frame.bounds[:2] if frame == "bounds" else (0, 0)
    corner = (mask.origin[0] - shift[0], mask.origin[1] - shift[1])
    pieces = outlines_of(mask.mask)
    return {
        "type": "FeatureCollection",
        "features": [_feature(piece, n, corner, mask) for n, piece in enumerate(pieces, start=1)],
        RASTER_KEY: raster_of(mask, frame).model_dump(mode="json"),
    }


def raster_of(mask: TissueMask, frame: Literal["slide", "bounds"] = "slide") -> Raster:
    """What places a mask's pixels on its slide."""
    height, width = mask.mask.shape
    return Raster(
        origin=mask.origin,
        downsample=mask.downsample,
        width=width,
        height=height,
        slide_size=mask.frame.size,
        frame=frame,
    )


def polygons_of(content: Any) -> tuple[list[BaseGeometry], int]:
    """The polygons of a parsed GeoJSON file, and how many features were no areas.

    Takes feature collections, bare lists of features (older QuPath), single features and bare
    geometries. Areas classed ``Ignore*`` are left out, as QuPath does.

    Raises:
        ValueError, KeyError, TypeError: it is not GeoJSON.
    """
    from shapely.geometry import shape

    polygons, num_others = [], 0
    for feature in _features(content):
        geometry = feature["geometry"] if feature["type"] == "Feature" else feature
        if _class_name(feature).endswith("*") or geometry is None:
            continue
        areas = [part for part in _simple_parts(shape(geometry)) if part.geom_type == "Polygon"]
        polygons += areas
        num_others += not areas
    return polygons, num_others


def _simple_parts(geometry: BaseGeometry) -> list[BaseGeometry]:
    """A geometry's parts that are not empty, collections opened however deep."""
    inner = getattr(geometry, "geoms", None)
    if inner is None:
        return [] if geometry.is_empty else [geometry]
    return [part for member in inner for part in _simple_parts(member)]


def _features(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    if content["type"] == "FeatureCollection":
        return content["features"]
    return [content]


def _class_name(feature: dict[str, Any]) -> str:
    classification = (feature.get("properties") or {}).get("classification") or {}
    return str(classification.get("name", "")) if isinstance(classification, dict) else ""


def _feature(
    piece: Any, number: int, corner: tuple[float, float], mask: TissueMask
) -> dict[str, Any]:
    """One piece of tissue as a QuPath annotation; its id follows from its outline."""
    rings = [piece.exterior, *piece.interiors]
    coordinates = [
        [
            [round(corner[0] + x * mask.downsample, 2), round(corner[1] + y * mask.downsample, 2)]
            for x, y in ring.coords
        ]
        for ring in rings
    ]
    area_um2 = piece.area * (mask.downsample * mask.frame.mpp) ** 2
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"zoommil:{mask.frame.slide_id}:{coordinates}")),
        "geometry": {"type": "Polygon", "coordinates": coordinates},
        "properties": {
            "objectType": "annotation",
            "name": f"Tissue {number}",
            "classification": {"name": "Tissue", "color": _COLOUR},
            "measurements": {"Area um^2": round(area_um2, 1)},
            "isLocked": False,
        },
    }
