"""Row 16, ``zoommil predict``: an artefact and slides in; answers, where they look, costs out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.cli.extract import write_failures
from zoommil.errors import CohortError, ConfigError

if TYPE_CHECKING:
    from zoommil.bags.cohort import SlideRow
    from zoommil.extraction import SlideFailure
    from zoommil.inference.cohort import SlideOutcome

ArtefactArgument = Annotated[Path, typer.Argument(help="The folder of a trained model.")]
MaskOption = Annotated[
    Path | None, typer.Option("--mask", help="A tissue mask (image or GeoJSON), for one slide.")
]


def predict(
    artefact: ArtefactArgument,
    slides: Annotated[
        list[str],
        typer.Argument(metavar="SLIDE...", help="Slides, tables of slides, folders or globs."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write to; without it, JSON lines only."),
    ] = None,
    budget_patches: Annotated[
        int | None, typer.Option("--budget-patches", help="The most patches to encode per slide.")
    ] = None,
    budget_gflops: Annotated[
        float | None,
        typer.Option("--budget-gflops", help="The most GFLOPs per slide (2 per MAC)."),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option("--budget-seconds", help="The most seconds per slide, as measured here."),
    ] = None,
    exit_confidence: Annotated[
        float | None,
        typer.Option("--exit-confidence", help="Stop zooming at this calibrated probability."),
    ] = None,
    attention_mass: Annotated[
        float | None,
        typer.Option("--attention-mass", help="Zoom into the fewest patches holding this share."),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", help="Patches to zoom into, one number or one per zoom: `12,8`."),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", help="The most magnifications to look at.")
    ] = None,
    geojson: Annotated[
        bool, typer.Option("--geojson", help="Write where it looked for QuPath, per slide.")
    ] = False,
    frame: Annotated[
        str,
        typer.Option("--frame", help="GeoJSON in the `slide`'s pixels, or its `bounds` (QuPath)."),
    ] = "slide",
    mask: MaskOption = None,
    mpp: options.MppOption = None,
    slide_folder: options.SlidesOption = None,
    weights: options.WeightsOption = None,
    runtime: options.RuntimeOption = "auto",
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
    engine: options.EngineOption = "local",
    workers: options.WorkersOption = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", help="Patches handed on at a time; no result depends on it.", min=1
        ),
    ] = None,
) -> None:
    """Answer for slides from their pixels, reading only what is worth looking at.

    With `--out`: `predictions.jsonl` (a line as each slide ends), `slides.csv`, `cases.csv`,
    `cost.json`. The same command again keeps what is done. A slide that fails is listed in
    `failures.csv`, the others go on, and the exit code is 1.

    Example: `zoommil predict runs/bright/artefact a.svs --budget-patches 300`
    """
    from zoommil.inference.cohort import PredictorChoice
    from zoommil.inference.limits import Limits

    limits = options.checked(
        Limits,
        budget_patches=budget_patches,
        budget_gflops=budget_gflops,
        budget_seconds=budget_seconds,
        exit_confidence=exit_confidence,
        attention_mass=attention_mass,
        k=None if k is None else _numbers(k),
        max_steps=max_steps,
    )
    if geojson and out is None:
        raise ConfigError("--geojson needs a folder to write to. Add --out DIR.")
    if frame not in ("slide", "bounds"):
        raise ConfigError(f"frame is {frame!r}; expected slide or bounds.")
    choice = PredictorChoice(
        artefact=artefact,
        weights=None if weights is None else tuple(weights),
        runtime=runtime,
        precision=precision,
        device=device,
        limits=limits,
        batch_size=batch_size,
    )
    rows = rows_of(slides, slide_folder, mpp, mask)
    if precision == "int8":
        calibrate(artefact, rows, weights)
    failures = run(
        rows, out, choice, engine=engine, workers=workers, frame=frame if geojson else None
    )
    if failures:
        raise typer.Exit(1)


def calibrate(artefact: Path, rows: list[SlideRow], weights: list[str] | None) -> None:
    """Store the int8 form of an artefact's encoders with it, made of these slides if missing."""
    from zoommil.artefact import load_artefact
    from zoommil.inference.calibrating import prepare_int8

    for network in prepare_int8(load_artefact(artefact), rows, weights=weights):
        patches, slides = network.calibration["patches"], len(network.calibration["slides"])
        terminal.say(
            f"int8 of {network.card['name']}: calibrated on {patches} patches of {slides} slides, "
            f"stored in {network.folder}"
        )


def rows_of(
    sources: list[str], folder: Path | None, mpp: float | None, mask: Path | None = None
) -> list[SlideRow]:
    """The slides of all arguments; no two of one name."""
    rows: list[SlideRow] = []
    for source in sources:
        rows += options.slides_of(source, folder, mpp)
    names = [row.slide_id for row in rows]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise CohortError(
            f"two of the slides would both be called {double!r}. Rename one, or give a table with "
            "a column 'slide_id'."
        )
    if mask is None:
        return rows
    if len(rows) != 1:
        raise ConfigError(
            f"--mask was given for {len(rows)} slides; it is for one. For more, add a 'mask_path' "
            "column to a table of slides."
        )
    return [replace(rows[0], mask_path=mask)]


