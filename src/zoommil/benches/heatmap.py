"""Row 16, bench heatmap: a very large slide and its stored prediction in; time and memory out.

A heatmap is drawn from a stored prediction in a fresh process, from the closed files to the written
picture. Its memory is what the process grew by above its imports.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoommil.benches.generate import SIDE_PX, make_slide
from zoommil.benches.isolated import run_isolated
from zoommil.benches.paper_tasks import BRIGHT, PATCH_PX, Way
from zoommil.benches.results import BenchResult, Table

if TYPE_CHECKING:
    from zoommil.inference.prediction import Prediction
    from zoommil.slides.slide import Slide

MOST_SECONDS, MOST_GROWTH = 1.0, 200e6
EVERYTHING = Way("everything at 10x", (BRIGHT.lowest, BRIGHT.highest))
ENCODER = "resnet18"
_WAYS = {"zooming": BRIGHT.zooms[0], "everything": EVERYTHING}


@dataclass(frozen=True)
class Drawn:
    """What one process took to draw one thing.

    Attributes:
        seconds: from the closed files to the written picture.
        growth: bytes that its largest size was above its size after the imports.
    """

    seconds: float
    growth: float


@dataclass(frozen=True)
class Line:
    """One row of the page: what was drawn, of how many patches, by several processes."""

    what: str
    patches: int
    runs: tuple[Drawn, ...]

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def growth(self) -> float:
        """The largest."""
        return max(run.growth for run in self.runs)


def bench_heatmap(
    work: Path,
    *,
    slide: Path | None = None,
    ways: Sequence[str] = tuple(_WAYS),
    rounds: int = 3,
    encoder: str = ENCODER,
) -> BenchResult:
    """Seconds and memory of the heatmap, and of all pictures of a slide.

    Args:
        work: where slide and predictions are made unless they are there.
        slide: another one than that of ``bench generate``, of 100 000 x 100 000 px.
        ways: "zooming", and "everything" at the highest magnification.
        rounds: processes of each.
        encoder: of the predictions; its weights are random, they change no cost here.
    """
    if slide is None:
        slide = work / f"large-{SIDE_PX}.svs"
        run_isolated(make_slide, slide, SIDE_PX)
    lines, size = [], (0, 0)
    for name in ways:
        stored = work / "heatmap" / f"{name}-{slide.stem}.json"
        patches, size = run_isolated(store_prediction, slide, stored, name, encoder)
        for what, function in (("heatmap", draw_one), ("all pictures", draw_all)):
            out = work / "heatmap" / "drawn"
            runs = [run_isolated(function, stored, out) for _ in range(rounds)]
            lines.append(Line(f"{what}, {name}", patches, tuple(runs)))
    return _page(lines, size)


def store_prediction(
    path: Path, stored: Path, name: str, encoder: str
) -> tuple[int, tuple[int, int]]:
    """Predict a slide one way, unless that is stored; patches seen, and the slide's size."""
    from zoommil.benches.predict_runs import predictor_for, warm_encoder
    from zoommil.files import write_text
    from zoommil.grid import GridSpec
    from zoommil.inference.prediction import read_predictions

    if not stored.exists():
        way = _WAYS[name]
        grid = GridSpec(magnifications=way.magnifications, patch_px=PATCH_PX)
        predictor = predictor_for(way, grid, BRIGHT.num_classes, warm_encoder(encoder, "auto"))
        write_text(stored, predictor.predict(path).to_json(measured=True) + "\n")
    (prediction,) = read_predictions(stored)
    width, height = prediction.provenance["slide"]["size"]
    return prediction.cost.patches, (width, height)


def draw_one(stored: Path, out: Path) -> Drawn:
    """The heatmap as ``zoommil heatmap`` draws it, alone."""
    from zoommil.reports.heatmap import draw_heatmap, write_png

    start, before = _ready()
    prediction, slide = _opened(stored)
    with slide:
        write_png(out / "heatmap.png", draw_heatmap(prediction, slide))
    return _taken(start, before)


def draw_all(stored: Path, out: Path) -> Drawn:
    """Every picture and table of ``zoommil heatmap``."""
    from zoommil.reports.pictures import write_pictures

    start, before = _ready()
    prediction, slide = _opened(stored)
    with slide:
        write_pictures(out, prediction, slide)
    return _taken(start, before)


def _ready() -> tuple[float, int]:
    """The time and the process's size when everything is imported."""
    import cv2  # noqa: F401
    import PIL.ImageDraw
    import PIL.ImageFont  # noqa: F401
    import simplejpeg  # noqa: F401
    import tifffile  # noqa: F401

    import zoommil.reports.sources  # noqa: F401
    from zoommil.machine import resident_memory_bytes

    before = resident_memory_bytes()
    return time.perf_counter(), before


def _opened(stored: Path) -> tuple[Prediction, Slide]:
    from zoommil.reports.sources import load_predictions, open_predicted

    (prediction,) = load_predictions(stored)
    return prediction, open_predicted(prediction)


def _taken(start: float, before: int) -> Drawn:
    from zoommil.machine import peak_memory_bytes

    return Drawn(time.perf_counter() - start, float(peak_memory_bytes() - before))


def _page(lines: Sequence[Line], size: tuple[int, int]) -> BenchResult:
    single = [line for line in lines if line.what.startswith("heatmap")]
    seconds = max(line.seconds for line in single)
    growth = max(line.growth for line in single)
    holds = seconds < MOST_SECONDS and growth < MOST_GROWTH
    rows = [
        [
            line.what,
            str(line.patches),
            f"{line.seconds:.2f} s",
            f"{line.growth / 1e6:.0f} MB",
        ]
        for line in lines
    ]
    return BenchResult(
        name="heatmap",
        title="Heatmaps of a very large slide",
        command="zoommil bench heatmap",
        tables=[
            Table(
                f"A slide of {size[0]} x {size[1]} px, from a stored prediction",
                ["what", "patches seen", "time, median", "memory above imports, largest"],
                rows,
            )
        ],
        notes=[
            f"The heatmap alone: {seconds:.2f} s and {growth / 1e6:.0f} MB; expected: less than "
            f"{MOST_SECONDS:g} s and {MOST_GROWTH / 1e6:.0f} MB: "
            f"{'holds' if holds else '**does not hold**'}.",
            f"Each of {len(lines[0].runs)} processes: prediction read, slide opened and its "
            "fingerprint compared, heatmap of 1200 px drawn and written; page cache warm.",
            "All pictures: heatmap, one map per step, overlay pyramid, zoom path, best patches, "
            "tables and GeoJSON.",
        ],
        data={
            "size": list(size),
            "lines": [asdict(line) for line in lines],
            "seconds": seconds,
            "growth_bytes": growth,
            "holds": holds,
        },
    )
