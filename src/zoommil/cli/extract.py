"""Row 16, ``zoommil extract``: a cohort in, one bag file per slide out, resumable."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.cli import options, terminal

if TYPE_CHECKING:
    from zoommil.extraction import SlideFailure, SlideReport


def extract(
    cohort: options.CohortArgument,
    out: options.OutOption,
    magnifications: options.MagnificationsOption = "1.25,2.5,10",
    patch_px: options.PatchPxOption = 256,
    encoder: options.EncoderOption = ["resnet50"],  # noqa: B006 - the option's shown default
    weights: options.WeightsOption = None,
    tissue: options.TissueOption = "otsu",
    tissue_threshold: options.ThresholdOption = 0.1,
    child_tissue: options.ChildTissueOption = None,
    keep_ink: options.InkOption = False,
    order: options.OrderOption = "morton",
    scale: options.ScaleOption = "physical",
    overlap: options.OverlapOption = 0,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Store features as `float16` or `float32`.")
    ] = "float16",
    mpp: options.MppOption = None,
    slides: options.SlidesOption = None,
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
    """Make one bag file per slide: features of nested patches at every magnification.

    The same command again keeps what is done and goes on with the rest; a bag is made again when
    anything it was made from has changed. A slide that fails is listed in `failures.csv`, the
    others go on, and the exit code is 1.

    Example: `zoommil extract cohort.csv -o bags --magnifications 1.25,2.5,10 --encoder resnet50`
    """
    from zoommil.extraction import ExtractionSpec

    grid = options.grid_spec(
        magnifications,
        patch_px=patch_px,
        tissue_threshold=tissue_threshold,
        child_tissue=child_tissue,
        order=order,
        scale=scale,
        overlap=overlap,
    )
    choices = options.encoder_choices(
        encoder, weights, runtime=runtime, precision=precision, device=device
    )
    spec = options.checked(
        ExtractionSpec,
        grid=grid,
        tissue=options.tissue_spec(tissue, keep_ink),
        encoders=choices,
        dtype=dtype,
    )
    rows = options.slides_of(cohort, slides, mpp)
    failures = run(rows, out, spec, engine=engine, workers=workers, batch_size=batch_size)
    if failures:
        raise typer.Exit(1)


def run(
    rows: Any,
    out: Path,
    spec: Any,
    *,
    engine: str = "local",
    workers: int = 1,
    batch_size: int | None = None,
) -> list[SlideFailure]:
    """Extract a cohort with progress and a closing line; the slides that failed."""
    from zoommil.engines import ENGINES
    from zoommil.extraction import SlideFailure, extract_cohort
    from zoommil.files import write_json

    spec = spec.with_int8(rows, out)
    spec.load_encoders()  # what is wrong with the encoder is said before the first slide
    write_json(out / "extraction.json", spec.model_dump(mode="json"))
    engine_made = ENGINES.load(engine)(workers=workers)
    tally = Tally()
    with terminal.progress("extracting", len(rows), "slides") as advance:
        outcomes = extract_cohort(
            rows, out, spec, engine_made, batch_size=batch_size,
            progress=lambda patches: advance(0, note=tally.note(patches)),
        )  # fmt: skip
        for outcome in outcomes:
            if isinstance(outcome, SlideFailure):
                tally.fail(outcome)
                write_failures(out / "failures.csv", tally.failures)
            else:
                tally.add(outcome)
            advance(1, note=tally.note(0))
    if not tally.failures:
        (out / "failures.csv").unlink(missing_ok=True)
    terminal.say(tally.summary(out))
    return tally.failures


class Tally:
    """What was made, kept and failed so far, and how quickly."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.start = time.monotonic()
        self.made = self.kept = self.patches = self.under_way = 0
        self.failures: list[SlideFailure] = []

    def add(self, report: SlideReport) -> None:
        """Count a slide and say its warnings."""
        if report.status == "made":
            self.made += 1
            self.patches += sum(report.num_patches)
            self.under_way = 0
        else:
            self.kept += 1
        if not terminal.is_printed():
            terminal.emit(
                {
                    "slide_id": report.slide_id,
                    "status": report.status,
                    "patches": list(report.num_patches),
                    "seconds": round(report.seconds, 3),
                }
            )

    def fail(self, failure: SlideFailure) -> None:
        """Count a failed slide and say why, by its own name."""
        self.failures.append(failure)
        terminal.say(f"{failure.slide_id} failed: {failure.kind}: {failure.reason}")

    def note(self, patches: int) -> str:
        """The rate so far, with the patches of the slide under way."""
        self.under_way += patches
        return f"{self._rate():.0f} patches/s"

    def summary(self, out: Path) -> str:
        """The closing line."""
        done = f"{self.made} made, {self.kept} kept, {len(self.failures)} failed"
        rate = f"{self.patches} patches, {self._rate():.0f} per second"
        hint = f" See {out / 'failures.csv'}." if self.failures else ""
        return f"bags in {out}: {done} ({rate}).{hint}"

    def _rate(self) -> float:
        seconds = max(time.monotonic() - self.start, 1e-9)
        return (self.patches + self.under_way) / seconds


def write_failures(path: Path, failures: Iterable[SlideFailure]) -> None:
    """Write the failed slides as CSV."""
    from zoommil.files import write_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["slide_id", "path", "error", "reason"])
    writer.writerows([f.slide_id, f.path, f.kind, f.reason] for f in failures)
    write_text(path, text.getvalue())