def run(
    rows: Any,
    out: Path | None,
    choice: Any,
    *,
    engine: str = "local",
    workers: int = 1,
    frame: str | None = None,
) -> list[SlideFailure]:
    """Predict a cohort with progress and a closing line; the slides that failed."""
    from zoommil.engines import ENGINES
    from zoommil.extraction import SlideFailure
    from zoommil.inference.cohort import predict_cohort

    engine_made = ENGINES.load(engine)(workers=workers)
    predictor = choice.load()  # what is wrong with it is said before the first slide
    predictor.check_limits(choice.limits)
    predictor.warm_up()
    failures: list[SlideFailure] = []
    tally = Tally(out is not None)
    with terminal.progress("predicting", len(rows), "slides") as advance:
        outcomes = predict_cohort(
            rows, out, choice, engine_made, predictor=predictor if engine_made.is_here else None
        )
        for outcome in outcomes:
            if isinstance(outcome, SlideFailure):
                failures.append(outcome)
                terminal.say(f"{outcome.slide_id} failed: {outcome.kind}: {outcome.reason}")
                if out is not None:
                    write_failures(out / "failures.csv", failures)
            else:
                tally.add(outcome)
                if frame is not None and out is not None:
                    place = out / "geojson" / f"{outcome.row.slide_id}.geojson"
                    outcome.prediction.write_geojson(place, frame)  # pyright: ignore[reportArgumentType]
            advance(1)
    if out is not None and not failures:
        (out / "failures.csv").unlink(missing_ok=True)
    if len(rows) > 1 or out is not None:
        terminal.say(tally.summary(out, len(failures)))
    return failures


class Tally:
    """What was answered so far and what it cost."""

    def __init__(self, has_folder: bool) -> None:
        """Args: has_folder: whole predictions go there, standard output gets short lines."""
        self._has_folder = has_folder
        self.made = self.kept = 0
        self.patches = self.exhaustive_patches = 0
        self.flops = self.exhaustive_flops = 0

    def add(self, outcome: SlideOutcome) -> None:
        """Count a slide, and print its answer with its cost."""
        from zoommil.inference.cohort import as_record

        answer = outcome.prediction
        self.made += outcome.status == "made"
        self.kept += outcome.status == "kept"
        self.patches += answer.cost.patches
        self.flops += answer.cost.flops
        self.exhaustive_patches += answer.exhaustive_cost.patches
        self.exhaustive_flops += answer.exhaustive_cost.flops
        if terminal.is_printed():
            typer.echo(text_of(outcome))
        elif self._has_folder:
            terminal.emit(as_record(outcome))
        else:
            typer.echo(answer.to_json(measured=True))

    def summary(self, out: Path | None, num_failures: int) -> str:
        """The closing line: how many slides, and the cost of all beside the exhaustive one."""
        done = f"{self.made} made, {self.kept} kept, {num_failures} failed"
        where = "" if out is None else f" in {out}"
        cost = _cost(self.patches, self.flops, self.exhaustive_patches, self.exhaustive_flops)
        hint = f" See {out / 'failures.csv'}." if out is not None and num_failures else ""
        return f"predictions{where}: {done}. {cost}.{hint}"


def text_of(outcome: SlideOutcome) -> str:
    """One slide's answer for a person, with what it cost."""
    answer = outcome.prediction
    classes = ", ".join(f"{name} {value:.3f}" for name, value in answer.probabilities.items())
    cost = _cost(
        answer.cost.patches,
        answer.cost.flops,
        answer.exhaustive_cost.patches,
        answer.exhaustive_cost.flops,
    )
    seconds = answer.measured.seconds.get("total", 0.0)
    memory = answer.measured.peak_memory_bytes / 1e9
    bound = "" if answer.bound.by == "model" else f", bound by {answer.bound.by}"
    lines = [
        f"{answer.slide_id}: {answer.label} ({classes})",
        f"  {cost}; {seconds:.2f} s, {memory:.2f} GB{bound}",
    ]
    return "\n".join([*lines, *(f"  note: {warning}" for warning in answer.warnings)])


def _cost(patches: int, flops: int, all_patches: int, all_flops: int) -> str:
    ratio = f", {all_flops / flops:.1f}x fewer FLOPs" if flops else ""
    return (
        f"{patches} patches, {flops / 1e9:.1f} GFLOP (2 per MAC); all of the highest "
        f"magnification: {all_patches} patches, {all_flops / 1e9:.1f} GFLOP{ratio}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"k is {text!r}; expected whole numbers, as 12 or 12,8.") from error
