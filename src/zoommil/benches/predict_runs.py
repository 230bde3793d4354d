"""Row 16, bench predict: one slide of a task and a way to compute in; seconds of each path out.

Everything here runs in one process per setting, the paths by turns, encoder loaded and warm.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.benches.paper_tasks import PATCH_PX, Way
from zoommil.benches.task_slides import PreparedTask

if TYPE_CHECKING:
    from zoommil.artefact import Artefact
    from zoommil.encoders.encoder import Encoder
    from zoommil.grid import GridSpec
    from zoommil.inference.predictor import Predictor

ENCODER, WEIGHTS = "resnet50", "random:0"
BY_PREDICTOR, ALONE = "ABMIL, all of it", "encoding all of it, no model"
RAW_PATCHES = 64


@dataclass(frozen=True)
class Setup:
    """How to compute: precision ("auto": as it comes), cores, and whether everything is timed."""

    precision: str
    threads: int
    has_exhaustive: bool = True

    def __str__(self) -> str:
        return f"{self.precision}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class Sample:
    """One run of one path: seconds in all and per stage, patches encoded, operations."""

    seconds: float
    patches: int
    flops: int
    stages: dict[str, float]


@dataclass(frozen=True)
class Timings:
    """One path's runs."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def median(self) -> Sample:
        """The run of median seconds (the lower one of two)."""
        ordered = sorted(self.samples, key=lambda sample: sample.seconds)
        return ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True)
class TaskTimes:
    """All paths of one task under one setup.

    Attributes:
        raw: patches per second of the encoder on pixels in memory, measured by turns as well.
        runtime, precision: what the encoder computed with.
    """

    task: str
    setup: Setup
    runtime: str
    precision: str
    raw: float
    paths: tuple[Timings, ...]

    def path(self, name: str) -> Timings:
        """The path of that name."""
        return next(path for path in self.paths if path.name == name)


def measure_task(
    prepared: PreparedTask, setup: Setup, rounds: int, encoder_name: str = ENCODER
) -> TaskTimes:
    """The seconds of every path; each round times zooms, everything, zooms, everything, zooms."""
    encoder = warm_encoder(encoder_name, setup.precision)
    zooms = {way.name: _predicting(prepared, way, encoder) for way in prepared.task.zooms}
    everything: dict[str, Callable[[], Sample]] = {}
    if setup.has_exhaustive:
        everything[BY_PREDICTOR] = _predicting(prepared, prepared.task.exhaustive, encoder)
        everything[ALONE] = _encoding(prepared, encoder)
    samples: dict[str, list[Sample]] = {name: [] for name in (*zooms, *everything)}
    raw = [raw_speed(encoder)]
    for _ in range(rounds):
        for others in ({}, *({name: run} for name, run in everything.items())):
            for name, run in {**others, **zooms}.items():
                samples[name].append(run())
        raw.append(raw_speed(encoder))
    return TaskTimes(
        task=prepared.task.name,
        setup=setup,
        runtime=encoder.runtime,
        precision=encoder.precision,
        raw=statistics.median(raw),
        paths=tuple(Timings(name, tuple(found)) for name, found in samples.items()),
    )


def warm_encoder(name: str, precision: Any) -> Encoder:
    """The encoder with random weights, loaded, compiled and run once."""
    from zoommil import load_encoder

    encoder = load_encoder(name, weights=WEIGHTS, precision=precision, device="cpu")
    encoder.encode(np.zeros((1, PATCH_PX, PATCH_PX, 3), np.uint8))
    return encoder


def raw_speed(encoder: Encoder, num_patches: int = RAW_PATCHES) -> float:
    """Patches per second of an encoder on pixels that lie in memory."""
    shape = (num_patches, PATCH_PX, PATCH_PX, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    start = time.perf_counter()
    encoder.encode(pixels)
    return num_patches / (time.perf_counter() - start)


def predictor_for(way: Way, grid: GridSpec, num_classes: int, encoder: Encoder) -> Predictor:
    """A predictor that looks this way at slides, its model untrained; warm."""
    from zoommil.inference.predictor import Predictor

    predictor = Predictor(
        untrained_artefact(way, grid, num_classes, encoder), encoders=encoder, device="cpu"
    )
    predictor.warm_up()
    return predictor


def untrained_artefact(way: Way, grid: GridSpec, num_classes: int, encoder: Encoder) -> Artefact:
    """An artefact of a model as it is drawn: ZoomMIL, or ABMIL at the highest magnification."""
    from zoommil.artefact import Artefact, FeatureSource, SourceStep
    from zoommil.models.creation import create_model
    from zoommil.tissue import TissueSpec
    from zoommil.units import mpp_of

    settings: dict[str, Any] = {} if way.k is None else {"k": way.k}
    model = create_model(
        "zoommil" if settings else "abmil",
        feature_dim=encoder.dim,
        num_classes=num_classes,
        ratios=way.ratios,
        seed=0,
        **settings,
    )
    steps = tuple(
        SourceStep(encoder.dim, value, mpp_of(value), grid.patch_px, encoder.identity())
        for value in way.magnifications
    )
    tissue = TissueSpec().model_dump(mode="json")
    return Artefact(
        settings=dict(model.settings),
        weights=dict(model.state_dict()),
        classes=tuple(f"class {number}" for number in range(num_classes)),
        source=FeatureSource(steps, "float16", grid.model_dump(mode="json"), tissue),
    )


def _predicting(prepared: PreparedTask, way: Way, encoder: Encoder) -> Callable[[], Sample]:
    """From the closed file to the answer, by the package's predictor."""
    grid = prepared.grid(way)
    predictor = predictor_for(way, grid, prepared.task.num_classes, encoder)

    def run() -> Sample:
        return timed_prediction(predictor, prepared.path)

    return run


def timed_prediction(predictor: Predictor, path: Path) -> Sample:
    """One prediction from the closed file."""
    start = time.perf_counter()
    answer = predictor.predict(path)
    seconds = time.perf_counter() - start
    return Sample(seconds, answer.cost.patches, answer.cost.flops, answer.measured.seconds)


def _encoding(prepared: PreparedTask, encoder: Encoder) -> Callable[[], Sample]:
    """From the closed file to the features of everything at the highest magnification."""
    from zoommil import PatchPyramid, find_tissue, open_slide
    from zoommil.encoding import encode_boxes

    def run() -> Sample:
        start = time.perf_counter()
        with open_slide(prepared.path) as slide:
            grid = prepared.grid(prepared.task.exhaustive)
            step = PatchPyramid.build(slide, find_tissue(slide), grid).steps[-1]
            encode_boxes(slide, step.boxes, step.mpp, step.patch_px, encoder)
        seconds = time.perf_counter() - start
        flops = 2 * len(step) * encoder.macs_per_patch(PATCH_PX)
        return Sample(seconds, len(step), flops, {"total": seconds})

    return run
