"""Row 8, extraction: a slide, a grid and an encoder in; a bag file out, resumable slide by slide.

One slide is one function (:func:`extract_slide`); the cohort loop (:func:`extract_cohort`) only
loops. A bag is made again exactly when the hash of everything it was made from has changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from zoommil import __version__
from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.checks import as_storage
from zoommil.bags.store import bag_key, read_header, write_bag
from zoommil.encoding import Progress, encode_boxes
from zoommil.errors import CohortError, ConfigError, DiskFullError, LockError
from zoommil.files import exclusive_lock, file_hash, hash_of, touch_lock
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.grid.pyramid import PatchStep
from zoommil.machine import num_threads
from zoommil.sampling import sample_patches
from zoommil.slides.opening import open_slide
from zoommil.tissue import TissueSpec, find_tissue, tissue_identity

if TYPE_CHECKING:
    from zoommil.bags.cohort import SlideRow
    from zoommil.encoders.encoder import Encoder
    from zoommil.engines.engine import Engine
    from zoommil.slides.slide import Slide

logger = logging.getLogger(__name__)

StorageType = Literal["float16", "float32"]
BUSY_PAUSE_SECONDS = 1.0


class EncoderChoice(BaseModel):
    """Which encoder to load and how to run it; the arguments of ``load_encoder``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "resnet50"
    weights: str | None = None
    runtime: str = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    device: str = "auto"
    quantised: Path | None = Field(
        default=None, exclude=True, description="Where the int8 network lies; bags have its hash."
    )

    @property
    def needs_int8(self) -> bool:
        """Whether it is to compute in int8 and nobody has said with which network."""
        return self.precision == "int8" and self.quantised is None

    def load(self) -> Encoder:
        """The encoder itself. Raises EncoderError when it cannot be had."""
        from zoommil.encoders.loading import load_encoder

        return load_encoder(
            self.name,
            weights=self.weights,
            runtime=self.runtime,
            precision=self.precision,
            device=self.device,
            threads=num_threads(),
            quantised=self.quantised,
        )


