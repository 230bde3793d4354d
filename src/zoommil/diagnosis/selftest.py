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
JPEG_READER, JPEG_TOLERANCE = "jpeg_tiles", 3
"""Two decoders of one JPEG round differently, by a few of 255."""


def run_selftest() -> Iterator[Finding]:
    """Every reader on a slide of known pixels, then every runtime on what was read."""
    from zoommil.encoders.runtime import RUNTIMES

    with tempfile.TemporaryDirectory() as folder:
        yield from _check_readers(Path(folder))
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


def write_slide(path: Path, compression: str = "deflate") -> None:
    """Write the pixels as a tiled TIFF; deflate loses nothing."""
    import tifffile

    options = {"tile": (256, 256), "compression": compression, "photometric": "rgb"}
    if compression == "jpeg":
        options |= {"photometric": "ycbcr"}
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


def _check_readers(folder: Path) -> Iterator[Finding]:
    """Slides of known pixels: one without loss for most readers, one of JPEG tiles for the fast."""
    from zoommil.slides.opening import READERS

    plain, tiled = folder / "selftest.tiff", folder / "selftest-jpeg.tiff"
    write_slide(plain)
    write_slide(tiled, "jpeg")
    for name in ("openslide", "image"):
        if name in READERS.names():
            yield check_reader(name, plain, slide_pixels())
    if JPEG_READER in READERS.names():
        decoded = read_slide("openslide", tiled)
        yield check_reader(JPEG_READER, tiled, decoded, JPEG_TOLERANCE)


def read_slide(reader: str, path: Path) -> UInt8[np.ndarray, "height width 3"] | Exception:
    """All pixels of the self-test's slide, or why they cannot be read."""
    from zoommil.errors import ZoomMILError
    from zoommil.slides.opening import open_slide

    height, width = slide_pixels().shape[:2]
    try:
        with open_slide(path, mpp=1.0, reader=reader) as slide:
            return slide.read(0, 0, width, height, 1.0)
    except (ZoomMILError, ImportError, OSError) as error:
        return error


def check_reader(
    reader: str, path: Path, expected: np.ndarray | Exception, tolerance: int = 0
) -> Finding:
    """A reader's pixels against those that should be there, to so many of 255."""
    name = f"self-test reader {reader}"
    remedy = "pip install --force-reinstall openslide-python openslide-bin tifffile imagecodecs"
    if reader == JPEG_READER:
        remedy = "pip install --force-reinstall simplejpeg tifffile"
    found = read_slide(reader, path)
    if isinstance(found, Exception) or isinstance(expected, Exception):
        error = found if isinstance(found, Exception) else expected
        text = f"cannot read: {type(error).__name__}: {error}".splitlines()[0]
        return Finding(name, "problem", text, remedy)
    off = np.abs(np.subtract(found, expected, dtype=np.int16)) > tolerance
    if not off.any():
        text = "every pixel as it was written" if not tolerance else "pixels as OpenSlide has them"
        return Finding(name, "ok", text)
    share = float(off.any(axis=2).mean())
    return Finding(name, "problem", f"{share:.0%} of the pixels are not as they should be", remedy)
