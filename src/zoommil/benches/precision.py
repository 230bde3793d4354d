"""Row 16, bench precision: what fp32, bf16 and int8 change of features, choices, answers and speed.

Whole slides are answered by the models of ``bench pays``, each slide by one that has not seen it,
with nothing changed but the encoder's precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoommil.benches.isolated import pinned, run_isolated
from zoommil.benches.precision_page import Agreement, Speed, page
from zoommil.benches.zoom_pays import (
    Encoded,
    PaysSpec,
    Say,
    encode_main,
    extraction_spec,
    fold_artefacts,
)
from zoommil.machine import num_cores

if TYPE_CHECKING:
    from zoommil.bags.cohort import SlideRow
    from zoommil.benches.results import BenchResult
    from zoommil.encoders.encoder import Encoder
    from zoommil.encoders.quantisation import QuantisedNetwork
    from zoommil.grid import GridSpec
    from zoommil.inference.prediction import Prediction
    from zoommil.sampling import PatchSample

PRECISIONS = ("fp32", "bf16", "int8")
LARGE, LARGE_WEIGHTS, LARGE_PX = "resnet50", "random:0", 256
"""Of this one speed is measured only: its weights are on the hub."""


@dataclass(frozen=True)
class Timed:
    """An encoder to be timed."""

    name: str
    weights: str | None
    patch_px: int
    quantised: Path


def bench_precision(
    work: Path,
    *,
    spec: PaysSpec | None = None,
    large: str | None = LARGE,
    threads: Sequence[int] | None = None,
    num_patches: int = 128,
    workers: int = 1,
    say: Say = lambda text: None,  # noqa: ARG005
) -> BenchResult:
    """The table that int8 is offered with.

    Args:
        work: of ``bench pays``; its slides and folds are used, and made where they are missing.
        spec: as of ``bench pays``.
        large: the encoder of which only speed is measured, with random weights; None: of none.
        threads: what speed is measured with; None: one, and all cores.
        num_patches: of one measurement of speed.
        workers: for slides and folds that are missing.
    """
    from zoommil.engines.local import LocalEngine

    spec = spec or PaysSpec()
    engine = LocalEngine(workers)
    encoded = encode_main(work, spec, engine, say)
    network = calibrated(encoded, spec.encoder, None, spec.patch_px, spec, work)
    say(f"{spec.encoder}: calibrated")
    artefacts = fold_artefacts(work, encoded, spec, engine)
    agreements = compare(encoded, artefacts, network, spec, say)
    timed = [Timed(spec.encoder, None, spec.patch_px, network.folder)]
    if large is not None:
        other = calibrated(encoded, large, LARGE_WEIGHTS, LARGE_PX, spec, work)
        timed.append(Timed(large, LARGE_WEIGHTS, LARGE_PX, other.folder))
    counts = sorted({1, num_cores()}) if threads is None else threads
    speeds = [speed for one in timed for speed in measure_speeds(one, counts, num_patches, say)]
    return page(agreements, speeds, spec.encoder, network.calibration, asdict(spec))


def calibrated(
    encoded: Encoded, name: str, weights: str | None, patch_px: int, spec: PaysSpec, work: Path
) -> QuantisedNetwork:
    """An encoder's int8 form, calibrated on the cohort's patches."""
    from zoommil.encoders.quantisation import quantise

    folder = work / "precision"
    found = _sample(encoded.cohort.slides, spec, patch_px, seed=0)
    return quantise(name, found.pixels, folder, weights=weights, slides=found.slides)


def compare(
    encoded: Encoded,
    artefacts: dict[Path, tuple[str, ...]],
    network: QuantisedNetwork,
    spec: PaysSpec,
    say: Say,
) -> list[Agreement]:
    """Features, choices and answers in each precision beside those in fp32."""
    sample = _sample(encoded.cohort.slides, spec, spec.patch_px, seed=1)
    labels = {row.slide_id: str(row.label) for row in encoded.cohort.slides}
    found = []
    exact: tuple[np.ndarray, dict[str, Prediction]] | None = None  # of the first, fp32
    for precision in PRECISIONS:
        encoder = _load(spec.encoder, None, precision, network.folder)
        features = encoder.encode(sample.pixels)
        answers = answer_all(encoded, artefacts, encoder)
        exact = exact or (features, answers)
        found.append(
            Agreement(
                precision=precision,
                feature_error=feature_error(features, exact[0]),
                selections_changed=selections_changed(answers, exact[1]),
                slides_looked_elsewhere=sum(
                    _chosen(one) != _chosen(exact[1][name]) for name, one in answers.items()
                ),
                predictions_changed=sum(
                    one.label != exact[1][name].label for name, one in answers.items()
                ),
                num_slides=len(answers),
                largest_change=max(
                    largest_change(one, exact[1][name]) for name, one in answers.items()
                ),
                accuracy=float(np.mean([one.label == labels[n] for n, one in answers.items()])),
                trained_on=_trained_on(artefacts),
            )
        )
        say(str(found[-1]))
    return found


def answer_all(
    encoded: Encoded, artefacts: dict[Path, tuple[str, ...]], encoder: Encoder
) -> dict[str, Prediction]:
    """The out-of-fold answer for each slide, from its pixels."""
    from zoommil.inference.predictor import Predictor

    answers = {}
    for folder, slide_ids in artefacts.items():
        predictor = Predictor.load(folder, "cpu")
        predictor = Predictor(predictor.artefact, device="cpu", encoders=encoder)
        for slide_id in slide_ids:
            path = encoded.cohort.slide(slide_id).path
            assert path is not None
            answers[slide_id] = predictor.predict(path)
    return answers


def feature_error(features: np.ndarray, exact: np.ndarray) -> float:
    """Root mean square error of feature vectors, as a share of their spread between patches."""
    error = np.sqrt(((features - exact) ** 2).sum(axis=1).mean())
    spread = np.sqrt(((exact - exact.mean(axis=0)) ** 2).sum(axis=1).mean())
    return float(error / spread)


def selections_changed(
    answers: dict[str, Prediction], exact: dict[str, Prediction]
) -> tuple[float, ...]:
    """Of the patches zoomed into, the share that fp32 did not choose, at each zoom."""
    pairs = [(_chosen(one), _chosen(exact[name])) for name, one in answers.items()]
    num_zooms = max(len(ours) for ours, _ in pairs)
    shares = []
    for zoom in range(num_zooms):
        present = [(set(a[zoom]), set(b[zoom])) for a, b in pairs if zoom < min(len(a), len(b))]
        changed = sum(len(ours - theirs) for ours, theirs in present)
        shares.append(changed / max(1, sum(len(ours) for ours, _ in present)))
    return tuple(shares)


def largest_change(one: Prediction, other: Prediction) -> float:
    """The largest difference of a class probability."""
    first, second = (np.array([*answer.probabilities.values()]) for answer in (one, other))
    return float(np.abs(first - second).max())


def measure_speeds(
    encoder: Timed, counts: Sequence[int], num_patches: int, say: Say
) -> list[Speed]:
    """Patches per second alone in memory, with each number of threads, in each precision."""
    found = []
    for threads in counts:
        for precision in PRECISIONS:
            with pinned(threads):
                rate = run_isolated(patches_per_second, encoder, precision, num_patches)
            found.append(Speed(encoder.name, encoder.patch_px, precision, threads, rate))
            say(str(found[-1]))
    return found


def patches_per_second(timed: Timed, precision: str, num_patches: int) -> float:
    """The best of three runs."""
    import time

    encoder = _load(timed.name, timed.weights, precision, timed.quantised)
    shape = (num_patches, timed.patch_px, timed.patch_px, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    encoder.encode(pixels[: encoder.batch_size])
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        encoder.encode(pixels)
        seconds.append(time.perf_counter() - start)
    return num_patches / min(seconds)


def _sample(rows: Sequence[SlideRow], spec: PaysSpec, patch_px: int, seed: int) -> PatchSample:
    from zoommil.sampling import sample_patches
    from zoommil.slides.opening import open_slide

    made = extraction_spec(spec)
    grid: GridSpec = made.grid.model_copy(update={"patch_px": patch_px})

    def open_row(row: SlideRow):
        assert row.path is not None
        return open_slide(row.path, mpp=row.mpp, scale=grid.scale)

    return sample_patches(rows, grid, made.tissue, open_row, seed=seed)


def _load(name: str, weights: str | None, precision: str, quantised: Path) -> Encoder:
    from zoommil.encoders.loading import load_encoder

    return load_encoder(
        name,
        weights=weights,
        precision=precision,  # pyright: ignore[reportArgumentType]
        device="cpu",
        quantised=quantised if precision == "int8" else None,
    )


def _chosen(answer: Prediction) -> list[list[int]]:
    """The rows of the whole grid that were zoomed into, at each zoom."""
    return [step.selected.tolist() for step in answer.steps if step.selected is not None]


def _trained_on(artefacts: dict[Path, tuple[str, ...]]) -> str:
    """The precision of the features that the models were trained on."""
    from zoommil.artefact import load_artefact

    encoder = load_artefact(next(iter(artefacts))).source.steps[0].encoder
    return str((encoder or {}).get("precision", "unknown"))
