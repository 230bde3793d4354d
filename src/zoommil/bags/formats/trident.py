"""Row 7, bags: TRIDENT's ``features_<encoder>/<slide_id>.h5`` to bags and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from zoommil.bags.bag import Bag
from zoommil.bags.formats.foreign import (
    exact_attributes,
    found_arguments,
    kept_attributes,
    need_array,
    open_foreign,
    plain_attributes,
    write_foreign,
)
from zoommil.bags.formats.format import (
    FeatureFormat,
    Found,
    ImportOptions,
    placed_bag,
    placed_step,
)
from zoommil.bags.step_group import trident_attributes


class TridentFormat(FeatureFormat):
    """``features`` (N, D) float32 and ``coords`` (N, 2) with the patch geometry as attributes."""

    name = "trident"

    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The one-step bag in a file. Without ``mpp`` its scale is the nominal one."""
        with open_foreign(path, self.name) as file:
            features = need_array(file, "features", path, self.name)
            corners = need_array(file, "coords", path, self.name)
            attributes = plain_attributes(file["coords"])  # pyright: ignore[reportArgumentType]
            encoder = str(file["features"].attrs.get("encoder", ""))
        found = found_of(features, corners, {**attributes, "encoder": encoder})
        return placed_bag(found, path, options, self.name)

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:
        """Write one step: float32 features, level-0 corners rounded to whole pixels."""
        found, info = placed_step(bag, step, self.name)
        single = bag.select([step or 0])
        with write_foreign(path) as file:
            features = _dataset(file, "features", found.features)
            features.attrs.update({"encoder": info.encoder, "name": bag.slide_id})
            assert found.corners is not None
            coords = _dataset(file, "coords", np.floor(found.corners + 0.5).astype(np.int64))
            coords.attrs.update(trident_attributes(single, 0))
            coords.attrs["savetodir"] = ""
            coords.attrs.update(exact_attributes(bag, info))

    def output_paths(self, folder: Path, bag: Bag, step: int | None) -> list[Path]:
        """``{mag}x_{px}px_{overlap}px_overlap/features_{encoder}/{slide_id}.h5``."""
        _, info = placed_step(bag, step, self.name)
        patches = f"{info.label}_{info.patch_px}px_{info.overlap}px_overlap"
        return [folder / patches / f"features_{info.encoder or 'unknown'}" / f"{bag.slide_id}.h5"]


def found_of(features: np.ndarray, corners: np.ndarray, attributes: dict[str, Any]) -> Found:
    """What rows, corners and attributes in TRIDENT's spelling say."""
    size = (attributes.get("level0_width"), attributes.get("level0_height"))
    stated = {
        "patch_px": _number(attributes.get("patch_size"), int),
        "side": _number(attributes.get("patch_size_level0"), float),
        "magnification": _number(attributes.get("target_magnification"), float),
    }
    return Found(
        features=features,
        corners=corners,
        overlap=_number(attributes.get("overlap"), int) or 0,
        slide_size=None if None in size else (int(size[0] or 0), int(size[1] or 0)),
        encoder=str(attributes.get("encoder", "")),
        attributes=kept_attributes(attributes),
        **{**stated, **found_arguments(attributes)},
    )


def _number(value: Any, kind: type) -> Any:
    return None if value is None else kind(value)


def _dataset(file: h5py.File, name: str, values: np.ndarray) -> h5py.Dataset:
    return file.create_dataset(name, data=values, track_times=False)
