"""Row 13, truth: files of annotated regions come in; polygons in level-0 pixels go out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from shapely.geometry import Polygon, shape

from zoommil.bags.cohort import SlideRow
from zoommil.errors import ConfigError
from zoommil.synthetic.truth import DECOY, LOOK_ALIKE

NO_LESION = frozenset({DECOY, LOOK_ALIKE})
"""Names that synthetic slides give to places without disease."""

_ENDINGS = (".truth.geojson", ".geojson", ".json")


@dataclass(frozen=True, eq=False)
class Region:
    """One annotated area: its class ("" where the file names none) and its outline."""

    name: str
    polygon: Polygon

    @property
    def rings(self) -> list[Float[np.ndarray, "corner 2"]]:
        """The outline, then those of its holes, as level-0 (x, y)."""
        found = [self.polygon.exterior, *self.polygon.interiors]
        return [np.asarray(ring.coords, dtype=np.float64)[:, :2] for ring in found]


def read_regions(
    path: Path | str,
    names: Collection[str] | None = None,
    corner: tuple[float, float] = (0.0, 0.0),
) -> tuple[Region, ...]:
    """The areas of a GeoJSON file, as QuPath and this package's synthetic slides write it.

    Args:
        path: the file.
        names: only areas of these classes; None: all but what a synthetic slide calls harmless.
        corner: added to every point: the corner of the bounds, for files that count from there.

    Raises:
        ConfigError: it cannot be read or is not GeoJSON.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        regions = tuple(_regions_of(content, corner))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{str(path)!r} is no file of annotated areas ({type(error).__name__}: {error}). "
            "Expected GeoJSON with polygons in level-0 pixels, as QuPath exports it."
        ) from error
    return tuple(
        region
        for region in regions
        if (region.name not in NO_LESION if names is None else region.name in names)
    )


def truth_path_of(row: SlideRow, source: str, cohort: str = "") -> Path | None:
    """The file with a slide's annotated areas; None when there is none.

    Args:
        row: the slide.
        source: a folder of files named by slide, or a column of the cohort's table.
        cohort: the table, which paths in it are relative to.

    Raises:
        ConfigError: there is neither such a folder nor such a column.
    """
    folder = Path(source)
    if folder.is_dir():
        files = (folder / f"{row.slide_id}{ending}" for ending in _ENDINGS)
        return next((file for file in files if file.is_file()), None)
    if source not in row.extra:
        raise ConfigError(
            f"the truth {source!r} is neither a folder of GeoJSON files nor a column of the cohort "
            f"(beside the usual ones it has: {', '.join(row.extra) or 'none'})."
        )
    return Path(cohort).parent / row.extra[source] if row.extra[source] else None


def _regions_of(content: Any, corner: tuple[float, float]) -> Iterator[Region]:
    """Every polygon of a parsed file: a collection, a list of features, a feature, a geometry."""
    from shapely.affinity import translate

    features = content if isinstance(content, list) else content.get("features", [content])
    for feature in features:
        geometry = feature["geometry"] if feature["type"] == "Feature" else feature
        kind = (feature.get("properties") or {}).get("classification") or {}
        area = translate(shape(geometry), *corner)
        for part in getattr(area, "geoms", [area]):
            if part.geom_type == "Polygon" and not part.is_empty:
                yield Region(str(kind.get("name", "")), part if part.is_valid else _mended(part))


def _mended(polygon: Polygon) -> Polygon:
    """An outline that crosses itself, as its largest simple part."""
    parts = getattr(polygon.buffer(0), "geoms", [polygon.buffer(0)])
    return max(parts, key=lambda part: part.area)
