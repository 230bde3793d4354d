"""Row 5, encoders: the OpenVINO runtime; batches of patches flow in, features flow out.

The torch network is converted in this process. A converted network is kept under the user's cache
folder, because converting takes seconds and compiling what was converted does not.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sys
import tempfile
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from zoommil import machine
from zoommil.encoders.network import ConvolutionalNetwork, PatchNetwork, fold_batch_norms
from zoommil.encoders.runtime import ComputeSpec, Precision, Runtime
from zoommil.errors import EncoderError, MissingExtraError
from zoommil.files import hash_of

logger = logging.getLogger(__name__)

_HINTS = {"fp32": "f32", "bf16": "bf16"}
_GRAPH_VERSION = 1  # raise it when the graph around a network changes: old conversions are left


class OpenVINORuntime(Runtime):
    """OpenVINO on the CPU: one batch at a time over all threads, which is as quick as it gets."""

    name = "openvino"

    @classmethod
    def is_available(cls) -> bool:
        return find_spec("openvino") is not None

    @classmethod
    def supports(cls, precision: Precision, device: str) -> bool:
        return device == "cpu" and precision in (*_HINTS, "int8")

    def __init__(self, network: PatchNetwork, spec: ComputeSpec, cache_key: str) -> None:
        if not self.is_available():
            raise MissingExtraError(
                "the runtime 'openvino' is not installed. Run: pip install 'zoommil[openvino]', "
                "or pass runtime='torch'."
            )
        if isinstance(network.network, ConvolutionalNetwork):
            network.network = fold_batch_norms(network.network)
        machine.keep_freed_memory()
        self._network = network.eval().requires_grad_(False)
        self._spec = spec
        self._cache_key = cache_key
        self._requests: dict[int, Any] = {}

    @property
    def version(self) -> str:
        return version("openvino")

    def compute(
        self, patches: UInt8[np.ndarray, "batch side side 3"]
    ) -> Float[np.ndarray, "batch feature"]:
        side = patches.shape[1]
        if side not in self._requests:
            self._requests[side] = self._compile(patches.shape)
        request = self._requests[side]
        request.infer({0: patches}, share_inputs=True)
        return request.get_output_tensor(0).data.copy()

    def _compile(self, shape: tuple[int, ...]) -> Any:
        model = self._converted(import_openvino().Core(), shape)
        return compile_request(model, _HINTS[self._spec.precision], self._spec.threads)

    def _converted(self, core: Any, shape: tuple[int, ...]) -> Any:
        """The network for one shape of batch, from the cache or newly converted into it."""
        versions = [_GRAPH_VERSION, self.version, torch.__version__]
        folder = cache_folder() / hash_of([self._cache_key, list(shape), versions])[:32]
        try:
            return core.read_model(folder / "model.xml")
        except RuntimeError:
            logger.debug("no converted network in %s", folder)
            shutil.rmtree(folder, ignore_errors=True)  # one that cannot be read, if any
        model = convert(self._network, shape)
        _save(model, folder)
        return model


def compile_request(model: Any, hint: str, threads: int | None) -> Any:
    """A request that computes a model over so many threads, all of this process's when None."""
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": threads or machine.num_cores(),
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # several processes would pin themselves to one core
    }
    compiled = import_openvino().Core().compile_model(model, "CPU", settings)
    return compiled.create_infer_request()


def import_openvino() -> ModuleType:
    """The openvino package, imported without its reporting that import over the network."""
    return import_quietly("openvino")


def import_quietly(package: str) -> ModuleType:
    """OpenVINO or a package of its makers, not reporting its use over the network.

    They do so unless their sender is not installed; for that case they bring a silent stand-in.
    Here the sender is hidden while the package is imported for the first time in this process.
    """
    if package in sys.modules:
        return importlib.import_module(package)
    sender = "openvino_telemetry"
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_in(name, sender)}
    sys.modules[sender] = None  # pyright: ignore[reportArgumentType]
    try:
        return importlib.import_module(package)
    finally:
        del sys.modules[sender]
        sys.modules.update(hidden)


def cache_folder() -> Path:
    """Where converted networks are kept; safe to delete at any time."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "zoommil" / "openvino"


def convert(network: PatchNetwork, shape: tuple[int, ...]) -> Any:
    """An OpenVINO model of a constant shape, made by what ``openvino.convert_model`` stands on."""
    import_openvino()
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    frontend = FrontEndManager().load_by_framework("pytorch")
    example = torch.zeros(shape, dtype=torch.uint8)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # tracing warns of every constant it takes from a shape
            decoder = TorchScriptPythonDecoder(
                network, example_input=(example,), shared_memory=False
            )
            model = frontend.convert(frontend.load(decoder))  # the decoder must live until here
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise EncoderError(
            f"OpenVINO cannot convert this network ({reason}). Pass runtime='torch'."
        ) from error
    model.reshape(list(shape))
    return model


def _save(model: Any, folder: Path) -> None:
    """Keep a converted network for the next time; a cache that cannot be written costs time only.

    Written beside its place and renamed, so that no process ever reads half of it.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".converting-", dir=folder.parent))
        try:
            import_openvino().save_model(model, temporary / "model.xml", compress_to_fp16=False)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, RuntimeError) as error:
        logger.debug("the converted network is not kept: %s", error)


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")
