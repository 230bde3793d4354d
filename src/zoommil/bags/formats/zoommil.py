"""Row 7, bags: this package's own bag files as one feature format among the others."""

from __future__ import annotations

from pathlib import Path

from zoommil.bags.bag import Bag
from zoommil.bags.formats.format import FeatureFormat, ImportOptions
from zoommil.bags.store import read_bag, write_bag


class ZoomMILFormat(FeatureFormat):
    """Bag files; see ``zoommil.bags.store``."""

    name = "zoommil"
    keeps_all_steps = True

    def read(self, path: Path, options: ImportOptions) -> Bag:  # noqa: ARG002
        """The bag in a file; it says all that options could."""
        return read_bag(path)

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:
        """Write a bag, or one step of it."""
        write_bag(bag if step is None else bag.select([step]), path)
