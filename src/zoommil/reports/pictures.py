"""Row 13, pictures: a prediction and its slide come in; a folder with everything drawn goes out.

heatmap.png         all steps in one, the finer over the coarser
steps.png           each step by itself, with its own values
path.svg            where it zoomed in; stands alone, says what each box is
top_patches.png     the last step's patches with the highest attention
overlay.ome.tiff    the heatmap as a pyramid with its pixel size and place
patches.csv         every patch with its values, raw and ranked
patches.geojson     the same for QuPath; step_0.geojson... one step each
path.geojson        the zoom path alone
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from zoommil.files import write_text
from zoommil.inference.geojson import NUM_TOP, feature_collection, path_collection
from zoommil.inference.prediction import Frame, Prediction
from zoommil.reports.frame import frame_of_slide, read_picture
from zoommil.reports.heatmap import (
    HeatmapSpec,
    draw_heatmap,
    draw_overlay,
    draw_steps,
    write_png,
)
from zoommil.reports.ome import write_ome
from zoommil.reports.patches import draw_top_patches, read_top_patches, write_patches
from zoommil.reports.truth import Region
from zoommil.reports.zoom_path import LONGEST_PX, path_svg
from zoommil.slides.slide import Slide


def write_pictures(
    folder: Path | str,
    prediction: Prediction,
    slide: Slide,
    spec: HeatmapSpec | None = None,
    *,
    truth: Sequence[Region] = (),
    frame: Frame = "slide",
    num_top: int = NUM_TOP,
) -> Path:
    """The folder, with the pictures and tables that this module's docstring lists.

    Args:
        folder: written to; files of these names are replaced.
        prediction: of the slide.
        slide: open.
        spec: of the heatmaps.
        truth: annotated areas to outline.
        frame: of the GeoJSON files: the slide's pixels, or from its bounds' corner (QuPath).
        num_top: how many of the last step's patches to show.
    """
    folder, spec = Path(folder), spec or HeatmapSpec()
    half = spec.model_copy(update={"longest_px": max(16, spec.longest_px // 2)})
    write_png(folder / "heatmap.png", draw_heatmap(prediction, slide, spec, truth=truth))
    write_png(folder / "steps.png", draw_steps(prediction, slide, half, truth=truth))
    overlay, place = draw_overlay(prediction, slide, spec, truth=truth)
    write_ome(folder / "overlay.ome.tiff", overlay, place, prediction.slide_id)
    small = frame_of_slide(slide, min(LONGEST_PX, spec.longest_px))
    svg = path_svg(prediction, small, read_picture(slide, small), truth=truth, num_top=num_top)
    write_text(folder / "path.svg", svg)
    best = read_top_patches(prediction, slide, num_top)
    write_png(folder / "top_patches.png", draw_top_patches(best))
    write_patches(folder / "patches.csv", prediction)
    write_geojson(folder, prediction, frame, num_top)
    return folder


def write_geojson(
    folder: Path, prediction: Prediction, frame: Frame = "slide", num_top: int = NUM_TOP
) -> None:
    """Write every patch, each step's patches, and the zoom path as files for QuPath."""
    collections = {
        "patches": feature_collection(prediction, frame),
        "path": path_collection(prediction, frame, num_top),
    }
    for position in range(len(prediction.steps)):
        collections[f"step_{position}"] = feature_collection(prediction, frame, [position])
    for name, collection in collections.items():
        write_text(folder / f"{name}.geojson", json.dumps(collection, ensure_ascii=False) + "\n")
