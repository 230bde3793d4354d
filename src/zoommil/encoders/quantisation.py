"""Row 5, encoders: quantisation; a network and patches flow in, a folder with its int8 form out.

    network.xml network.bin   the graph from the bytes of patches to features, for OpenVINO
    calibration.json          encoder, hash of its weights, what it was calibrated on, file hashes

The same network, patches and versions give the same bytes. The folder is complete when it is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from zoommil.encoders.card import EncoderCard, find_card
from zoommil.errors import EncoderError, MissingExtraError, OutputError, WeightsError
from zoommil.files import file_hash, hash_of

FOLDER = "int8"
"""Where quantised networks lie in an artefact and beside bags."""
GRAPH_FILE, CONSTANTS_FILE, RECORD_FILE = "network.xml", "network.bin", "calibration.json"
FEWEST_PATCHES = 32
_BATCH = 8


@dataclass(frozen=True)
class QuantisedNetwork:
    """An int8 network in its folder.

    Attributes:
        card: identity of the encoder's card, as JSON.
        weights_hash: of the float32 weights it was made from.
        patch_px: side of the patches it was calibrated on.
        hash: of its files: what an int8 feature follows from beside the slide.
        calibration: what it was calibrated on.
    """

    folder: Path
    card: dict[str, Any]
    weights_hash: str
    patch_px: int
    hash: str
    calibration: dict[str, Any]


def place_of(folder: Path, card: EncoderCard, weights_hash: str, patch_px: int) -> Path:
    """The folder of one encoder's int8 form below ``folder``."""
    key = hash_of([card.identity(), weights_hash, patch_px])[:12]
    return folder / FOLDER / f"{card.name.replace(':', '-').replace('/', '-')}-{key}"


def find_quantised(folder: Path) -> tuple[QuantisedNetwork, ...]:
    """All int8 networks below ``folder``, intact. Raises WeightsError for a changed one."""
    paths = sorted((folder / FOLDER).glob(f"*/{RECORD_FILE}"))
    return tuple(load_quantised(path.parent) for path in paths)


