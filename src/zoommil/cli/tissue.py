"""Row 16, ``zoommil tissue``: a cohort in; masks, outlines, grids and one contact sheet out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import options, terminal
from zoommil.errors import OutputError

if TYPE_CHECKING:
    import numpy as np

    from zoommil.bags.cohort import SlideRow
    from zoommil.grid import GridSpec
    from zoommil.tissue import TissueSpec

SHEET = "contact_sheet.png"


@dataclass(frozen=True)
class Preview:
    """One slide's entry of the contact sheet."""

    slide_id: str
    picture: np.ndarray
    caption: str


def tissue(
    cohort: options.CohortArgument,
    out: options.OutOption,
    magnifications: options.MagnificationsOption = "1.25,2.5,10",
    patch_px: options.PatchPxOption = 256,
    tissue: options.TissueOption = "otsu",
    tissue_threshold: options.ThresholdOption = 0.1,
    keep_ink: options.InkOption = False,
    scale: options.ScaleOption = "physical",
    mpp: options.MppOption = None,
    slides: options.SlidesOption = None,
    workers: options.WorkersOption = 1,
    columns: Annotated[int, typer.Option(help="Slides side by side on the sheet.", min=1)] = 4,
) -> None:
    """Make every slide's tissue mask and patch grid, to look at before anything is encoded.

    Writes `contact_sheet.png` (one picture of the cohort), and per slide `masks/`, `thumbnails/`,
    `contours/` and `contours_geojson/`, which QuPath opens: correct one there, name it in the
    table's `mask_path` column, and `zoommil extract` uses it.

    Example: `zoommil tissue cohort.csv -o tissue --magnifications 1.25,2.5,10`
    """
    grid = options.grid_spec(
        magnifications, patch_px=patch_px, tissue_threshold=tissue_threshold, scale=scale
    )
    spec = options.tissue_spec(tissue, keep_ink)
    rows = options.slides_of(cohort, slides, mpp)
    previews, num_failed = run(rows, out, spec, grid, workers=workers)
    if previews:
        write_sheet(previews, out / SHEET, columns)
        terminal.say(f"{len(previews)} masks in {out}; look at {out / SHEET}.")
    if num_failed:
        terminal.say(f"{num_failed} of {len(rows)} slides failed, named above.")
        raise typer.Exit(1)


def run(
    rows: tuple[SlideRow, ...], out: Path, spec: TissueSpec, grid: GridSpec, *, workers: int = 1
) -> tuple[list[Preview], int]:
    """Previews in the table's order, and how many slides failed."""
    from zoommil.engines.local import LocalEngine

    previews: dict[int, Preview] = {}
    num_failed = 0
    setup = partial(_make_preview, out, spec, grid)
    with terminal.progress("finding tissue", len(rows), "slides") as advance:
        for outcome in LocalEngine(workers).run(setup, rows):
            advance(1)
            if outcome.error is None:
                previews[outcome.index] = outcome.value
                continue
            if isinstance(outcome.error, OutputError):
                raise outcome.error
            num_failed += 1
            kind = type(outcome.error).__name__
            terminal.say(f"{outcome.task.slide_id} failed: {kind}: {outcome.error}")
    return [previews[index] for index in sorted(previews)], num_failed


def _make_preview(out: Path, spec: TissueSpec, grid: GridSpec) -> Callable[[SlideRow], Preview]:
    """The function that finds one slide's tissue, writes it and draws it."""
    return partial(preview_slide, out, spec, grid)


def preview_slide(out: Path, spec: TissueSpec, grid: GridSpec, row: SlideRow) -> Preview:
    """One slide's mask written and drawn with its grid."""
    from zoommil import PatchPyramid, find_tissue, open_slide
    from zoommil.grid.overlay import caption_of, draw_overlay

    with open_slide(row.path, mpp=row.mpp, scale=grid.scale) as slide:
        mask = find_tissue(slide, spec, mask=row.mask_path)
        pyramid = PatchPyramid.build(slide, mask, grid)
        mask.save(out)
        return Preview(row.slide_id, draw_overlay(slide, mask, pyramid), caption_of(mask, pyramid))


def write_sheet(previews: list[Preview], path: Path, columns: int) -> None:
    """Write one picture of all previews."""
    from PIL import Image

    from zoommil.files import atomic_path
    from zoommil.grid.contact_sheet import contact_sheet

    entries = [(p.slide_id, p.picture, p.caption) for p in previews]
    sheet = contact_sheet(entries, num_columns=columns)
    with atomic_path(path) as temporary:
        Image.fromarray(sheet).save(temporary, format="PNG")
