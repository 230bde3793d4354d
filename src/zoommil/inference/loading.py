"""Row 12, loading: what an artefact says of its features comes in; specs and encoders go out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zoommil.artefact import Artefact, SourceStep
from zoommil.errors import ArtefactError, ConfigError, MissingExtraError, UnknownNameError
from zoommil.grid import GridSpec
from zoommil.tissue import TissueSpec

if TYPE_CHECKING:
    from pathlib import Path

    from zoommil.encoders.encoder import Encoder
    from zoommil.encoders.quantisation import QuantisedNetwork
    from zoommil.slides.slide import Slide

logger = logging.getLogger(__name__)

# What of an encoder's identity may differ from training: it moves the last bits of features only.
_MAY_DIFFER = ("runtime", "runtime_version", "device", "precision")


def grid_of(artefact: Artefact) -> GridSpec:
    """The grid that an artefact's slides are cut with.

    Raises:
        ArtefactError: it was trained on bags that do not say how they were made.
    """
    grid = artefact.source.grid
    if grid is None or artefact.magnifications is None:
        raise ArtefactError(
            f"the artefact {str(artefact.folder)!r} was trained on bags that do not say how slides "
            "were cut into patches, so it cannot look at slides. Predict from bags of that kind."
        )
    try:
        return GridSpec(**{**grid, "magnifications": artefact.magnifications})
    except ValidationError as error:
        raise ArtefactError(
            f"the artefact's grid cannot be: {error.errors()[0]['msg']}."
        ) from error


def tissue_of(artefact: Artefact) -> TissueSpec:
    """How an artefact's slides are searched for tissue.

    Training slides with masks of their own do not say: the default method then has their frame.
    """
    known = TissueSpec.model_fields
    found = {key: value for key, value in (artefact.source.tissue or {}).items() if key in known}
    try:
        return TissueSpec(**found)
    except ValidationError as error:
        raise ArtefactError(
            f"the artefact's tissue search cannot be: {error.errors()[0]['msg']}."
        ) from error


def load_encoders(
    artefact: Artefact,
    steps: Sequence[int],
    *,
    weights: str | Sequence[str] | None = None,
    runtime: str = "auto",
    precision: str = "auto",
    device: str = "auto",
    batch_size: int | None = None,
) -> dict[int, Encoder]:
    """The encoder of each of these steps; equal ones are loaded once.

    Args:
        weights: a weights file or ``random:SEED``, one for all or one per step of the artefact;
            None for the encoder's own. They must be those of training.
        runtime: "auto" is that of training where it is installed, else the quickest.
        precision: "auto" is that of training.
        batch_size: patches per computation.

    Raises:
        ArtefactError: the weights are not those of training.
        EncoderError: the encoder cannot be had.
    """
    files = per_step(weights, len(artefact.source.steps))
    loaded: dict[Any, Encoder] = {}
    found = {}
    for step in steps:
        source = artefact.source.steps[step]
        identity = source.encoder or {}
        chosen = identity.get("precision", "auto") if precision == "auto" else precision
        choice = (
            name_of(artefact, source),
            files[step],
            _runtime(runtime, identity, chosen),
            chosen,
            _int8_folder(artefact, step) if chosen == "int8" else None,
        )
        if choice not in loaded:
            loaded[choice] = _load(*choice, device=device, batch_size=batch_size)
        found[step] = loaded[choice]
        check_encoder(artefact, step, found[step])
    return found


def check_encoder(artefact: Artefact, step: int, encoder: Encoder) -> None:
    """Nothing, or an ArtefactError when an encoder is not the one of training."""
    expected = artefact.source.steps[step].encoder or {}
    given = encoder.identity()
    for key, value in expected.items():
        if key in _MAY_DIFFER or key not in given or given[key] == value:
            continue
        hint = "Pass the weights it was trained with (--weights)." if "weights" in key else (
            "Use the encoder it was trained with."
        )  # fmt: skip
        raise ArtefactError(
            f"the encoder {encoder.name!r} is not that of the artefact: {key} is "
            f"{str(given[key])[:16]}, expected {str(value)[:16]}. {hint}"
        )


def differences_of(artefact: Artefact, step: int, encoder: Encoder) -> list[str]:
    """How an encoder is run otherwise than in training, in words."""
    expected, given = artefact.source.steps[step].encoder or {}, encoder.identity()
    return [
        f"features in training were made with {key} {expected[key]}, here with {given[key]}"
        for key in ("runtime", "precision")
        if key in expected and expected[key] != given.get(key)
    ]


def reader_differences(artefact: Artefact, slide: Slide) -> list[str]:
    """How a slide is read otherwise than those of training, in words."""
    known = artefact.source.readers
    if not known or slide.reader in known:
        return []
    return [f"slides in training were read by {' and '.join(known)}, this one by {slide.reader}"]


def name_of(artefact: Artefact, source: SourceStep) -> str:
    """The encoder of a step. Raises ArtefactError where the artefact does not say."""
    name = (source.encoder or {}).get("name")
    if not name:
        raise ArtefactError(
            f"the artefact {str(artefact.folder)!r} does not say which encoder made its features, "
            "so it cannot look at slides. Predict from bags of that kind."
        )
    return str(name)


def find_int8(artefact: Artefact, step: int) -> QuantisedNetwork | None:
    """The int8 network that is stored with an artefact for one of its steps.

    Raises:
        ArtefactError: the artefact was trained on the int8 features of another one.
        WeightsError: a stored one was changed.
    """
    from zoommil.encoders.quantisation import find_quantised

    source = artefact.source.steps[step]
    identity = source.encoder or {}
    if artefact.folder is None:
        return None
    stored = [
        network
        for network in find_quantised(artefact.folder)
        if network.weights_hash == identity.get("weights_hash")
        and network.card.get("name") == identity.get("name")
        and network.patch_px == source.patch_px
    ]
    trained_on = identity.get("quantised")
    if trained_on is None:
        return stored[0] if stored else None
    fitting = [network for network in stored if network.hash == trained_on]
    if not fitting:
        found = ", ".join(network.hash[:12] for network in stored) or "none"
        raise ArtefactError(
            f"the artefact {str(artefact.folder)!r} was trained on features of the int8 network "
            f"{trained_on[:12]}; stored with it: {found}. Copy the folder 'int8' of the bags it "
            "was trained on into the artefact's."
        )
    return fitting[0]


def _int8_folder(artefact: Artefact, step: int) -> Path:
    found = find_int8(artefact, step)
    if found is None:
        raise ArtefactError(
            f"no int8 network is stored with {_described(artefact)}. "
            "`zoommil predict ARTEFACT COHORT --precision int8` makes it of the cohort's patches."
        )
    return found.folder


def _described(artefact: Artefact) -> str:
    return f"the artefact {str(artefact.folder)!r}" if artefact.folder else "this artefact"


def _runtime(asked: str, identity: dict[str, Any], precision: str) -> str:
    """The runtime to use: as asked, or that of training where it is installed."""
    from zoommil.encoders.runtime import RUNTIMES

    if asked == "auto" and precision == "int8":
        return "openvino"
    known = identity.get("runtime")
    if asked != "auto" or known is None:
        return asked
    try:
        return known if RUNTIMES.load(known).is_available() else "auto"
    except (UnknownNameError, MissingExtraError, ImportError):
        return "auto"


def _load(
    name: str,
    weights: str | None,
    runtime: str,
    precision: str,
    quantised: Path | None,
    **options: Any,
) -> Encoder:
    from zoommil.encoders.loading import load_encoder

    options.update(weights=weights, runtime=runtime, precision=precision, quantised=quantised)
    try:
        return load_encoder(name, **options)
    except MissingExtraError as error:
        raise MissingExtraError(f"the artefact's encoder cannot be had: {error}") from error


def per_step(weights: str | Sequence[str] | None, num_steps: int) -> Sequence[str | None]:
    """The weights of each step, from one for all or one per step."""
    if weights is None or isinstance(weights, str):
        return [weights] * num_steps
    if len(weights) not in (1, num_steps):
        raise ConfigError(
            f"{len(weights)} weights were given for {num_steps} magnifications; give one for all, "
            "or one for each."
        )
    return list(weights) * (num_steps if len(weights) == 1 else 1)
