"""Row 5, encoders: the torch runtime; batches of patches flow in, features flow out.

On CPUs: batch norms folded into the convolutions, channels_last, and glibc told to keep freed
memory; together 2.5 times a plain port in float32. On CUDA: autocast, and no TF32 in fp32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import nn

from zoommil import machine
from zoommil.encoders.network import (
    ConvolutionalNetwork,
    PatchNetwork,
    fold_batch_norms,
    use_one_algorithm,
)
from zoommil.encoders.runtime import ComputeSpec, Precision, Runtime

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchRuntime(Runtime):
    """PyTorch, on the CPU or on CUDA.

    ``threads`` sets torch's own number of threads, which is one for the whole process; without it
    nothing is changed.
    """

    name = "torch"

    @classmethod
    def is_available(cls) -> bool:
        return True

    @classmethod
    def supports(cls, precision: Precision, device: str) -> bool:
        on_cpu = device == "cpu" and precision != "fp16"
        return precision in _DTYPES and (device == "cuda" or on_cpu)

    def __init__(self, network: PatchNetwork, spec: ComputeSpec, cache_key: str) -> None:  # noqa: ARG002
        self._device = torch.device(spec.device)
        self._dtype = _DTYPES[spec.precision]
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        machine.keep_freed_memory()
        network.network = self._prepared(network.network)
        if isinstance(network.network, ConvolutionalNetwork):
            network.compute_dtype = self._dtype
        self._network = network.to(self._device).eval().requires_grad_(False)

    @property
    def version(self) -> str:
        return torch.__version__

    def compute(
        self, patches: UInt8[np.ndarray, "batch side side 3"]
    ) -> Float[np.ndarray, "batch feature"]:
        with torch.inference_mode(), self._numerics():
            features = self._network(torch.from_numpy(patches).to(self._device))
        return features.cpu().numpy()

    def _prepared(self, network: nn.Module) -> nn.Module:
        """Convolutional networks run in the precision whole; others by autocast, as published."""
        if isinstance(network, ConvolutionalNetwork):
            network = fold_batch_norms(network).to(self._dtype)
            if self._dtype == torch.float32 and self._device.type == "cpu":
                use_one_algorithm(network)
        return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    @contextlib.contextmanager
    def _numerics(self) -> Iterator[None]:
        kind = self._device.type
        with contextlib.ExitStack() as stack:
            if self._dtype != torch.float32 and self._network.compute_dtype == torch.float32:
                stack.enter_context(torch.autocast(kind, dtype=self._dtype))
            if kind == "cuda":  # the same algorithm on every run; fp32 is not TF32
                flags = torch.backends.cudnn.flags
                stack.enter_context(flags(True, deterministic=True, allow_tf32=False))
            yield
