"""Row 9, models: a name and settings in, a model out; the table of models and of presets."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from zoommil.errors import ModelError
from zoommil.models.model import Model
from zoommil.registry import Registry, unknown_name

_MEMBERS = {
    "zoommil": "zoommil.models.zoommil:ZoomMIL",
    "abmil": "zoommil.models.abmil:ABMIL",
    "clam_sb": "zoommil.models.clam:ClamSB",
    "clam_mb": "zoommil.models.clam:ClamMB",
    "transmil": "zoommil.models.transmil:TransMIL",
    "sparseconvmil": "zoommil.models.sparseconvmil:SparseConvMIL",
    "maxmil": "zoommil.models.maxmil:MaxMIL",
    "meanmil": "zoommil.models.meanmil:MeanMIL",
}

# methods.md B. `default` is the constructor's own defaults, so it has nothing to say here.
_PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "zoommil": {
        "default": {},
        "paper": {"straight_through": False},
        "robust": {"score": "zero_one", "sigma": 0.3, "sigma_schedule": "linear"},
        "exact": {"straight_through": False, "jacobian": "full", "baseline": True},
    }
}


def list_models() -> list[str]:
    """The names of all models, this package's first."""
    return _registry().names()


def list_presets(name: str) -> list[str]:
    """The names of a model's presets; every model has `default`."""
    return list(_PRESETS.get(name, {"default": {}}))


def default_settings(name: str) -> dict[str, Any]:
    """A model's own settings and their defaults. Raises UnknownNameError for an unknown model."""
    return _keywords(_registry().load(name))


def create_model(
    name: str,
    *,
    feature_dim: int | Sequence[int],
    num_classes: int,
    ratios: Sequence[int] = (),
    preset: str = "default",
    seed: int | None = None,
    **settings: Any,
) -> Model:
    """The model of that name, ready to train.

    Args:
        feature_dim: width of the features, one number or one per step of the bag.
        ratios: how many times finer each step is than the one before, linear (2 = four children).
        preset: a named set of settings; keywords given here go before it.
        seed: of the starting weights and of the model's own draws. None: torch's global generator.
        settings: the model's own keywords, as its class documents them.

    Raises:
        UnknownNameError: no such model or preset.
        ModelError: a setting the model does not know, or one that does not fit.
    """
    registry = _registry()
    model_class = registry.load(name)
    presets = _PRESETS.get(name, {"default": {}})
    if preset not in presets:
        raise unknown_name(f"preset of {name}", preset, presets)
    chosen = {**presets[preset], **settings}
    known = _keywords(model_class)
    _refuse_unknown(name, chosen, known)
    given = {"feature_dim": feature_dim, "num_classes": num_classes, "ratios": tuple(ratios)}
    # Starting weights from a seed leave torch's global generator as it was.
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        model = model_class(**given, seed=seed, **chosen)
    model.settings = {"name": name, **given, **known, **chosen}
    return model


def _registry() -> Registry:
    return Registry("model", _MEMBERS)


def _keywords(model_class: type) -> dict[str, Any]:
    """A model's own settings and their defaults: the keyword-only arguments of its class."""
    parameters = inspect.signature(model_class).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def _refuse_unknown(name: str, settings: dict[str, Any], known: dict[str, Any]) -> None:
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"{name} has no setting {setting!r}.{hint} Known: {', '.join(known)}.")
