"""Row 12, provenance: what an answer follows from comes in; it goes out as JSON values.

No times, no paths, no host names: the same answer elsewhere has the same provenance but for the
kind of machine and the versions.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoommil import __version__
from zoommil.artefact import Artefact
from zoommil.bags.bag import Bag
from zoommil.inference.limits import Limits
from zoommil.slides.slide import Slide

if TYPE_CHECKING:
    from zoommil.encoders.encoder import Encoder


def of_slide(
    slide: Slide,
    artefact: Artefact,
    encoders: Mapping[int, Encoder],
    tissue: dict[str, Any],
    limits: Limits,
) -> dict[str, Any]:
    """What an answer from pixels follows from."""
    steps = [
        {"step": step, **encoder.identity(), "runtime_version": encoder.runtime_version}
        for step, encoder in encoders.items()
    ]
    return {
        "from": "slide",
        "slide": {
            "fingerprint": slide.fingerprint,
            "size": [int(side) for side in slide.size],
            "bounds": [int(value) for value in slide.bounds],
            "mpp": float(slide.mpp),
            "mpp_source": slide.mpp_source,
            "reader": slide.reader,
        },
        "tissue": tissue,
        "encoders": steps,
        **_common(artefact, limits),
    }


def of_bag(bag: Bag, artefact: Artefact, limits: Limits) -> dict[str, Any]:
    """What an answer from stored features follows from."""
    return {
        "from": "bag",
        "bag": bag.key,
        "slide": dict(bag.provenance.get("slide") or {}),
        "tissue": bag.provenance.get("tissue"),
        "encoders": bag.provenance.get("encoders"),
        **_common(artefact, limits),
    }


def machine_kind() -> str:
    """The kind of processor: on the same kind the same numbers are expected."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _common(artefact: Artefact, limits: Limits) -> dict[str, Any]:
    import numpy as np
    import torch

    return {
        "artefact": artefact.hash,
        "model": artefact.settings.get("name"),
        "temperature": artefact.temperature,
        "storage": artefact.source.storage,
        "limits": limits.to_json(),
        "versions": {"zoommil": __version__, "torch": torch.__version__, "numpy": np.__version__},
        "machine": machine_kind(),
    }
