"""What the tests of inference build on: small grids and bags, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

from zoommil.bags.bag import Bag
from zoommil.extraction import extract
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.slides.opening import open_slide
from zoommil.tissue import find_tissue

CLASSES = ("normal", "low", "high")
GRID = GridSpec(magnifications=(1.25, 2.5, 10), patch_px=32)
SMALL = {"embed_dim": 16, "attention_dim": 8}


def bag_of(path: Path, encoder, grid: GridSpec = GRID) -> Bag:
    """The bag of a slide, extracted in the ordinary way."""
    with open_slide(path, scale=grid.scale) as slide:
        return extract(slide, PatchPyramid.build(slide, find_tissue(slide), grid), encoder)


def spoil_tile(path: Path, level: int, column: int, row: int) -> None:
    """Make one tile of a tiled TIFF undecodable."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        across = -(-page.imagewidth // page.tilewidth)
        index = row * across + column
        offset, size = page.dataoffsets[index], page.databytecounts[index]
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"\0" * size)
