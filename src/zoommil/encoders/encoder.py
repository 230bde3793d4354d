"""Row 5, encoders: the encoder itself; uint8 patches flow in, float32 features flow out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.encoders.building import count_macs
from zoommil.encoders.card import EncoderCard
from zoommil.encoders.runtime import ComputeSpec, Precision, Runtime
from zoommil.errors import EncoderError

_SMALLEST_PATCH_PX = 32


class Encoder:
    """One network with its weights, on one runtime.

    :meth:`encode` may be called from several threads: a lock lets one compute at a time, over all
    the threads the runtime was given. The computation has one constant batch shape, its last
    batch padded, so a patch's feature depends neither on its neighbours nor on how many patches
    a call brings.
    """

    def __init__(
        self,
        card: EncoderCard,
        weights_hash: str,
        runtime: Runtime,
        spec: ComputeSpec,
        quantised_hash: str | None = None,
    ) -> None:
        self.card = card
        self.weights_hash = weights_hash
        self.quantised_hash = quantised_hash
        self._runtime = runtime
        self._spec = spec
        self._lock = threading.Lock()
        self._macs: dict[int, int] = {}

    @property
    def name(self) -> str:
        """The card's name."""
        return self.card.name

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return self.card.dim

    @property
    def runtime(self) -> str:
        """The runtime's name: ``torch`` or ``openvino``."""
        return self._runtime.name

    @property
    def runtime_version(self) -> str:
        """The version of what computes."""
        return self._runtime.version

    @property
    def precision(self) -> Precision:
        """What it computes in: ``fp32``, ``bf16``, ``fp16`` or ``int8``."""
        return self._spec.precision

    @property
    def device(self) -> str:
        """Where it computes: ``cpu``, ``cuda``, ``cuda:1``."""
        return self._spec.device

    @property
    def batch_size(self) -> int:
        """Patches per computation, always; calls may bring any number."""
        return self._spec.batch_size

    def identity(self) -> dict[str, Any]:
        """What decides the numbers of a feature, as JSON: card, weights, runtime, precision.

        In int8 also ``quantised``: the hash of the quantised network.
        """
        quantised = {} if self.quantised_hash is None else {"quantised": self.quantised_hash}
        return {
            **self.card.identity(),
            "weights_hash": self.weights_hash,
            "runtime": self.runtime,
            "precision": self.precision,
            "device": self.device.partition(":")[0],
            **quantised,
        }

    def encode(
        self, patches: UInt8[np.ndarray, "patch side side 3"]
    ) -> Float[np.ndarray, "patch feature"]:
        """One feature vector per patch, in order.

        Raises:
            EncoderError: the array is not of square RGB patches of bytes, or they are too small.
        """
        patches = check_patches(patches)
        features = np.empty((len(patches), self.dim), dtype=np.float32)
        for start in range(0, len(patches), self.batch_size):
            batch = patches[start : start + self.batch_size]
            with self._lock:
                features[start : start + len(batch)] = self._compute(batch)
        return features

    def macs_per_patch(self, patch_px: int) -> int:
        """Multiply-accumulate operations of the network for one patch, counted from it."""
        if patch_px not in self._macs:
            self._macs[patch_px] = count_macs(self.card, patch_px)
        return self._macs[patch_px]

    def _compute(self, batch: np.ndarray) -> np.ndarray:
        if len(batch) == self.batch_size:
            return self._runtime.compute(np.ascontiguousarray(batch))
        padded = np.zeros((self.batch_size, *batch.shape[1:]), dtype=np.uint8)
        padded[: len(batch)] = batch
        return self._runtime.compute(padded)[: len(batch)]


def check_patches(patches: Any) -> np.ndarray:
    """The patches, if they are square RGB images of bytes."""
    given = f"{getattr(patches, 'dtype', type(patches).__name__)} {getattr(patches, 'shape', '')}"
    if not isinstance(patches, np.ndarray) or patches.dtype != np.uint8:
        raise EncoderError(
            f"patches are {given.strip()}, expected a uint8 array (N, side, side, 3)."
        )
    if patches.ndim != 4 or patches.shape[3] != 3 or patches.shape[1] != patches.shape[2]:
        raise EncoderError(f"patches are {given}, expected (N, side, side, 3) uint8.")
    if patches.shape[1] < _SMALLEST_PATCH_PX:
        raise EncoderError(
            f"patches are {patches.shape[1]} px wide; an encoder needs {_SMALLEST_PATCH_PX} or "
            "more. Set a larger patch_px."
        )
    return patches