class ExtractionSpec(BaseModel):
    """Everything that decides what a bag holds; one encoder for all steps or one per step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: GridSpec
    tissue: TissueSpec = TissueSpec()
    encoders: tuple[EncoderChoice, ...] = (EncoderChoice(),)
    dtype: StorageType = "float16"

    def with_int8(self, rows: Sequence[SlideRow], folder: Path) -> ExtractionSpec:
        """The same with the int8 networks it asks for, kept in ``folder`` or made there of rows.

        Raises:
            MissingExtraError: OpenVINO or NNCF is not installed.
        """
        choices = per_step(self.encoders, len(self.grid.magnifications))
        made = {
            choice: self._calibrated(choice, rows, folder, choices) if choice.needs_int8 else choice
            for choice in dict.fromkeys(choices)
        }
        return self.model_copy(update={"encoders": tuple(made[choice] for choice in self.encoders)})

    def _calibrated(
        self,
        choice: EncoderChoice,
        rows: Sequence[SlideRow],
        folder: Path,
        choices: Sequence[EncoderChoice],
    ) -> EncoderChoice:
        from zoommil.encoders.quantisation import kept_quantised, quantise

        found = kept_quantised(choice.name, folder, self.grid.patch_px, choice.weights)
        if found is None:
            steps = [step for step, one in enumerate(choices) if one == choice]
            scale = self.grid.scale
            sample = sample_patches(
                rows,
                self.grid,
                self.tissue,
                lambda row: open_slide(_path_of(row), mpp=row.mpp, scale=scale),
                steps=steps,
            )
            found = quantise(
                choice.name, sample.pixels, folder, weights=choice.weights, slides=sample.slides
            )
        return choice.model_copy(update={"quantised": found.folder})

    def load_encoders(self) -> tuple[Encoder, ...]:
        """The encoder of each step; equal choices are loaded once."""
        choices = per_step(self.encoders, len(self.grid.magnifications))
        loaded = {choice: choice.load() for choice in dict.fromkeys(choices)}
        return tuple(loaded[choice] for choice in choices)


@dataclass(frozen=True)
class SlideReport:
    """How one slide's extraction ended: made, kept from before, or held by another process."""

    slide_id: str
    status: Literal["made", "kept", "busy"]
    num_patches: tuple[int, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlideFailure:
    """A slide of which no bag could be made, by its own name and reason."""

    slide_id: str
    path: str
    kind: str
    reason: str


def per_step(members: Any, num_steps: int) -> tuple[Any, ...]:
    """One member for each step, from one for all or a sequence with one for each."""
    members = tuple(members) if isinstance(members, Sequence) else (members,)
    if len(members) not in (1, num_steps):
        raise ConfigError(
            f"{len(members)} encoders were given for {num_steps} magnifications; "
            "give one for all, or one for each."
        )
    return members if len(members) == num_steps else members * num_steps


def extract(
    slide: Slide,
    pyramid: PatchPyramid,
    encoder: Encoder | Sequence[Encoder],
    *,
    dtype: StorageType = "float16",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Bag:
    """The bag of one slide: a feature row for every patch of the pyramid, rounded as stored.

    Patches that the grid calls invalid (``child_tissue``) are neither read nor encoded; their rows
    are zero and marked.

    Args:
        slide: the slide the pyramid was built on.
        pyramid: which patches.
        encoder: one for all steps, or a sequence with one per step.
        dtype: the storage type features are rounded to.
        batch_size: patches read and handed over at a time; never changes the result.
        progress: called with the number of patches done since the last call.
    """
    encoders = per_step(encoder, len(pyramid.steps))
    features = []
    for step, chosen in zip(pyramid.steps, encoders, strict=True):
        rows = np.zeros((len(step), chosen.dim), np.float32)
        rows[step.valid] = encode_boxes(
            slide,
            step.boxes[step.valid],
            step.mpp,
            step.patch_px,
            chosen,
            batch_size=batch_size,
            progress=progress,
        )
        stored = as_storage(rows, dtype, f"slide {slide.slide_id!r}, {step.magnification:g}x")
        features.append(stored.astype(np.float32))
    return Bag(
        features=tuple(features),
        slide_id=slide.slide_id,
        steps=tuple(
            _step_info(step, pyramid, chosen)
            for step, chosen in zip(pyramid.steps, encoders, strict=True)
        ),
        valid=None if pyramid.spec.child_tissue is None else [s.valid for s in pyramid.steps],
        provenance=provenance(slide, pyramid.spec, pyramid.tissue_identity, encoders, dtype),
        dtype=dtype,
        slide_mpp=slide.mpp,
        slide_size=slide.size,
    )


def provenance(
    slide: Slide,
    grid: GridSpec,
    tissue_identity: dict[str, Any],
    encoders: Sequence[Encoder],
    dtype: StorageType,
) -> dict[str, Any]:
    """Everything a bag is made from, as JSON; its hash is the key for resuming."""
    return {
        "package": __version__,
        "slide": {
            "fingerprint": slide.fingerprint,
            "mpp": slide.mpp,
            "mpp_source": slide.mpp_source,
            "reader": slide.reader,
        },
        "grid": grid.model_dump(mode="json"),
        "tissue": tissue_identity,
        "encoders": [encoder.identity() for encoder in encoders],
        "storage": dtype,
    }


def extract_slide(
    row: SlideRow,
    path: Path,
    spec: ExtractionSpec,
    encoders: Sequence[Encoder],
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> SlideReport:
    """Make one slide's bag file, unless an intact one made from exactly the same is there.

    Returns a report of status ``busy`` when another process is making it.

    Raises:
        ZoomMILError: the slide cannot be opened, read or encoded; no file is left behind.
    """
    start = time.monotonic()
    with open_slide(_path_of(row), mpp=row.mpp, scale=spec.grid.scale) as slide:
        mask_hash = None if row.mask_path is None else file_hash(row.mask_path)
        tissue = tissue_identity(spec.tissue, mask_hash)
        made_from = provenance(slide, spec.grid, tissue, encoders, spec.dtype)
        kept = partial(_kept_report, path, row.slide_id, made_from)
        if report := kept():
            return report
        lock = path.parent / ".locks" / f"{row.slide_id}.lock"
        try:
            with exclusive_lock(lock):
                if report := kept():  # made by another process while we looked
                    return report
                _remove_leftovers(path)
                mask = find_tissue(slide, spec.tissue, mask=row.mask_path)
                pyramid = PatchPyramid.build(slide, mask, spec.grid)
                beat = _beating(lock, progress)
                bag = extract(
                    slide, pyramid, encoders, dtype=spec.dtype, batch_size=batch_size, progress=beat
                )
                write_bag(replace(bag, slide_id=row.slide_id), path)
        except LockError:
            return SlideReport(row.slide_id, "busy")
        return SlideReport(
            row.slide_id,
            "made",
            tuple(int(step.valid.sum()) for step in pyramid.steps),
            time.monotonic() - start,
            (*slide.warnings, *mask.warnings, *pyramid.warnings),
        )


def _path_of(row: SlideRow) -> Path:
    if row.path is None:
        raise CohortError(
            f"slide {row.slide_id!r} has no file. Add a 'path' column to the cohort, or pass the "
            "folder its slides lie in (--slides)."
        )
    return row.path


def extract_cohort(
    rows: Sequence[SlideRow],
    folder: Path | str,
    spec: ExtractionSpec,
    engine: Engine,
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Iterator[SlideReport | SlideFailure]:
    """Bags for many slides, in ``folder/<slide_id>.h5``; yields as each slide ends.

    A slide that another process holds is left to the end and then waited for, so that several
    runs may share a folder: nothing is made twice and nothing is lost.

    Args:
        rows: the slides.
        folder: where bags go.
        spec: what a bag holds.
        engine: where the work is done.
        batch_size: as in :func:`extract`.
        progress: patches done; called only when the engine works in this process.

    Raises:
        DiskFullError: there is no space for any other bag; those that were written are kept.
    """
    progress = progress if engine.is_here else None
    setup = partial(_make_worker, Path(folder), spec, batch_size, progress)
    waiting = list(rows)
    for should_wait in (False, True):
        tasks = [(row, should_wait) for row in waiting]
        waiting = []
        for outcome in engine.run(setup, tasks) if tasks else ():
            row, _ = outcome.task
            if isinstance(outcome.error, DiskFullError):
                raise outcome.error
            if outcome.error is not None:
                yield _failure(row, outcome.error)
            elif outcome.value.status == "busy":
                waiting.append(row)
            else:
                yield outcome.value


def _make_worker(
    folder: Path, spec: ExtractionSpec, batch_size: int | None, progress: Progress | None
) -> Callable[[tuple[SlideRow, bool]], SlideReport]:
    """The function that one worker applies to (slide, whether to wait for a busy one)."""
    encoders = spec.load_encoders()

    def make(task: tuple[SlideRow, bool]) -> SlideReport:
        row, should_wait = task
        path = folder / f"{row.slide_id}.h5"
        arguments = {"batch_size": batch_size, "progress": progress}
        report = extract_slide(row, path, spec, encoders, **arguments)
        while should_wait and report.status == "busy":
            time.sleep(BUSY_PAUSE_SECONDS)
            report = extract_slide(row, path, spec, encoders, **arguments)
        return report

    return make


def _failure(row: SlideRow, error: BaseException) -> SlideFailure:
    logger.debug("slide %s failed", row.slide_id, exc_info=error)
    reason = " ".join(str(error).split()) or type(error).__name__
    return SlideFailure(row.slide_id, str(row.path), type(error).__name__, reason)


def _kept_report(path: Path, slide_id: str, made_from: dict[str, Any]) -> SlideReport | None:
    """A report when an intact bag made from exactly this is there; else None, saying why."""
    if bag_key(path) is None:
        return None
    header = read_header(path)
    if header.key == hash_of(made_from):
        return SlideReport(slide_id, "kept", header.counts)
    changes = ", ".join(differences(header.provenance, made_from))
    logger.warning("slide %s: its bag was made otherwise (%s); making it again", slide_id, changes)
    return None


def differences(before: Any, after: Any, name: str = "") -> list[str]:
    """What two JSON values differ in, as ``grid.tissue_threshold: 0.1 -> 0.3``."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in dict.fromkeys([*before, *after]):
            found += differences(before.get(key), after.get(key), f"{name}.{key}".lstrip("."))
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for i, pair in pairs for text in differences(*pair, f"{name}[{i}]")]
    return [] if before == after else [f"{name}: {before} -> {after}"]


def _beating(lock: Path, progress: Progress | None) -> Progress:
    """Progress that also says, through the lock, that this process lives."""

    def advance(num_patches: int) -> None:
        touch_lock(lock)
        if progress is not None:
            progress(num_patches)

    return advance


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of a killed run; the slide's lock is held, so nobody writes them."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _step_info(step: PatchStep, pyramid: PatchPyramid, encoder: Encoder) -> StepInfo:
    return StepInfo(
        magnification=step.magnification,
        mpp=step.mpp,
        downsample=step.downsample,
        patch_px=step.patch_px,
        origin_x=pyramid.origin[0],
        origin_y=pyramid.origin[1],
        side=step.side,
        rows_columns=step.rows_columns,
        encoder=encoder.name,
    )
