"""Row 5, encoders: networks without weights; a card flows in, a module or its cost flows out."""

from __future__ import annotations

import importlib
import warnings

import torch
from torch import nn

from zoommil.encoders.card import EncoderCard
from zoommil.encoders.network import PatchNetwork
from zoommil.encoders.timm_models import require_timm
from zoommil.errors import EncoderError


def build_network(card: EncoderCard) -> nn.Module:
    """The card's network in float32, its weights whatever its constructor drew.

    Raises:
        MissingExtraError: the card needs timm and it is not installed.
        EncoderError: the network does not give features of the card's length.
    """
    if card.extra == "timm":
        require_timm(card.name)
    module, _, attribute = card.network.partition(":")
    builder = getattr(importlib.import_module(module), attribute)
    network = builder(**card.arguments).eval().requires_grad_(False)
    if network.dim != card.dim:
        raise EncoderError(
            f"the encoder {card.name!r} gives {network.dim} features, its card says {card.dim}. "
            "Correct the card."
        )
    return network


def wrap_network(network: nn.Module, card: EncoderCard) -> PatchNetwork:
    """The network behind its preprocessing: from bytes to features."""
    return PatchNetwork(network, card)


def count_macs(card: EncoderCard, patch_px: int) -> int:
    """Multiply-accumulates of the network for one patch, counted as its operators run.

    Convolutions and matrix products, as the literature counts; no memory and no arithmetic is
    spent: the operators run on torch's meta device.
    """
    from torch.utils.flop_counter import FlopCounterMode

    side = patch_px if card.any_size else card.input_px
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = build_network(card)
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            network(torch.empty(1, 3, side, side))
    return counter.get_total_flops() // 2
