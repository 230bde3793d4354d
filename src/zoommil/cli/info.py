"""Row 16, ``zoommil info``: a slide in; what it is, how it will be read and cut, printed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.errors import SlideError
from zoommil.units import magnification_label

if TYPE_CHECKING:
    from zoommil.grid import GridSpec
    from zoommil.slides.slide import Slide

PATCH_PX = 256


def info(
    slide: Annotated[Path, typer.Argument(help="A whole-slide image.")],
    magnifications: options.MagnificationsOption = "1.25,2.5,10",
    patch_px: options.PatchPxOption = PATCH_PX,
    mpp: options.MppOption = None,
    scale: options.ScaleOption = "physical",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    properties: Annotated[
        bool, typer.Option("--properties", help="Print the file's metadata too.")
    ] = False,
) -> None:
    """Say what a slide file is: reader, size, resolution and its source, levels, the grid.

    Example: `zoommil info a.svs --magnifications 1.25,2.5,10`
    """
    from zoommil import open_slide

    grid = options.grid_spec(magnifications, patch_px=patch_px, scale=scale)
    with open_slide(slide, mpp=mpp, scale=grid.scale) as opened:
        description = asdict(opened.describe())
        description["fingerprint"] = opened.fingerprint
        description["grid"] = _grid(opened, grid)
        if properties:
            description["properties"] = dict(opened.properties)
    if as_json:
        terminal.emit(description)
    else:
        typer.echo(_text(description))


def _grid(slide: Slide, spec: GridSpec) -> list[dict[str, Any]]:
    """What each step's grid over the whole slide would be, tissue not yet considered."""
    from zoommil.grid.cells import grid_shape
    from zoommil.units import mpp_of

    steps = []
    first = None
    for magnification in spec.magnifications:
        try:
            plan = slide.plan_of(mpp_of(magnification))
        except SlideError as error:
            steps.append({"magnification": magnification, "error": str(error)})
            continue
        if first is None:
            rows, columns = grid_shape(*slide.bounds[2:], spec.patch_px * plan.downsample)
            first = (rows * columns, plan.downsample)
        steps.append(
            {
                "magnification": magnification,
                "mpp": plan.mpp,
                "patch_side_level0": spec.patch_px * plan.downsample,
                "patches": first[0] * round(first[1] / plan.downsample) ** 2,
                "read_from_downsample": plan.level_downsample,
                "is_virtual": plan.is_virtual,
                "is_resampled": plan.is_resampled,
            }
        )
    return steps


def _text(found: dict[str, Any]) -> str:
    nominal = found["nominal_magnification"]
    lines = [
        f"{found['slide_id']}: {found['size'][0]} x {found['size'][1]}, {found['vendor']}, "
        f"read by {found['reader']}",
        f"resolution: {found['mpp']:.4g} um per pixel ({found['mpp_source']})"
        + (f", nominally {magnification_label(nominal)}" if nominal else ""),
        f"content: x {found['bounds'][0]}, y {found['bounds'][1]}, "
        f"{found['bounds'][2]} x {found['bounds'][3]}",
        f"fingerprint: {found['fingerprint']}",
        "",
        _level_table(found),
        "",
        _grid_table(found),
    ]
    lines += [f"note: {warning}" for warning in found["warnings"]]
    lines += [f"{key} = {value}" for key, value in found.get("properties", {}).items()]
    return "\n".join(lines)


def _level_table(found: dict[str, Any]) -> str:
    rows = [
        [
            str(index),
            f"{level['size'][0]} x {level['size'][1]}",
            f"{level['downsample']:.6g}",
            f"{level['mpp']:.4g}",
            f"{level['block_size'][0]} x {level['block_size'][1]}",
        ]
        for index, level in enumerate(found["levels"])
    ]
    return terminal.table(["level", "size", "downsample", "um/px", "block"], rows)


def _grid_table(found: dict[str, Any]) -> str:
    rows = []
    for step in found["grid"]:
        label = magnification_label(step["magnification"])
        if "error" in step:
            rows.append([label, "-", "-", step["error"]])
            continue
        how = "halved" if step["is_virtual"] else "stored"
        source = f"{how} level at downsample {step['read_from_downsample']:.6g}"
        resampled = ", resampled" if step["is_resampled"] else ""
        side = f"{step['patch_side_level0']:.6g}"
        rows.append([label, side, str(step["patches"]), source + resampled])
    headers = ["grid", "side (level 0)", "patches without a mask", "read from"]
    return terminal.table(headers, rows)
