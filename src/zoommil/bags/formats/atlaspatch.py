"""Row 7, bags: AtlasPatch's files, features by encoder and five-column coordinates, to bags."""

from __future__ import annotations

from pathlib import Path

import h5py

from zoommil.bags.bag import Bag
from zoommil.bags.formats.foreign import need_array, open_foreign, plain_attributes
from zoommil.bags.formats.format import FeatureFormat, ImportOptions, placed_bag
from zoommil.bags.formats.trident import found_of
from zoommil.errors import BagError


class AtlasPatchFormat(FeatureFormat):
    """``features/<encoder>`` (N, D) and ``coords`` (N, 5): level-0 x, y, then how it was read."""

    name = "atlaspatch"
    can_write = False

    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The one-step bag of one encoder; ``encoder`` says which when there are several."""
        with open_foreign(path, self.name) as file:
            group = file.get("features")
            if not isinstance(group, h5py.Group) or not len(group):
                raise BagError(
                    f"{str(path)!r} has no features/<encoder>; run AtlasPatch's process."
                )
            encoder = options.encoder or str(next(iter(group)))
            if (options.encoder is None and len(group) > 1) or encoder not in group:
                raise BagError(
                    f"{str(path)!r} has features of {', '.join(group)}. Choose with encoder=..."
                )
            features = need_array(group, encoder, path, self.name)
            corners = need_array(file, "coords", path, self.name)[:, :2]
            attributes = plain_attributes(file)
        found = found_of(features, corners, {**attributes, "encoder": encoder})
        return placed_bag(found, path, options, self.name)
