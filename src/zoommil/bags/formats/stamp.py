"""Row 7, bags: STAMP's feature files, whose coordinates are micrometres, to bags and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zoommil.bags.bag import Bag
from zoommil.bags.checks import as_storage
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
from zoommil.errors import BagError


class StampFormat(FeatureFormat):
    """``feats`` (N, D) float16 and ``coords`` (N, 2), ``unit`` "um": top-left x, y in micrometres.

    The one file this package writes whose ``coords`` are not level-0 pixels: STAMP reads no other,
    and the attribute ``unit`` says so.
    """

    name = "stamp"

    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The one-step bag in a file. Raises BagError without the slide's ``mpp``."""
        with open_foreign(path, self.name) as file:
            features = need_array(file, "feats", path, self.name)
            corners_um = need_array(file, "coords", path, self.name).astype(np.float64)
            attributes = plain_attributes(file)
        exact = found_arguments(attributes)
        level0_mpp = options.mpp or exact.get("level0_mpp")
        if attributes.get("unit") != "um":
            raise BagError(
                f"{str(path)!r}: coordinates are in {attributes.get('unit', 'no stated unit')!r}; "
                "expected STAMP 2's unit 'um'. Extract again with STAMP 2."
            )
        if level0_mpp is None:
            raise BagError(
                f"{str(path)!r} has coordinates in micrometres. Pass mpp=..., the microns per "
                "pixel of the slide's level 0, to turn them into pixels."
            )
        stated = {}
        if {"tile_size_um", "tile_size_px"} <= set(attributes):
            tile_um, tile_px = float(attributes["tile_size_um"]), int(attributes["tile_size_px"])
            stated = {"patch_px": tile_px, "side": tile_um / level0_mpp, "mpp": tile_um / tile_px}
        found = Found(
            features=features,
            corners=corners_um / level0_mpp,
            encoder=str(attributes.get("extractor", "")),
            attributes=kept_attributes(attributes),
            **{**stated, **exact},
        )
        return placed_bag(found, path, options, self.name)

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:
        """Write one step. Raises BagError without the slide's mpp, or beyond float16's range."""
        found, info = placed_step(bag, step, self.name)
        if bag.slide_mpp is None:
            raise BagError(
                f"bag {bag.slide_id!r} does not say its slide's mpp, which STAMP's micrometres "
                "need. Import it again with mpp=..."
            )
        assert found.corners is not None
        with write_foreign(path) as file:
            features = as_storage(found.features, "float16", f"bag {bag.slide_id!r}")
            file.create_dataset("feats", data=features, track_times=False)
            corners_um = (found.corners * bag.slide_mpp).astype(np.float32)
            file.create_dataset("coords", data=corners_um, track_times=False)
            file.attrs.update(
                {
                    "unit": "um",
                    "tile_size_um": info.side * bag.slide_mpp,
                    "tile_size_px": info.patch_px,
                    "extractor": info.encoder,
                    "code_hash": "",
                    "feat_type": "tile",
                    **exact_attributes(bag, info),
                }
            )
