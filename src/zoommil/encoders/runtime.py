"""Row 5, encoders: the runtimes' contract; a network and batches of patches in, features out.

A runtime computes one network on one device in one precision. Batches come in one constant shape
per patch side, so a feature does not depend on its neighbours in the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.encoders.network import PatchNetwork
from zoommil.registry import Registry

Precision = Literal["fp32", "bf16", "fp16", "int8"]

RUNTIMES = Registry(
    "runtime",
    {
        "torch": "zoommil.encoders.torch_runtime:TorchRuntime",
        "openvino": "zoommil.encoders.openvino_runtime:OpenVINORuntime",
    },
)


@dataclass(frozen=True)
class ComputeSpec:
    """How a runtime is to compute."""

    precision: Precision
    device: str
    batch_size: int
    threads: int | None = None


class Runtime(ABC):
    """Computes features of whole batches. Not thread-safe: the encoder holds a lock around it."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def is_available(cls) -> bool:
        """Whether its package is installed."""

    @classmethod
    @abstractmethod
    def supports(cls, precision: Precision, device: str) -> bool:
        """Whether it computes in that precision on that kind of device ("cpu", "cuda")."""

    @abstractmethod
    def __init__(self, network: PatchNetwork, spec: ComputeSpec, cache_key: str) -> None:
        """Args: network: float32 on the CPU, it may be changed; cache_key: names its weights."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the backend."""

    @abstractmethod
    def compute(
        self, patches: UInt8[np.ndarray, "batch side side 3"]
    ) -> Float[np.ndarray, "batch feature"]:
        """The features of one batch of the constant size, float32."""
