"""Row 16, ``zoommil demo``: the whole path on synthetic slides, offline, in a few minutes.

    slides/ tissue/ bags/ runs/ predictions/ heatmaps/    what each stage made
    report.html                                           one page about it all
    demo.json                                             the settings it was made with

Every stage keeps what is there already, so that an interrupted demo goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import heatmap as heatmap_command
from zoommil.cli import terminal
from zoommil.cli import tissue as tissue_command
from zoommil.errors import ConfigError, PredictionError

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.bags.cohort import Cohort, SlideRow
    from zoommil.inference.prediction import Prediction

ENCODER = "efficientnet_lite0"
MAGNIFICATIONS = (1.25, 2.5, 10.0)
PATCH_PX = 128
TRUTH = "truth_path"  # the column of the outlines of what was drawn into the slides


@dataclass(frozen=True)
class Size:
    """How much the demo makes and trains.

    Attributes:
        classes: of the slides, told apart by their nuclei.
        k: patches that ZoomMIL zooms into at each step.
    """

    num_slides: int
    side_px: int
    classes: tuple[str, ...]
    k: int
    epochs: int


FULL = Size(36, 6144, ("normal", "low_grade", "high_grade"), k=4, epochs=40)
QUICK = Size(24, 3072, ("normal", "tumor"), k=2, epochs=30)

_FASTER = {"optimiser": {"lr": 3e-4}}  # ABMIL needs half the epochs with it
METHODS: dict[str, dict[str, Any]] = {
    "ZoomMIL": {"recipe": "zoommil_robust", "model": {"name": "zoommil"}},
    "ABMIL at 10x": {"recipe": "abmil", "model": {"name": "abmil", "at": -1}, **_FASTER},
    "ABMIL at 1.25x": {"recipe": "abmil", "model": {"name": "abmil", "at": 0}, **_FASTER},
}
"""The model that zooms, the one that sees everything, and the one that never looks closer."""

OWN_SLIDES = """
The same with your own slides, a table cohort.csv of case_id, slide_id, label and path:

  zoommil extract cohort.csv -o bags
  zoommil train zoommil_robust --cohort cohort.csv --bags bags -o runs/first
  zoommil predict runs/first/artefact slides/ -o predictions
  zoommil report predictions --cohort cohort.csv -o report.html
"""


def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder. [zoommil-demo, or zoommil-demo-quick]"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller slides.")] = False,
    seed: Annotated[int, typer.Option(help="Another seed makes other slides.")] = 0,
) -> None:
    """Make synthetic slides, train ZoomMIL and ABMIL, predict from pixels, write a report.

    Everything happens offline, with an encoder whose weights come in a package (extra `demo`).
    Stop it with Ctrl-C, and the same command goes on.

    Example: `zoommil demo --quick`
    """
    size = QUICK if quick else FULL
    out = out or Path("zoommil-demo-quick" if quick else "zoommil-demo")
    start = time.monotonic()
    _claim(out, {**asdict(size), "seed": seed})
    encoder = _encoder_title()  # a missing one is said before anything is made
    terminal.say(f"zoommil demo, into {out}; nothing is downloaded. Encoder: {encoder} weights.\n")
    with _stage("slides", f"{size.num_slides} synthetic ones, {size.side_px} px wide at 10x"):
        cohort = _make_slides(out / "slides", size, seed)
    with _stage("tissue", f"found, outlined in {out / 'tissue' / tissue_command.SHEET}"):
        _find_tissue(cohort, out / "tissue")
    with _stage("features", f"of every patch at {_listed(MAGNIFICATIONS)}, for training"):
        _extract(cohort, out / "bags")
    with _stage("training", ", ".join(METHODS)):
        models = _train(cohort, out, size, seed)
    rows = [cohort.slide(slide_id) for slide_id in _test_slides(models["ZoomMIL"])]
    with _stage("prediction", f"of {len(rows)} slides that no model has seen, from their pixels"):
        answers = _predict(models, rows, out / "predictions")
    with _stage("pictures", f"of where ZoomMIL looked, in {out / 'heatmaps'}"):
        _draw(answers["ZoomMIL"], cohort, out / "heatmaps")
    with _stage("report", str(out / "report.html")):
        _write_report(out / "report.html", answers, models["ZoomMIL"], cohort, encoder)
    _conclude(answers, cohort, out / "report.html", time.monotonic() - start)


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Note what the folder is for. Raises ConfigError where it has another demo."""
    import json

    from zoommil.files import write_json

    path = out / "demo.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != settings:
        raise ConfigError(
            f"{str(out)!r} holds a demo with other settings. Pass another folder with --out, or "
            "delete it."
        )
    write_json(path, settings)


