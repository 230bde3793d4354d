"""Row 16, bench probe: a synthetic cohort goes in; what each magnification gives away comes out.

The generator is honest if the class of a lesion cannot be told at the low magnification and can at
the high one, if the lesion's place is hinted at low magnification without being plain, and if the
slide's mean colour says nothing. Logistic regression on an encoder's features of single patches,
always judged on slides it was not fitted to.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.benches.results import BenchResult, Table
from zoommil.units import magnification_label, mpp_of

if TYPE_CHECKING:
    from zoommil.encoders.encoder import Encoder
    from zoommil.synthetic.cohort import CohortSpec
    from zoommil.synthetic.truth import SlideTruth, TruthPolygon

PATCH_PX = 256
MIN_FOCUS_LOW, MIN_FOCUS_HIGH = 0.15, 0.6  # share of a patch that must lie in a focus
MAX_PATCHES = 16  # of a slide's foci, at one magnification
RASTER_UM = 16.0
NUM_FOLDS = 5


@dataclass(frozen=True)
class SlidePatches:
    """One slide's patches at one magnification: features and the share of each inside foci."""

    features: Float[np.ndarray, "patch feature"]
    focus: Float[np.ndarray, " patch"]
    color: Float[np.ndarray, " channel"]  # mean of the slide's tissue
    label: int
    fold: int


@dataclass(frozen=True)
class ProbeFigures:
    """What one magnification gives away, on held-out slides."""

    magnification: float
    class_accuracy: float  # balanced accuracy of the class of focus patches
    num_focus_patches: int
    lesion_auroc: float  # focus patches of diseased slides against tissue without any focus
    num_patches: int


@dataclass(frozen=True)
class ProbeResult:
    """The probe of one cohort."""

    name: str
    classes: tuple[str, ...]
    num_slides: int
    figures: tuple[ProbeFigures, ...]
    color_accuracy: float  # balanced accuracy of the slide's label from its mean colour

    @property
    def chance(self) -> float:
        """The balanced accuracy of a guess."""
        return 1.0 / len(self.classes)


def probe_cohorts(num_slides: int, side_px: int) -> dict[str, CohortSpec]:
    """The cohorts of `bench pays`, whose honesty its figures lean on, and one of metastases."""
    from zoommil.benches.zoom_pays import PaysSpec, pays_cohorts

    cohorts = pays_cohorts(PaysSpec(num_slides=num_slides, side_px=side_px))
    first = next(iter(cohorts.values()))
    slide = first.slide.model_copy(update={"classes": ("normal", "tumor")})
    return {**cohorts, "metastasis": first.model_copy(update={"slide": slide})}


def bench_probe(
    folder: Path,
    cohorts: dict[str, CohortSpec],
    *,
    seed: int = 0,
    magnifications: Sequence[float] = (1.25, 2.5, 5.0, 10.0),
    encoder_name: str = "efficientnet_lite0",
    progress: Callable[[str], None] | None = None,
) -> BenchResult:
    """The probe of each cohort, as a page; slides are kept in ``folder`` as `bench pays` does."""
    from zoommil.encoders.loading import load_encoder
    from zoommil.synthetic.cohort import write_cohort

    encoder = load_encoder(encoder_name)
    results = []
    for name, spec in cohorts.items():
        if progress is not None:
            progress(name)
        table = write_cohort(folder / name / "slides", spec, seed)
        classes = spec.slide.classes
        results.append(probe_cohort(table, classes, encoder, magnifications, name=name))
    return _page(results, encoder_name)


def probe_cohort(
    table: Path,
    classes: Sequence[str],
    encoder: Encoder,
    magnifications: Sequence[float],
    *,
    name: str = "",
) -> ProbeResult:
    """What each magnification of a cohort's slides gives away. Base magnification may be probed."""
    rows = _rows(table)
    folds = np.random.default_rng(0).permutation(len(rows)) % NUM_FOLDS
    figures, colors = [], np.empty(0)
    labels = np.array([classes.index(row["label"]) for row in rows])
    for magnification in magnifications:
        slides = [
            _collect(table.parent, row, int(labels[i]), int(folds[i]), encoder, magnification)
            for i, row in enumerate(rows)
        ]
        figures.append(_figures(slides, magnification))
        colors = np.stack([slide.color for slide in slides])
    return ProbeResult(
        name=name,
        classes=tuple(classes),
        num_slides=len(rows),
        figures=tuple(figures),
        color_accuracy=_balanced_accuracy(colors, labels, folds),
    )


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _collect(
    folder: Path,
    row: dict[str, str],
    label: int,
    fold: int,
    encoder: Encoder,
    magnification: float,
) -> SlidePatches:
    """A slide's tissue patches: all of them where they are few, else a sample of its foci's."""
    import json

    from zoommil.encoding import encode_boxes
    from zoommil.slides.opening import open_slide
    from zoommil.synthetic.truth import read_truth

    truth = read_truth(json.loads((folder / row["truth_path"]).read_text(encoding="utf-8")))
    with open_slide(folder / row["path"]) as slide:
        thumbnail_mpp = max(RASTER_UM, slide.mpp)
        width, height = (round(side * slide.mpp / thumbnail_mpp) for side in slide.size)
        thumbnail = slide.read(0, 0, width, height, thumbnail_mpp)
        boxes, tissue, focus = _grid(truth, thumbnail, magnification)
        keep = _choose(tissue, focus, magnification)
        mpp = mpp_of(magnification)
        features = encode_boxes(slide, boxes[keep], mpp, PATCH_PX, encoder)
    stained = _is_tissue(thumbnail)
    color = thumbnail[stained].mean(0) if stained.any() else np.full(3, 255.0)
    return SlidePatches(features, focus[keep], color, label, fold)


