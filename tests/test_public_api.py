"""The public names, their arguments and what they give: notebooks of others build on them.

Written out by hand on purpose: a change here is a change for users, and belongs in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import zoommil as zm
from zoommil.models.topk import hard_topk, zoom_in

NAMES = {
    "__version__", "Artefact", "Bag", "GridSpec", "Limits", "MILOutput", "PatchPyramid",
    "Prediction", "Predictor", "RunSpec", "Slide", "TissueMask", "TissueSpec", "ZoomMILError",
    "create_model", "extract", "find_tissue", "list_encoders", "list_models", "load_encoder",
    "open_slide", "read_bag", "train", "write_bag",
}  # fmt: skip

MODELS = [
    "zoommil",
    "abmil",
    "clam_sb",
    "clam_mb",
    "transmil",
    "sparseconvmil",
    "maxmil",
    "meanmil",
]

CALLS: list[tuple[Any, tuple[str, ...], dict[str, Any]]] = [
    (zm.open_slide, ("path",), {"mpp": None}),
    (zm.Slide.read, ("self", "x", "y", "width", "height", "mpp"), {}),
    (zm.find_tissue, ("slide", "spec"), {}),
    (zm.PatchPyramid.build, ("slide", "tissue", "spec"), {}),
    (zm.PatchPyramid.children, ("self", "m", "rows"), {}),
    (
        zm.load_encoder,
        ("name",),
        {"runtime": "auto", "precision": "auto", "device": "auto", "weights": None},
    ),
    (zm.extract, ("slide", "pyramid", "encoder"), {}),
    (zm.Bag, ("features",), {"coords": None}),
    (zm.write_bag, ("bag", "path"), {}),
    (zm.read_bag, ("path",), {}),
    (zm.create_model, ("name",), {"ratios": ()}),
    (zm.train, ("run", "cohort", "bags"), {}),
    (zm.Predictor.load, ("artefact",), {"device": "auto"}),
    (zm.Predictor.predict, ("self", "slide"), {"mpp": None, "mask": None}),
    (zm.Predictor.predict_bag, ("self", "bag"), {}),
    (zm.Predictor.stream, ("self", "slide"), {}),
    (zm.Prediction.to_json, ("self",), {}),
    (zm.Prediction.to_geojson, ("self",), {}),
    (
        zoom_in,
        ("scores", "finer", "k"),
        {
            "num_samples": 100,
            "sigma": 0.002,
            "jacobian": "diagonal",
            "baseline": True,
            "straight_through": False,
            "noise": None,
            "generator": None,
        },
    ),
    (hard_topk, ("scores", "k"), {}),
]


def test_public_names():
    assert set(zm.__all__) == NAMES
    assert all(getattr(zm, name) is not None for name in NAMES)
    assert set(dir(zm)) == NAMES


@pytest.mark.parametrize(
    ("call", "positional", "defaults"), CALLS, ids=lambda v: getattr(v, "__qualname__", "")
)
def test_arguments(call, positional, defaults):
    parameters = inspect.signature(call).parameters
    given = [p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if given[:1] != ["self"] and positional[:1] == ("self",):
        positional = positional[1:]
    assert tuple(given[: len(positional)]) == positional
    assert {name: parameters[name].default for name in defaults} == defaults


def test_arguments_that_must_be_given_by_name():
    parameters = inspect.signature(zm.create_model).parameters
    for name in ("feature_dim", "num_classes"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default is inspect.Parameter.empty


def test_models():
    assert zm.list_models()[: len(MODELS)] == MODELS
    model = zm.create_model("zoommil", feature_dim=1024, num_classes=3, ratios=(2, 4), k=12)
    assert model.settings["score"] == "softmax"
    assert model.settings["jacobian"] == "diagonal"
    assert model.settings["straight_through"] is True
    assert zm.create_model("abmil", feature_dim=1024, num_classes=3, at=-1).settings["at"] == -1


def test_what_a_slide_a_bag_and_an_output_have():
    pixels = np.full((300, 400, 3), 230, np.uint8)
    pixels[50:250, 50:350] = (180, 90, 160)
    with zm.open_slide(pixels, mpp=1.0) as slide:
        assert (slide.size, slide.mpp, slide.bounds) == ((400, 300), 1.0, (0, 0, 400, 300))
        assert slide.properties is not None
        assert len(slide.fingerprint) > 10
        assert slide.read(0, 0, 20, 10, 1.0).shape == (10, 20, 3)
        grid = zm.GridSpec(magnifications=(2.5, 5, 10), patch_px=32)
        pyramid = zm.PatchPyramid.build(slide, zm.find_tissue(slide, zm.TissueSpec()), grid)
    boxes = pyramid.steps[0].boxes
    assert boxes.dtype == np.float64
    assert boxes.shape[1] == 4
    assert pyramid.ratios == (2, 2)
    assert list(pyramid.children(0, np.array([1]))) == [4, 5, 6, 7]

    sizes = [(len(step.boxes), 8) for step in pyramid.steps]
    bag = zm.Bag(features=tuple(np.ones(size, np.float32) for size in sizes))
    assert bag.coords is None or len(bag.coords) == 3
    assert bag.slide_id == ""
    model = zm.create_model("zoommil", feature_dim=8, num_classes=2, ratios=(2, 2), k=2).eval()
    output = model(bag.features, coords=None, valid=None)
    assert output.logits.shape == (2,)
    assert len(output.attention) == 3
    assert len(output.scores) == len(output.selected) == 2
    assert list(output.selected[0]) == sorted(output.selected[0])
    assert callable(model.step)


def test_what_an_encoder_has():
    encoder = zm.load_encoder("resnet18", weights="random:0", runtime="torch", precision="fp32")
    assert encoder.dim == encoder.card.dim == 512
    features = encoder.encode(np.zeros((2, 64, 64, 3), np.uint8))
    assert features.dtype == np.float32
    assert features.shape == (2, 512)


def test_what_a_prediction_has():
    fields = set(zm.Prediction.__dataclass_fields__)
    assert {"label", "probabilities", "steps", "cost", "exhaustive_cost", "measured"} <= fields
    from zoommil.inference.prediction import PredictedStep

    assert {"boxes", "attention", "scores", "selected"} <= set(PredictedStep.__dataclass_fields__)


COMMANDS = {
    "bench": "extract flops generate limits mil-sets pays predict probe readers step training zoom",
    "convert": "source --out --from --to --cohort --magnification --mpp --patch-px --encoder "
    "--patch-magnification",
    "crossval": "run --cohort --bags --splits --folds --seeds --out --set --device --workers "
    "--ddof",
    "demo": "--out --quick --seed",
    "doctor": "--encoder --online --quick --json",
    "evaluate": "artefact cohort --bags --from-pixels --split --part --out --truth --mpp --slides "
    "--weights --runtime --precision --device --json",
    "extract": "cohort --out --magnifications --mag --patch-px --encoder --weights --tissue "
    "--tissue-threshold --child-tissue --keep-ink --order --scale --overlap --dtype --mpp "
    "--slides --runtime --precision --device --engine --workers --batch-size",
    "heatmap": "predictions --out --slides --truth --only --of --values --longest-px --top --frame",
    "info": "slide --magnifications --mag --patch-px --mpp --scale --json --properties",
    "predict": "artefact slides --out --budget-patches --budget-gflops --budget-seconds "
    "--exit-confidence --attention-mass --k --max-steps --geojson --frame --mask --mpp --slides "
    "--weights --runtime --precision --device --engine --workers --batch-size",
    "report": "predictions --out --cohort --artefact --compare --truth --only --title --name "
    "--most-drawn",
    "split": "cohort --out --folds --fractions --val-fraction --seed --keep-sites",
    "tissue": "cohort --out --magnifications --mag --patch-px --tissue --tissue-threshold "
    "--keep-ink --scale --mpp --slides --workers --columns",
    "train": "run --cohort --bags --split --out --set --seed --device",
    "verify": "prediction --artefact --slide --mask --weights --runtime --precision --device",
    "view": "predictions --slides --artefact --cohort --host --port --open --mpp --weights "
    "--runtime --precision --device",
}
"""What people have in their scripts: arguments in order, options; more may be added, none lost."""


def test_commands():
    from typer.main import get_command

    from zoommil.cli.app import app

    assert set(get_command(app).commands) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_and_options_of_commands(name):
    from typer.main import get_command

    from zoommil.cli.app import app

    command = get_command(app).commands[name]
    words = COMMANDS[name].split()
    if hasattr(command, "commands"):
        assert set(words) <= set(command.commands)
        return
    arguments = [one.name for one in command.params if one.param_type_name == "argument"]
    options = {text for one in command.params for text in one.opts}
    assert arguments == [word for word in words if not word.startswith("--")]
    assert {word for word in words if word.startswith("--")} <= options