def _encoder_title() -> str:
    """What the encoder is. Raises WeightsError, with the line that installs them, without any."""
    from zoommil.encoders.card import find_card
    from zoommil.encoders.loading import load_encoder

    load_encoder(ENCODER)
    return find_card(ENCODER).title.split(";")[0]


def _make_slides(folder: Path, size: Size, seed: int) -> Cohort:
    from zoommil.bags.cohort import read_cohort
    from zoommil.synthetic.cohort import CohortSpec, write_cohort
    from zoommil.synthetic.spec import SlideSpec

    slide = SlideSpec.model_validate(
        {
            "size_px": (size.side_px, size.side_px),
            "magnification": MAGNIFICATIONS[-1],
            "classes": size.classes,
        }
    )
    spec = CohortSpec(num_slides=size.num_slides, slide=slide)
    with terminal.progress("making slides", size.num_slides, "slides") as advance:
        return read_cohort(write_cohort(folder, spec, seed, progress=lambda *_: advance(1)))


def _grid() -> Any:
    from zoommil.grid import GridSpec

    return GridSpec(magnifications=MAGNIFICATIONS, patch_px=PATCH_PX)


def _find_tissue(cohort: Cohort, folder: Path) -> None:
    from zoommil.tissue import TissueSpec

    if not (folder / tissue_command.SHEET).exists():
        previews, _ = tissue_command.run(cohort.slides, folder, TissueSpec(), _grid())
        tissue_command.write_sheet(previews, folder / tissue_command.SHEET, columns=6)


def _extract(cohort: Cohort, folder: Path) -> None:
    from zoommil.engines.local import LocalEngine
    from zoommil.extraction import EncoderChoice, ExtractionSpec, extract_cohort

    spec = ExtractionSpec(grid=_grid(), encoders=(EncoderChoice(name=ENCODER),))
    _follow("extracting", cohort.slides, extract_cohort(cohort.slides, folder, spec, LocalEngine()))


def _train(cohort: Cohort, out: Path, size: Size, seed: int) -> dict[str, Artefact]:
    """The artefact of each method; all with the same slides, a third of them for the test."""
    from zoommil.training.run import RunSpec
    from zoommil.training.train import train

    models = {}
    with terminal.progress("training", 2 * size.epochs, "epochs") as advance:
        for name, table in METHODS.items():
            epochs = size.epochs if name == "ZoomMIL" else size.epochs // 2
            changes = {
                "training": {"epochs": epochs},
                "data": {"test_fraction": 1 / 3},
                "seed": seed,
                "name": name,
            }
            if name == "ZoomMIL":
                changes["model"] = {"k": size.k}
            run = RunSpec.compose(table, changes)
            folder = out / "runs" / _file_name(name)
            models[name] = train(
                run, cohort, out / "bags", out=folder, report=_by_epoch(advance, name)
            )
    return models


def _by_epoch(advance: terminal.Advance, name: str) -> Callable[[Any], None]:
    return lambda progress: advance(1, note=name) if progress.stage == "epoch" else None


def _predict(
    models: Mapping[str, Artefact], rows: Sequence[SlideRow], folder: Path
) -> dict[str, list[Prediction]]:
    """Every model's answers for the slides, from their pixels."""
    from zoommil.engines.local import LocalEngine
    from zoommil.inference.cohort import PredictorChoice, predict_cohort
    from zoommil.reports.sources import load_predictions

    for name, artefact in models.items():
        assert artefact.folder is not None
        choice = PredictorChoice(artefact=artefact.folder)
        predictor = choice.load()
        predictor.warm_up()
        place = folder / _file_name(name)
        ended = predict_cohort(rows, place, choice, LocalEngine(), predictor=predictor)
        _follow(f"predicting, {name}", rows, ended)
    return {name: load_predictions(folder / _file_name(name)) for name in models}


