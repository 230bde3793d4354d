"""Row 5, encoders: a name flows in, a ready encoder flows out."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from zoommil import machine
from zoommil.encoders.card import EncoderCard, find_card, list_encoders
from zoommil.encoders.encoder import Encoder
from zoommil.encoders.runtime import RUNTIMES, ComputeSpec, Precision, Runtime
from zoommil.errors import ConfigError, WeightsError
from zoommil.files import hash_of

__all__ = ["list_encoders", "load_encoder"]

logger = logging.getLogger(__name__)

BATCH_SIZE = {"cpu": 8, "cuda": 64}
_PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8")


def load_encoder(
    name: str | EncoderCard,
    *,
    runtime: str = "auto",
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto",
    device: str = "auto",
    weights: str | Path | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    quantised: str | Path | None = None,
) -> Encoder:
    """An encoder with its weights on its runtime, ready to encode.

    Args:
        name: of :func:`list_encoders`, ``timm:NAME``, or a card of one's own.
        runtime: ``torch``, ``openvino``, or ``auto``: OpenVINO on CPUs where it is installed.
        precision: ``auto`` is bf16 where the processor is quick at it (fp16 on CUDA devices
            without), else fp32. ``int8`` needs ``quantised``.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: CUDA where there is one.
        weights: a safetensors file or torch state dict, ``random:SEED``, or None for the card's.
        batch_size: patches per computation, 8 on CPUs and 64 on CUDA when None.
        threads: of one computation, all cores of this process when None. The torch runtime can
            only set them for the whole process, and does so only when told here.
        quantised: the folder of the network that ``quantise`` made, for int8; it has its weights.

    Raises:
        UnknownNameError: nobody knows the encoder or the runtime.
        MissingExtraError: a package it needs is not installed.
        WeightsError: weights are missing, gated or do not fit.
        ConfigError: options that do not go together.
    """
    from zoommil.encoders.building import build_network, wrap_network
    from zoommil.encoders.weights import load_weights

    card = name if isinstance(name, EncoderCard) else find_card(name)
    device = _choose_device(device)
    family = choose_runtime(runtime, device)
    spec = ComputeSpec(
        precision=_choose_precision(precision, device, family),
        device=device,
        batch_size=_positive("batch_size", batch_size) or BATCH_SIZE[_kind(device)],
        threads=_positive("threads", threads),
    )
    if spec.precision == "int8":
        return _load_int8(card, quantised, spec)
    network = build_network(card)
    weights_hash = load_weights(network, card, weights)
    cache_key = hash_of([card.identity(), weights_hash])
    backend = family(wrap_network(network, card), spec, cache_key)
    logger.info("encoder %s: %s %s on %s", card.name, family.name, spec.precision, device)
    return Encoder(card, weights_hash, backend, spec)


def _load_int8(card: EncoderCard, folder: str | Path | None, spec: ComputeSpec) -> Encoder:
    """An encoder whose network was quantised before."""
    from zoommil.encoders.int8_runtime import Int8Runtime
    from zoommil.encoders.quantisation import load_quantised

    if folder is None:
        raise ConfigError(
            "precision int8 needs a network that was calibrated on patches. `zoommil predict "
            "--precision int8` and `zoommil extract --precision int8` make it from the cohort; "
            "in Python, quantise() does, and load_encoder takes its folder as quantised."
        )
    network = load_quantised(folder)
    if network.card != card.identity():
        raise WeightsError(
            f"{str(folder)!r} is the int8 form of the encoder {network.card.get('name')!r}, not of "
            f"this {card.name!r}. Remove it and calibrate again (--precision int8)."
        )
    logger.info("encoder %s: int8, quantised %s", card.name, network.hash[:12])
    return Encoder(card, network.weights_hash, Int8Runtime(network, spec), spec, network.hash)


def choose_runtime(name: str, device: str) -> type[Runtime]:
    """The runtime of that name, or for ``auto`` the quickest that is installed for the device."""
    if name != "auto":
        return cast(type[Runtime], RUNTIMES.load(name))
    if _kind(device) == "cpu" and find_spec("openvino") is not None:
        return RUNTIMES.load("openvino")
    return RUNTIMES.load("torch")


def _choose_device(device: str) -> str:
    import torch

    kind, _, index = device.partition(":")
    if kind not in {"auto", *BATCH_SIZE} or (index and not index.isdecimal()):
        raise ConfigError(f"device {device!r} is not known. Pass auto, cpu, cuda or cuda:N.")
    available = torch.cuda.device_count()
    if kind == "auto":
        return "cuda" if available else "cpu"
    if kind == "cuda" and int(index or 0) >= available:
        raise ConfigError(
            f"device {device!r} is not here: torch sees {available} CUDA devices. "
            "Pass device='cpu', or install the CUDA build of torch."
        )
    return device


def _choose_precision(precision: str, device: str, family: type[Runtime]) -> Precision:
    if precision not in _PRECISIONS:
        raise ConfigError(
            f"precision {precision!r} is not known. Pass one of {', '.join(_PRECISIONS)}."
        )
    chosen = _quickest_precision(_kind(device)) if precision == "auto" else precision
    chosen = cast(Precision, chosen)
    if not family.supports(chosen, _kind(device)):
        raise ConfigError(
            f"the runtime {family.name!r} does not compute in {chosen} on {device!r}. "
            "Pass precision='auto', or another runtime."
        )
    return chosen


def _quickest_precision(kind: str) -> Precision:
    if kind == "cpu":
        return "bf16" if machine.has_fast_bf16() else "fp32"
    import torch

    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def _positive(option: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ConfigError(f"{option} is {value}, expected 1 or more.")
    return value


def _kind(device: str) -> str:
    return device.partition(":")[0]
