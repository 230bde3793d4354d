"""Row 12, answering: steps that were taken come in; the Prediction with both ledgers goes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from zoommil.artefact import Artefact
from zoommil.bags.bag import Bag
from zoommil.grid import PatchPyramid
from zoommil.inference.cost import Cost, ExhaustiveCost, Measured, StepCost, Stopwatch
from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.inference.sources import FeatureSource
from zoommil.inference.zooming import SeenStep, Zoom
from zoommil.machine import peak_memory_bytes
from zoommil.slides.slide import Slide
from zoommil.slides.statistics import ReadStatistics
from zoommil.training.predictions import softmax
from zoommil.units import mpp_of


@dataclass(frozen=True)
class Ledger:
    """What the costs of one slide are reckoned with.

    Attributes:
        watch: seconds per stage.
        macs: the encoder's operations for one patch, per step of the grid.
        pixels: of one patch, per step; empty where a bag does not say.
        pixels_read: per patch pixel from the file's levels, per step; empty for bags.
        mask_pixels_read: read for the tissue mask.
        slide: where more can be asked; None for bags.
        before: what had been read of it when the prediction began.
        files: where slide and artefact lie.
    """

    watch: Stopwatch
    macs: dict[int, int | None]
    pixels: tuple[int, ...] = ()
    pixels_read: tuple[float, ...] = ()
    mask_pixels_read: int | None = None
    slide: Slide | None = None
    before: ReadStatistics | None = None
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_slide(
        cls,
        slide: Slide,
        pyramid: PatchPyramid,
        macs: dict[int, int | None],
        mask_pixels_read: int,
        before: ReadStatistics,
        watch: Stopwatch,
    ) -> Ledger:
        """The ledger of a slide under way."""
        return cls(
            watch=watch,
            macs=macs,
            pixels=tuple(step.patch_px**2 for step in pyramid.steps),
            pixels_read=tuple(slide.plan_of(step.mpp).decoded_pixels for step in pyramid.steps),
            mask_pixels_read=mask_pixels_read,
            slide=slide,
            before=before,
            files={"slide": str(slide.path.resolve()) if slide.path else ""},
        )

    @classmethod
    def of_bag(cls, bag: Bag, macs: dict[int, int | None], watch: Stopwatch) -> Ledger:
        """The ledger of stored features."""
        pixels = () if bag.steps is None else tuple(info.patch_px**2 for info in bag.steps)
        return cls(watch=watch, macs=macs, pixels=pixels)

    def measured(self) -> Measured:
        """Seconds, memory and what was decoded, so far."""
        read = None
        if self.slide is not None and self.before is not None:
            read = self.slide.read_statistics() - self.before
        return Measured(
            seconds=self.watch.seconds(),
            peak_memory_bytes=peak_memory_bytes(),
            compressed_bytes=None if read is None else read.compressed_bytes,
            pixels_decoded=None if read is None else read.pixels_decoded,
            files=dict(self.files),
        )

    def step_cost(
        self, source: FeatureSource, step: int, patches: int, head_macs: int, read: int | None
    ) -> StepCost:
        """One line of a ledger."""
        each = self.macs.get(step)
        return StepCost(
            magnification=source.magnifications[step],
            patches=patches,
            pixels=patches * (self.pixels[step] if self.pixels else 0),
            pixels_read=read,
            encoder_macs=None if each is None else patches * each,
            head_macs=head_macs,
        )

    def exhaustive(self, source: FeatureSource, zoom: Zoom) -> ExhaustiveCost:
        """What encoding every patch of the highest step takes, and of all steps."""
        lines = []
        for step in range(len(source.counts)):
            patches = source.num_to_encode(step, None)
            read = None
            if self.pixels_read:
                read = round(patches * self.pixels[step] * self.pixels_read[step])
            macs = zoom.head_macs_of_all(step)
            lines.append(self.step_cost(source, step, patches, macs, read))
        mask = self.mask_pixels_read
        return ExhaustiveCost(Cost((lines[-1],), mask), Cost(tuple(lines), mask))


def answer_of(
    zoom: Zoom,
    source: FeatureSource,
    artefact: Artefact,
    ledger: Ledger,
    *,
    slide_id: str,
    provenance: dict[str, Any],
    warnings: tuple[str, ...],
) -> Prediction:
    """The prediction after the steps that were taken so far."""
    steps = tuple(_predicted(one, source, artefact.temperature) for one in zoom.seen)
    costs = tuple(
        ledger.step_cost(
            source, one.step, one.found.num_encoded, one.head_macs, one.found.pixels_read
        )
        for one in zoom.seen
    )
    last = steps[-1]
    best = int(np.argmax(last.logits))
    return Prediction(
        slide_id=slide_id,
        label=artefact.classes[best],
        probabilities=dict(zip(artefact.classes, last.probabilities, strict=True)),
        logits=last.logits,
        steps=steps,
        cost=Cost(costs, ledger.mask_pixels_read),
        exhaustive_cost=ledger.exhaustive(source, zoom),
        provenance=provenance,
        bound=zoom.bound,
        warnings=(*warnings, *zoom.warnings),
        is_final=zoom.is_finished,
        measured=ledger.measured(),
    )


def renamed(prediction: Prediction, slide_id: str) -> Prediction:
    """The same prediction under the name that a cohort has for the slide."""
    return replace(prediction, slide_id=slide_id)


def _predicted(seen: SeenStep, source: FeatureSource, temperature: float) -> PredictedStep:
    output = seen.output
    logits = _numbers(output.logits).astype(np.float64)
    magnification = source.magnifications[seen.step]
    return PredictedStep(
        step=seen.step,
        magnification=magnification,
        mpp=None if magnification is None else mpp_of(magnification),
        rows=_numbers(output.rows),
        boxes=seen.found.boxes,
        attention=_numbers(output.attention.float()),
        scores=None if output.scores is None else _numbers(output.scores.float()),
        selected=None if output.selected is None else _numbers(output.selected),
        logits=tuple(logits.tolist()),
        probabilities=tuple(softmax(logits[None], temperature)[0].tolist()),
    )


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