def _follow(description: str, rows: Sequence[SlideRow], outcomes: Iterator[Any]) -> None:
    """Go through slides with a bar. Raises PredictionError for one that fails: none should."""
    from zoommil.extraction import SlideFailure

    with terminal.progress(description, len(rows), "slides") as advance:
        for outcome in outcomes:
            if isinstance(outcome, SlideFailure):
                raise PredictionError(
                    f"slide {outcome.slide_id} failed: {outcome.kind}: {outcome.reason} "
                    "Delete the demo's folder and start again; 'zoommil doctor' checks the machine."
                )
            advance(1)


def _draw(predictions: Sequence[Prediction], cohort: Cohort, folder: Path) -> None:
    from zoommil.reports.pictures import write_pictures
    from zoommil.reports.sources import open_predicted

    rows = {row.slide_id: row for row in cohort.slides}
    with terminal.progress("drawing", len(predictions), "slides") as advance:
        for one in predictions:
            truth = heatmap_command.truth_of(one.slide_id, cohort, TRUTH)
            with open_predicted(one, rows) as slide:
                write_pictures(folder / one.slide_id, one, slide, truth=truth)
            advance(1)


def _write_report(
    path: Path,
    answers: Mapping[str, Sequence[Prediction]],
    artefact: Artefact,
    cohort: Cohort,
    encoder: str,
) -> None:
    from zoommil.reports.page import write_report

    (name, predictions), *rivals = answers.items()
    with terminal.progress("writing the report", len(predictions), "slides") as advance:
        write_report(
            path,
            predictions,
            cohort=cohort,
            artefact=artefact,
            rivals=dict(rivals),
            truth=TRUTH,
            name=name,
            title=f"demo: {len(cohort.slides)} synthetic slides, features of {encoder}",
            progress=advance,
        )


def _conclude(
    answers: Mapping[str, Sequence[Prediction]], cohort: Cohort, report: Path, seconds: float
) -> None:
    """Say what came out: a table and sentences for a person, one JSON line for a program."""
    from zoommil.reports.summary import labels_of, number, summarise

    (name, predictions), *rivals = answers.items()
    summary = summarise(name, predictions, labels_of(cohort), dict(rivals))
    models = (summary.first, *summary.rivals)
    if terminal.is_printed():
        rows = [
            [
                one.name,
                f"{one.right} of {one.num_labelled}",
                number(one.patches),
                number(one.gflops),
                f"{one.seconds:.2f}",
            ]
            for one in models
        ]
        headers = ["model", "slides right", "patches encoded", "GFLOP", "seconds a slide"]
        typer.echo(f"\n{summary.headline}.\n\n{terminal.table(headers, rows)}")
    else:
        terminal.emit(
            {
                "headline": summary.headline,
                "models": [asdict(one) for one in models],
                "patch_share": round(summary.patch_share, 4),
                "seconds": round(seconds, 1),
                "report": str(report),
            }
        )
    terminal.say(OWN_SLIDES)
    terminal.say(f"{seconds:.0f} s in all. Open {report.resolve()}")


def _test_slides(artefact: Artefact) -> list[str]:
    """The ids of the slides that neither trained nor chose the model."""
    import csv

    assert artefact.folder is not None
    with (artefact.folder / "predictions_test.csv").open(newline="") as table:
        return [row["slide_id"] for row in csv.DictReader(table)]


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "_")


def _listed(magnifications: Sequence[float]) -> str:
    return ", ".join(f"{magnification:g}x" for magnification in magnifications)


@contextmanager
def _stage(name: str, what: str) -> Iterator[None]:
    """Says what a stage did and how long it took, when it has ended."""
    start = time.monotonic()
    yield
    terminal.say(f"  {name:<11}{time.monotonic() - start:4.0f} s   {what}")
