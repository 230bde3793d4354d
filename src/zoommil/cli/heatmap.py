"""Row 16, ``zoommil heatmap``: stored predictions and their slides in; pictures and tables out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.errors import ConfigError, OutputError, ZoomMILError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoommil.bags.cohort import Cohort
    from zoommil.inference.prediction import Prediction
    from zoommil.reports.truth import Region

PredictionsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PREDICTIONS", help="The folder that `zoommil predict` wrote, or its JSON lines."
    ),
]
SlidesOption = Annotated[
    str | None,
    typer.Option(
        "--slides",
        metavar="COHORT",
        help="The slides: a table, folder or glob; else where they lay when predicted.",
    ),
]
TruthOption = Annotated[
    str | None,
    typer.Option(
        "--truth", help="Annotated areas: a folder of GeoJSON by slide, or a column of the table."
    ),
]
FrameOption = Annotated[
    str,
    typer.Option("--frame", help="GeoJSON in the `slide`'s pixels, or its `bounds` (QuPath)."),
]


def heatmap(
    predictions: PredictionsArgument,
    out: options.OutOption,
    slides: SlidesOption = None,
    truth: TruthOption = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this slide; repeatable.")
    ] = None,
    quantity: Annotated[
        str, typer.Option("--of", help="`attention`, or the `score` patches are chosen by.")
    ] = "attention",
    values: Annotated[
        str, typer.Option("--values", help="`rank` within each magnification, or `raw`.")
    ] = "rank",
    longest_px: Annotated[
        int, typer.Option("--longest-px", help="Longer side of the heatmap.", min=16, max=20_000)
    ] = 1200,
    top: Annotated[int, typer.Option("--top", help="Patches of the last step to show.", min=1)] = 8,
    frame: FrameOption = "slide",
) -> None:
    """Draw where predictions looked: heatmaps, zoom paths, the best patches, files for QuPath.

    One folder per slide: heatmap.png, steps.png, path.svg, top_patches.png, overlay.ome.tiff,
    patches.csv and GeoJSON of every step and of the path.

    Example: `zoommil heatmap predictions --slides slides/ -o heatmaps`
    """
    from zoommil.reports.heatmap import HeatmapSpec
    from zoommil.reports.sources import load_predictions

    spec = options.checked(HeatmapSpec, quantity=quantity, scale=values, longest_px=longest_px)
    if frame not in ("slide", "bounds"):
        raise ConfigError(f"frame is {frame!r}; expected slide or bounds.")
    found = chosen(load_predictions(predictions), only)
    cohort = None if slides is None else options.cohort_of(slides)
    if run(found, out, cohort, spec=spec, truth=truth, frame=frame, num_top=top):
        raise typer.Exit(1)


def chosen(predictions: list[Prediction], only: list[str] | None) -> list[Prediction]:
    """The predictions of the slides asked for. Raises UnknownNameError for one there is not."""
    from zoommil.registry import unknown_name

    names = [prediction.slide_id for prediction in predictions]
    for name in only or ():
        if name not in names:
            raise unknown_name("slide", name, names)
    return [one for one in predictions if not only or one.slide_id in only]


def run(
    predictions: Sequence[Prediction],
    out: Path,
    cohort: Cohort | None,
    *,
    spec: Any = None,
    truth: str | None = None,
    **settings: Any,
) -> int:
    """Draw all of them with progress; how many failed, each said in a line."""
    from zoommil.reports.pictures import write_pictures
    from zoommil.reports.sources import open_predicted

    rows = {} if cohort is None else {row.slide_id: row for row in cohort.slides}
    num_failed = 0
    with terminal.progress("drawing", len(predictions), "slides") as advance:
        for prediction in predictions:
            try:
                with open_predicted(prediction, rows) as slide:
                    areas = truth_of(prediction.slide_id, cohort, truth)
                    folder = out / prediction.slide_id
                    write_pictures(folder, prediction, slide, spec, truth=areas, **settings)
            except OutputError:
                raise
            except ZoomMILError as error:
                num_failed += 1
                terminal.say(f"{prediction.slide_id} failed: {type(error).__name__}: {error}")
            advance(1)
    done = len(predictions) - num_failed
    terminal.say(f"heatmaps in {out}: {done} drawn, {num_failed} failed.")
    return num_failed


def truth_of(slide_id: str, cohort: Cohort | None, truth: str | None) -> Sequence[Region]:
    """The annotated areas of a slide; none where none are asked for or known."""
    from zoommil.bags.cohort import SlideRow
    from zoommil.reports.truth import read_regions, truth_path_of

    if truth is None:
        return ()
    row = SlideRow(slide_id, None, slide_id) if cohort is None else cohort.slide(slide_id)
    path = truth_path_of(row, truth, "" if cohort is None else cohort.source)
    return () if path is None else read_regions(path)
