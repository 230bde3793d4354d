"""A small cohort to look at: predicted, not predicted, shifted, damaged, oddly named, outside."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from viewing import CLASSES, TAMPERED, paint, spoil_tiles, write_scn

from zoommil.artefact import Artefact, source_of
from zoommil.extraction import extract
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.inference.prediction import Prediction
from zoommil.slides.opening import open_slide
from zoommil.synthetic.slide import SlideSpec, write_slide
from zoommil.tissue import find_tissue

GRID = GridSpec(magnifications=(1.25, 2.5, 10), patch_px=128)
OFFSET, WHOLE = (700, 900), (3600, 3200)
LESIONS = (
    np.array([[1000, 1150], [1460, 1230], [1400, 1590], [960, 1500]], float),
    np.array([[1950, 1910], [2500, 2030], [2390, 2520], [1890, 2400]], float),
)
"""What is painted on the shifted slide: corners in level-0 pixels."""


@dataclass(frozen=True)
class Shown:
    """What the viewer is started with.

    Attributes:
        slides: the folder.
        predictions: the folder of predictions.
        artefact: what predicted.
        outside: a slide that does not lie in the folder.
        answers: the predictions by slide.
        lesions: the polygons that are painted on ``beta``, corners in level-0 pixels.
    """

    slides: Path
    predictions: Path
    artefact: Path
    outside: Path
    answers: dict[str, Prediction]
    lesions: tuple[np.ndarray, ...] = LESIONS


@pytest.fixture(scope="session")
def shown(tmp_path_factory) -> Shown:
    """Two slides with predictions, one of them shifted, and all that can go wrong."""
    root = tmp_path_factory.mktemp("viewer")
    slides, outside = root / "slides", root / "secret.svs"
    slides.mkdir()
    spec = SlideSpec(size_px=(2048, 1792), downsamples=(1, 4), tissue=0.5, label="high_grade")
    write_slide(slides / "alpha.svs", spec, seed=5)
    with open_slide(slides / "alpha.svs") as slide:
        pixels = slide.read(0, 0, 2048, 1792, slide.mpp)
    painted = paint(np.ascontiguousarray(pixels[:, ::-1]), [one - OFFSET for one in LESIONS])
    write_scn(slides / "beta.scn", painted, WHOLE, OFFSET, 1.0)
    shutil.copy(slides / "alpha.svs", slides / f"{TAMPERED}.svs")
    shutil.copy(slides / "alpha.svs", slides / "delta.svs")
    shutil.copy(slides / "alpha.svs", outside)
    (slides / "link.svs").symlink_to(outside)
    predicted = [slides / "alpha.svs", slides / "beta.scn", slides / f"{TAMPERED}.svs"]
    artefact, answers = _predict(predicted, root / "artefact")
    shutil.copy(slides / "alpha.svs", slides / "broken.svs")
    spoil_tiles(slides / "broken.svs", 0)
    (slides / "none.svs").write_bytes(b"not a slide at all" * 100)
    predictions = root / "predictions"
    predictions.mkdir()
    lines = [answer.to_json(measured=True) for answer in answers.values()]
    (predictions / "predictions.jsonl").write_text("\n".join(lines) + "\n")
    labels = {"alpha": answers["alpha"].label, "beta": "low"}
    if answers["beta"].label == "low":
        labels["beta"] = "normal"
    rows = [f"{name},case {number},{label}" for number, (name, label) in enumerate(labels.items())]
    (predictions / "slides.csv").write_text("\n".join(["slide_id,case_id,label", *rows]) + "\n")
    return Shown(slides, predictions, artefact, outside, answers)


def _predict(paths: list[Path], folder: Path) -> tuple[Path, dict[str, Prediction]]:
    """An artefact of an untrained model, and its predictions."""
    from zoommil.encoders.loading import load_encoder
    from zoommil.inference.predictor import Predictor
    from zoommil.models.creation import create_model

    options = {"weights": "random:0", "precision": "fp32", "runtime": "torch"}
    encoder = load_encoder("resnet18", device="cpu", **options)
    with open_slide(paths[0]) as slide:
        bag = extract(slide, PatchPyramid.build(slide, find_tissue(slide), GRID), encoder)
    source = source_of(bag)
    model = create_model(
        "zoommil",
        feature_dim=source.steps[0].feature_dim,
        num_classes=len(CLASSES),
        ratios=bag.ratios,
        seed=1,
        k=8,
        embed_dim=16,
        attention_dim=8,
        step_loss=0.3,
    )
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in model.settings.items()}
    artefact = Artefact(plain, dict(model.state_dict()), CLASSES, source).save(folder)
    predictor = Predictor(artefact, encoders=encoder, device="cpu")
    found = [predictor.predict(path) for path in paths]
    return folder, {one.slide_id: one for one in found}
