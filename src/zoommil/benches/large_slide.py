"""Row 16, bench predict on a very large slide: what is spent beside encoding, and the memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zoommil.benches.generate import SIDE_PX, make_slide
from zoommil.benches.isolated import pinned, run_isolated
from zoommil.benches.paper_tasks import BRIGHT, PATCH_PX, Way
from zoommil.benches.predict_runs import (
    ENCODER,
    Sample,
    Setup,
    predictor_for,
    raw_speed,
    timed_prediction,
    warm_encoder,
)

MOST_OVER_ENCODING, MOST_BESIDE_SECONDS = 1.15, 2.0
MOST_BEFORE_SECONDS, MOST_PEAK_GB = 2.0, 1.5
BEFORE = ("open", "mask", "grid")


@dataclass(frozen=True)
class LargeTimes:
    """One prediction for a very large slide, in a process of its own.

    Attributes:
        sample: the first prediction, from the closed file.
        raw: patches per second of the encoder on pixels in memory, the better of two.
        peak_gb: the process's, encoder included.
    """

    side_px: int
    setup: Setup
    sample: Sample
    raw: float
    peak_gb: float

    @property
    def encoding(self) -> float:
        """Seconds that the encoded patches take at the raw rate."""
        return self.sample.patches / self.raw

    @property
    def allowed(self) -> float:
        """Seconds it may take."""
        return MOST_OVER_ENCODING * self.encoding + MOST_BESIDE_SECONDS

    @property
    def before(self) -> float:
        """Seconds of opening, mask and grid."""
        return sum(self.sample.stages.get(name, 0.0) for name in BEFORE)


def measure_large(
    folder: Path, setup: Setup, *, side_px: int = SIDE_PX, encoder_name: str = ENCODER
) -> LargeTimes:
    """The paper's three steps on a slide that is made unless it is there."""
    path = folder / f"large-{side_px}.svs"
    run_isolated(make_slide, path, side_px)
    with pinned(setup.threads):
        return run_isolated(_measure_here, path, side_px, setup, encoder_name)


def _measure_here(path: Path, side_px: int, setup: Setup, encoder_name: str) -> LargeTimes:
    from zoommil.grid import GridSpec
    from zoommil.machine import peak_memory_bytes

    way: Way = BRIGHT.zooms[0]
    encoder = warm_encoder(encoder_name, setup.precision)
    grid = GridSpec(magnifications=way.magnifications, patch_px=PATCH_PX)
    predictor = predictor_for(way, grid, BRIGHT.num_classes, encoder)
    before = raw_speed(encoder)
    sample = timed_prediction(predictor, path)
    raw = max(before, raw_speed(encoder))
    return LargeTimes(side_px, setup, sample, raw, peak_memory_bytes() / 1e9)
