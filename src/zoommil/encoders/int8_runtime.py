"""Row 5, encoders: the int8 form of the OpenVINO runtime; batches of patches in, features out."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from zoommil import machine
from zoommil.encoders.openvino_runtime import OpenVINORuntime, compile_request, import_openvino
from zoommil.encoders.quantisation import GRAPH_FILE, QuantisedNetwork
from zoommil.encoders.runtime import ComputeSpec, Precision, Runtime
from zoommil.errors import EncoderError, MissingExtraError


class Int8Runtime(Runtime):
    """OpenVINO on the CPU with a network that was quantised before; what is not int8 is float32."""

    name = "openvino"

    @classmethod
    def is_available(cls) -> bool:
        return OpenVINORuntime.is_available()

    @classmethod
    def supports(cls, precision: Precision, device: str) -> bool:
        return device == "cpu" and precision == "int8"

    def __init__(self, network: QuantisedNetwork, spec: ComputeSpec) -> None:
        if not self.is_available():
            raise MissingExtraError(
                "precision int8 needs OpenVINO. Run: pip install 'zoommil[openvino]', or pass "
                "--precision bf16."
            )
        machine.keep_freed_memory()
        self._network = network
        self._spec = spec
        self._request: Any = None

    @property
    def version(self) -> str:
        return version("openvino")

    def compute(
        self, patches: UInt8[np.ndarray, "batch side side 3"]
    ) -> Float[np.ndarray, "batch feature"]:
        side = patches.shape[1]
        if side != self._network.patch_px:
            raise EncoderError(
                f"patches are {side} px wide, the int8 network was calibrated on "
                f"{self._network.patch_px} px. Use the patches it was made for, or calibrate again."
            )
        if self._request is None:
            model = import_openvino().Core().read_model(self._network.folder / GRAPH_FILE)
            model.reshape(list(patches.shape))
            self._request = compile_request(model, "f32", self._spec.threads)
        self._request.infer({0: patches}, share_inputs=True)
        return self._request.get_output_tensor(0).data.copy()