def load_quantised(folder: Path | str) -> QuantisedNetwork:
    """The int8 network in a folder.

    Raises:
        WeightsError: it is none, or its files are not those that were written.
    """
    folder = Path(folder)
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
        files = {name: file_hash(folder / name) for name in (GRAPH_FILE, CONSTANTS_FILE)}
        if record["files"] != files:
            changed = next(name for name in files if record["files"].get(name) != files[name])
            raise WeightsError(
                f"{str(folder / changed)!r} is not the file that {RECORD_FILE} was written with. "
                "Remove its folder and calibrate again (--precision int8)."
            )
        return QuantisedNetwork(
            folder=folder,
            card=record["card"],
            weights_hash=record["weights_hash"],
            patch_px=record["patch_px"],
            hash=hash_of(files),
            calibration=record["calibration"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(
            f"{str(folder)!r} is not an int8 network ({type(error).__name__}: {error}). "
            "Remove it and calibrate again (--precision int8)."
        ) from error


def quantise(
    name: str | EncoderCard,
    patches: UInt8[np.ndarray, "patch side side 3"],
    folder: Path | str,
    *,
    weights: str | Path | None = None,
    slides: tuple[str, ...] = (),
    weights_hash: str | None = None,
) -> QuantisedNetwork:
    """The int8 form of an encoder, calibrated on patches like those it will see.

    Args:
        name: as of ``load_encoder``.
        patches: some hundreds; the last ones beyond whole batches of 8 are left out.
        folder: an artefact's, or one of bags; the network gets a folder of its own below it.
        weights: as of ``load_encoder``.
        slides: fingerprints of those the patches are of, for the record.
        weights_hash: what the weights must have, where that is known.

    Raises:
        WeightsError: the weights have another hash, or cannot be had.
        MissingExtraError: OpenVINO or NNCF is not installed.
        EncoderError: too few patches, or the network cannot be quantised.
    """
    from zoommil.encoders.building import build_network
    from zoommil.encoders.weights import load_weights

    check_installed()
    if len(patches) < FEWEST_PATCHES:
        raise EncoderError(
            f"{len(patches)} patches are too few to calibrate int8 on; give {FEWEST_PATCHES} or "
            "more, of several slides."
        )
    card = name if isinstance(name, EncoderCard) else find_card(name)
    network = build_network(card)
    found = load_weights(network, card, weights)
    if weights_hash not in (None, found):
        raise WeightsError(
            f"the weights of the encoder {card.name!r} are {found[:16]}, expected "
            f"{str(weights_hash)[:16]}. Pass the weights it was trained with (--weights)."
        )
    side = int(patches.shape[1])
    record = {
        "card": card.identity(),
        "weights_hash": found,
        "patch_px": side,
        "calibration": {
            "patches": len(patches),
            "sha256": hashlib.sha256(patches.tobytes()).hexdigest(),
            "slides": list(slides),
        },
        "versions": {name: version(name) for name in ("openvino", "nncf")},
    }
    place = place_of(Path(folder), card, found, side)
    _write(_quantised(network, card, patches), record, place)
    return load_quantised(place)


def kept_quantised(
    name: str, folder: Path | str, patch_px: int, weights: str | Path | None = None
) -> QuantisedNetwork | None:
    """The int8 form of an encoder that lies below a folder; None when there is none."""
    from zoommil.encoders.building import build_network
    from zoommil.encoders.weights import load_weights

    card = find_card(name)
    if not (Path(folder) / FOLDER).is_dir():
        return None
    place = place_of(Path(folder), card, load_weights(build_network(card), card, weights), patch_px)
    return load_quantised(place) if place.is_dir() else None


def copy_quantised(network: QuantisedNetwork, folder: Path | str) -> QuantisedNetwork:
    """The same network below another folder, unless it is there."""
    place = Path(folder) / FOLDER / network.folder.name
    if not place.exists():
        with _arriving(place) as temporary:
            shutil.copytree(network.folder, temporary, dirs_exist_ok=True)
    return load_quantised(place)


def is_installed() -> bool:
    """Whether int8 networks can be made here."""
    return all(find_spec(name) is not None for name in ("openvino", "nncf"))


def check_installed() -> None:
    """Nothing, or a MissingExtraError with the line to install what is missing."""
    if not is_installed():
        raise MissingExtraError(
            "calibrating int8 needs OpenVINO and NNCF. Run: pip install 'zoommil[int8]', or pass "
            "--precision bf16."
        )


def _quantised(network: Any, card: EncoderCard, patches: np.ndarray) -> Any:
    """NNCF's post-training quantisation: symmetric int8 weights and activations."""
    from zoommil.encoders.building import wrap_network
    from zoommil.encoders.network import ConvolutionalNetwork, fold_batch_norms
    from zoommil.encoders.openvino_runtime import convert, import_quietly

    wrapped = wrap_network(network, card)
    if isinstance(wrapped.network, ConvolutionalNetwork):
        wrapped.network = fold_batch_norms(wrapped.network)
    model = convert(wrapped.eval().requires_grad_(False), (_BATCH, *patches.shape[1:]))
    nncf = import_quietly("nncf")
    batches = [patches[i : i + _BATCH] for i in range(0, len(patches) - _BATCH + 1, _BATCH)]
    logging.getLogger("nncf").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it draws bars there
            made = nncf.quantize(
                model,
                nncf.Dataset(batches),
                subset_size=len(batches),
                target_device=nncf.TargetDevice.CPU,
            )
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise EncoderError(
            f"the encoder {card.name!r} cannot be quantised ({reason}). Pass --precision bf16."
        ) from error
    _name_by_place(made)
    return made


def _name_by_place(model: Any) -> None:
    """Names that are the same every time; those of tracing depend on what else a process did."""
    for number, operation in enumerate(model.get_ordered_ops()):
        name = f"{operation.get_type_name()}_{number}"
        operation.set_friendly_name(name)
        for index, output in enumerate(operation.outputs()):
            output.set_names({f"{name}.{index}"})


def _write(model: Any, record: dict[str, Any], place: Path) -> None:
    from zoommil.encoders.openvino_runtime import import_openvino
    from zoommil.files import write_json

    with _arriving(place) as temporary:
        import_openvino().save_model(model, temporary / GRAPH_FILE, compress_to_fp16=False)
        files = {name: file_hash(temporary / name) for name in (GRAPH_FILE, CONSTANTS_FILE)}
        write_json(temporary / RECORD_FILE, {**record, "files": files})


@contextlib.contextmanager
def _arriving(place: Path) -> Iterator[Path]:
    """A folder that takes ``place`` when the block ends well; an older one there is replaced."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".quantising-", dir=place.parent))
        try:
            yield temporary
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise OutputError(
            f"cannot write {str(place)!r}: {error.strerror or error}. "
            "Check the folder's permissions and free space, then run the same command again."
        ) from error
