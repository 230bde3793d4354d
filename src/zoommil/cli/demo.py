"""Row 16, ``zoommil demo``: the whole path on synthetic slides, offline, in a few minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import extract as extract_command
from zoommil.cli import terminal
from zoommil.cli import tissue as tissue_command
from zoommil.cli.train import Bar

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.bags.cohort import Cohort

ENCODER = "efficientnet_lite0"
MAGNIFICATIONS = (1.25, 2.5, 10.0)


@dataclass(frozen=True)
class Size:
    """How much the demo makes and trains."""

    num_slides: int
    side_px: int
    epochs: int


FULL, QUICK = Size(num_slides=36, side_px=6144, epochs=30), Size(12, 4096, 10)

NEXT = """
The same with your own slides, a table cohort.csv of case_id, slide_id, label and path:

  zoommil tissue cohort.csv -o tissue
  zoommil extract cohort.csv -o bags --encoder resnet50
  zoommil split cohort.csv -o splits --folds 5
  zoommil train zoommil --cohort cohort.csv --bags bags --split splits/splits_0.csv -o runs/first
  zoommil predict runs/first/artefact slide.svs -o predictions
"""


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where everything goes.")] = Path(
        "zoommil-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller slides.")] = False,
    seed: Annotated[int, typer.Option(help="Another seed makes other slides.")] = 0,
) -> None:
    """Make synthetic slides, find tissue, extract bags, train ZoomMIL and ABMIL, compare.

    Everything happens offline and can be interrupted: the same command goes on.

    Example: `zoommil demo --quick`
    """
    from zoommil.bags.cohort import read_cohort

    size = QUICK if quick else FULL
    terminal.say(
        f"{size.num_slides} synthetic slides of {size.side_px} px at 10x; features of EfficientNet-"
        f"Lite0 (ImageNet); everything goes to {out}."
    )
    with _timed("slides"):
        table = _make_slides(out / "slides", size, seed)
    cohort = read_cohort(table)
    with _timed("tissue"):
        _find_tissue(cohort, out / "tissue")
    with _timed("features"):
        _extract(cohort, out / "bags")
    with _timed("training"):
        models = _train(cohort, out, size, seed)
    with _timed("prediction"):
        typer.echo(_comparison(models, cohort))
    terminal.say(f"look at {out / 'tissue' / tissue_command.SHEET}")
    terminal.say(NEXT)


def _make_slides(folder: Path, size: Size, seed: int) -> Path:
    from zoommil.synthetic.cohort import CohortSpec, write_cohort
    from zoommil.synthetic.spec import SlideSpec

    slide = SlideSpec(size_px=(size.side_px, size.side_px))
    spec = CohortSpec(num_slides=size.num_slides, slide=slide)
    with terminal.progress("making slides", size.num_slides, "slides") as advance:
        return write_cohort(folder, spec, seed, progress=lambda _done, _all: advance(1))


def _grid() -> Any:
    from zoommil.grid import GridSpec

    return GridSpec(magnifications=MAGNIFICATIONS)


def _find_tissue(cohort: Cohort, folder: Path) -> None:
    from zoommil.tissue import TissueSpec

    if not (folder / tissue_command.SHEET).exists():
        previews, _ = tissue_command.run(cohort.slides, folder, TissueSpec(), _grid())
        tissue_command.write_sheet(previews, folder / tissue_command.SHEET, columns=6)


def _extract(cohort: Cohort, folder: Path) -> None:
    from zoommil.extraction import EncoderChoice, ExtractionSpec

    spec = ExtractionSpec(grid=_grid(), encoders=(EncoderChoice(name=ENCODER),))
    if extract_command.run(cohort.slides, folder, spec):
        raise typer.Exit(1)


def _train(cohort: Cohort, out: Path, size: Size, seed: int) -> dict[str, Artefact]:
    """ZoomMIL, and ABMIL at the lowest and the highest magnification."""
    from zoommil.training.run import RunSpec
    from zoommil.training.train import train

    methods: dict[str, dict[str, Any]] = {
        "ZoomMIL": {"recipe": "zoommil", "model": {"name": "zoommil", "k": 4}},
        "ABMIL at the lowest": {"recipe": "abmil", "model": {"name": "abmil", "at": 0}},
        "ABMIL at the highest": {"recipe": "abmil", "model": {"name": "abmil", "at": -1}},
    }
    models = {}
    for name, table in methods.items():
        changes = {
            "training": {"epochs": size.epochs},
            "optimiser": {"lr": 3e-4},
            "seed": seed,
            "name": name,
        }
        run = RunSpec.compose(table, changes)
        folder = out / "runs" / name.lower().replace(" ", "_")
        with Bar(f"training {name}") as bar:
            models[name] = train(run, cohort, out / "bags", out=folder, report=bar)
    return models


def _comparison(models: dict[str, Artefact], cohort: Cohort) -> str:
    """Each model from the pixels of its test slides: what it is worth and what it costs."""
    from zoommil.inference.predictor import Predictor

    rows = []
    for name, artefact in models.items():
        predictor = Predictor.load(artefact)
        predictor.warm_up()
        slides = [cohort.slide(slide_id) for slide_id in _test_slides(artefact)]
        answers = [predictor.predict(slide.path) for slide in slides if slide.path]
        truth = zip(answers, slides, strict=True)
        right = sum(answer.label == slide.label for answer, slide in truth)
        patches = sum(answer.cost.patches for answer in answers) / len(answers)
        seconds = sum(answer.measured.seconds["total"] for answer in answers) / len(answers)
        rows.append([name, f"{right} of {len(slides)}", f"{patches:.0f}", f"{seconds:.2f}"])
    headers = ["model", "test slides right", "patches encoded a slide", "seconds a slide"]
    return f"\nfrom pixels:\n\n{terminal.table(headers, rows)}\n"


def _test_slides(artefact: Artefact) -> list[str]:
    """The ids of the slides that neither trained nor chose the model."""
    import csv

    assert artefact.folder is not None
    with (artefact.folder / "predictions_test.csv").open(newline="") as table:
        return [row["slide_id"] for row in csv.DictReader(table)]


@contextmanager
def _timed(stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    terminal.say(f"{stage}: {time.monotonic() - start:.0f} s")
