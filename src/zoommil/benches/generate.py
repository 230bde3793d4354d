"""Row 16, bench generate: what a very large synthetic slide costs to make and to open."""

from __future__ import annotations

import time
from pathlib import Path

from zoommil.benches.isolated import run_isolated
from zoommil.benches.results import BenchResult, Table

SIDE_PX = 100_000
TISSUE = 0.25


def bench_generate(folder: Path, *, side_px: int = SIDE_PX) -> BenchResult:
    """Time and memory of making one slide, and of opening it with mask and grid.

    Args:
        folder: where the slide goes; it is made anew and kept.
        side_px: its width and height.
    """
    path = folder / f"large-{side_px}.svs"
    path.unlink(missing_ok=True)
    made = run_isolated(make_slide, path, side_px)
    again = run_isolated(make_slide, path, side_px)
    opened = run_isolated(open_with_grid, path)
    rows = [
        ["made", f"{made['seconds']:.0f} s", f"{made['peak_gb']:.2f} GB"],
        ["found in the cache", f"{again['seconds']:.1f} s", f"{again['peak_gb']:.2f} GB"],
        ["opened, mask and grid", f"{opened['seconds']:.1f} s", f"{opened['peak_gb']:.2f} GB"],
    ]
    return BenchResult(
        name="generate",
        title="A very large synthetic slide",
        command="zoommil bench generate",
        tables=[
            Table(
                f"{side_px} x {side_px} px at 40x, {TISSUE:.0%} tissue",
                ["what", "time", "peak memory of the process"],
                rows,
            )
        ],
        notes=[
            f"The file has {path.stat().st_size / 1e9:.2f} GB.",
            f"The grid of 1.25x, 2.5x and 10x has {opened['num_patches']} patches; the mask found "
            f"{opened['tissue']:.0%} tissue.",
        ],
        data={"made": made, "cached": again, "opened": opened},
    )


def make_slide(path: Path, side_px: int) -> dict[str, float]:
    """Seconds and peak memory of writing the slide."""
    from zoommil.machine import peak_memory_bytes
    from zoommil.synthetic.slide import write_slide
    from zoommil.synthetic.spec import SlideSpec

    spec = SlideSpec(size_px=(side_px, side_px), magnification=40.0, tissue=TISSUE)
    start = time.perf_counter()
    write_slide(path, spec, seed=0)
    return {"seconds": time.perf_counter() - start, "peak_gb": peak_memory_bytes() / 1e9}


def open_with_grid(path: Path) -> dict[str, float]:
    """Seconds and peak memory from the closed file to the patch pyramid."""
    from zoommil import GridSpec, PatchPyramid, find_tissue, open_slide
    from zoommil.machine import keep_freed_memory, peak_memory_bytes

    keep_freed_memory()
    start = time.perf_counter()
    with open_slide(path) as slide:
        mask = find_tissue(slide)
        pyramid = PatchPyramid.build(slide, mask, GridSpec(magnifications=(1.25, 2.5, 10)))
    return {
        "seconds": time.perf_counter() - start,
        "peak_gb": peak_memory_bytes() / 1e9,
        "num_patches": sum(pyramid.num_patches),
        "tissue": float(mask.mask.mean()),
    }
