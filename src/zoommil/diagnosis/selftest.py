"""Row 16, self-test: a slide of known pixels is written, read and encoded; features are compared.

What is compared with is ``selftest.npy``, made by ``scripts/selftest_features.py``: the features
of ResNet-18 with weights ``random:0`` for the two patches of :func:`slide_pixels`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.diagnosis.finding import Finding

ENCODER, WEIGHTS = "resnet18", "random:0"
PATCH_PX, NUM_PATCHES = 256, 2
TOLERANCE = 1e-3
"""Of fp32, relative to the largest feature."""
BF16_TOLERANCE = 0.05
FEATURES_FILE = "selftest.npy"


def run_selftest() -> Iterator[Finding]:
    """Every reader on a slide of known pixels, then every runtime on what was read."""
    from zoommil.encoders.runtime import RUNTIMES

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "selftest.tiff"
        write_slide(path)
        yield from _check_readers(path)
    expected = stored_features()
    for name in RUNTIMES.names():
        if RUNTIMES.load(name).is_available():
            yield from check_runtime(name, expected)


def slide_pixels() -> UInt8[np.ndarray, "height width 3"]:
    """Two patches side by side: squares of colour with fine grain, from a seed."""
    generator = np.random.default_rng(2022)
    shape = (8, 8 * NUM_PATCHES, 3)
    squares = generator.integers(60, 220, shape).repeat(32, axis=0).repeat(32, axis=1)
    grain = generator.integers(-20, 21, squares.shape)
    return (squares + grain).astype(np.uint8)


def patches() -> UInt8[np.ndarray, "patch side side 3"]:
    """The patches as an encoder takes them."""
    return np.stack(np.split(slide_pixels(), NUM_PATCHES, axis=1))


def write_slide(path: Path) -> None:
    """Write the pixels as a tiled TIFF without loss."""
    import tifffile

    options = {"tile": (256, 256), "compression": "deflate", "photometric": "rgb"}
    tifffile.imwrite(path, slide_pixels(), **options)


def stored_features() -> Float[np.ndarray, "patch feature"]:
    """The features that came with the package."""
    with (files("zoommil.diagnosis") / FEATURES_FILE).open("rb") as stream:
        return np.load(stream, allow_pickle=False)


def compute_features(runtime: str, precision: str) -> Float[np.ndarray, "patch feature"]:
    """The features as this machine computes them."""
    from zoommil.encoders.loading import load_encoder

    encoder = load_encoder(
        ENCODER,
        runtime=runtime,
        precision=precision,  # pyright: ignore[reportArgumentType]
        device="cpu",
        weights=WEIGHTS,
        batch_size=NUM_PATCHES,
    )
    return encoder.encode(patches())


def check_runtime(runtime: str, expected: Float[np.ndarray, "patch feature"]) -> Iterator[Finding]:
    """A runtime's features against stored ones, in fp32 and in what is used by default here."""
    from zoommil import machine

    yield _compare(runtime, "fp32", expected, TOLERANCE)
    if machine.has_fast_bf16():
        yield _compare(runtime, "bf16", expected, BF16_TOLERANCE)


def _compare(runtime: str, precision: str, expected: np.ndarray, tolerance: float) -> Finding:
    name, start = f"self-test {runtime} {precision}", time.monotonic()
    try:
        found = compute_features(runtime, precision)
    except Exception as error:  # a broken runtime raises anything; what it says is the finding
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(name, "problem", f"cannot encode: {reason}", _remedy(runtime))
    seconds = time.monotonic() - start
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    details = {"error": error, "tolerance": tolerance, "seconds": round(seconds, 3)}
    text = (
        f"features differ by {error:.1e} from stored ones (at most {tolerance:g}), {seconds:.1f} s"
    )
    if not error <= tolerance:
        return Finding(name, "problem", text, _remedy(runtime), details)
    return Finding(name, "ok", text, details=details)


def _remedy(runtime: str) -> str:
    other = "torch" if runtime == "openvino" else "openvino"
    return (
        f"pip install --force-reinstall {runtime} (the version of constraints.txt), and until then "
        f"pass --runtime {other}"
    )


def _check_readers(path: Path) -> Iterator[Finding]:
    from zoommil.errors import ZoomMILError
    from zoommil.slides.opening import READERS, open_slide

    expected = slide_pixels()
    height, width = expected.shape[:2]
    for reader in ("openslide", "image"):
        name = f"self-test reader {reader}"
        remedy = "pip install --force-reinstall openslide-python openslide-bin tifffile imagecodecs"
        if reader not in READERS.names():
            continue
        try:
            with open_slide(path, mpp=1.0, reader=reader) as slide:
                found = slide.read(0, 0, width, height, 1.0)
        except (ZoomMILError, ImportError, OSError) as error:
            text = f"cannot read: {type(error).__name__}: {error}".splitlines()[0]
            yield Finding(name, "problem", text, remedy)
            continue
        if np.array_equal(found, expected):
            yield Finding(name, "ok", "every pixel as it was written")
        else:
            share = float((found != expected).any(axis=2).mean())
            text = f"{share:.0%} of the pixels are not as they were written"
            yield Finding(name, "problem", text, remedy)