def _grid(
    truth: SlideTruth, thumbnail: UInt8[np.ndarray, "height width 3"], magnification: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes in level-0 pixels, and the shares of each that are tissue and that lie in foci."""
    scale = thumbnail.shape[1] / truth.size_px[0]
    side = PATCH_PX * mpp_of(magnification) / truth.mpp
    columns, rows = (max(1, int(length // side)) for length in truth.size_px)
    x, y = np.meshgrid(np.arange(columns) * side, np.arange(rows) * side)
    boxes = np.stack([x.ravel(), y.ravel(), np.full(x.size, side), np.full(x.size, side)], -1)
    stained = _is_tissue(thumbnail).astype(np.float64)
    inside = _raster(truth.foci, thumbnail.shape[:2], scale)
    ends = np.round(boxes * scale).astype(int)
    tissue, focus = (
        np.array([part[b : b + h + 1, a : a + w + 1].mean() for a, b, w, h in ends])
        for part in (stained, inside)
    )
    return boxes, tissue, focus


def _raster(
    polygons: Sequence[TruthPolygon], shape: tuple[int, int], scale: float
) -> Float[np.ndarray, "height width"]:
    import cv2

    mask = np.zeros(shape, np.uint8)
    for polygon in polygons:
        cv2.fillPoly(mask, [np.round(polygon.corners * scale).astype(np.int32)], (1,))
    return mask.astype(np.float64)


def _is_tissue(thumbnail: np.ndarray) -> np.ndarray:
    return thumbnail.max(-1).astype(int) - thumbnail.min(-1) > 18


def _choose(tissue: np.ndarray, focus: np.ndarray, magnification: float) -> np.ndarray:
    """Rows to encode: all tissue at low magnification, well inside foci at a higher one."""
    if magnification <= 1.25:
        return np.flatnonzero((tissue > 0.1) | (focus >= MIN_FOCUS_LOW))
    generator = np.random.default_rng(1)
    inside = np.flatnonzero(focus >= MIN_FOCUS_HIGH)
    outside = np.flatnonzero((tissue > 0.3) & (focus == 0))
    parts = [generator.permutation(part)[:MAX_PATCHES] for part in (inside, outside)]
    return np.sort(np.concatenate(parts))


def _figures(slides: Sequence[SlidePatches], magnification: float) -> ProbeFigures:
    least = MIN_FOCUS_LOW if magnification <= 1.25 else MIN_FOCUS_HIGH
    features = np.concatenate([slide.features for slide in slides])
    focus = np.concatenate([slide.focus for slide in slides])
    sizes = [len(slide.focus) for slide in slides]
    labels = np.repeat([slide.label for slide in slides], sizes)
    folds = np.repeat([slide.fold for slide in slides], sizes)
    inside = focus >= least
    accuracy = _balanced_accuracy(features[inside], labels[inside], folds[inside])
    diseased = (labels > 0) & (inside | (focus == 0))
    auroc = _auroc(features[diseased], inside[diseased], folds[diseased])
    return ProbeFigures(magnification, accuracy, int(inside.sum()), auroc, int(diseased.sum()))


def _balanced_accuracy(features: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> float:
    """Held-out balanced accuracy, pooled over folds."""
    scores = _held_out(features, labels, folds)
    guesses = np.unique(labels)[scores.argmax(1)]
    return float(np.mean([(guesses == own)[labels == own].mean() for own in np.unique(labels)]))


def _auroc(features: np.ndarray, positive: np.ndarray, folds: np.ndarray) -> float:
    """Held-out area under the curve, pooled over folds."""
    from sklearn.metrics import roc_auc_score

    scores = _held_out(features, positive.astype(int), folds)
    return float(roc_auc_score(positive, scores[:, 1]))


def _held_out(features: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Probabilities of each row's classes by a regression that saw no slide of its fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scores = np.zeros((len(labels), len(np.unique(labels))))
    for fold in np.unique(folds):
        held_out = folds == fold
        model = LogisticRegression(C=0.01, max_iter=1000, class_weight="balanced")
        pipeline = make_pipeline(StandardScaler(), model)
        pipeline.fit(features[~held_out], labels[~held_out])
        scores[held_out] = pipeline.predict_proba(features[held_out])
    return scores


def _page(results: Sequence[ProbeResult], encoder_name: str) -> BenchResult:
    magnifications = [figure.magnification for figure in results[0].figures]
    names = [magnification_label(value) for value in magnifications]
    headers = ["cohort", "slides", "chance", *(f"class, {name}" for name in names)]
    headers += [*(f"lesion AUROC, {name}" for name in names), "label from colour"]
    rows = [
        [
            result.name,
            str(result.num_slides),
            f"{result.chance:.2f}",
            *(f"{figure.class_accuracy:.3f}" for figure in result.figures),
            *(f"{figure.lesion_auroc:.3f}" for figure in result.figures),
            f"{result.color_accuracy:.2f}",
        ]
        for result in results
    ]
    return BenchResult(
        name="probe",
        title="What each magnification of the synthetic slides gives away",
        command="zoommil bench probe",
        tables=[Table(f"{encoder_name}, logistic regression, held-out slides", headers, rows)],
        notes=[
            "class: balanced accuracy of the class of single focus patches (on normal slides "
            "harmless look-alikes). Lesion AUROC: focus patches of diseased slides against "
            "patches without any focus.",
            f"Focus patches: at least {MIN_FOCUS_LOW:.0%} of a patch at 1.25x, "
            f"{MIN_FOCUS_HIGH:.0%} above.",
            "Label from colour: balanced accuracy of the slide's label from the mean RGB of its "
            "tissue.",
        ],
        data={"results": [asdict(result) for result in results]},
    )
