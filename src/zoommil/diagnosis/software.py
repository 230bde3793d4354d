"""Row 16, software: what is installed comes in; versions, readers, runtimes and extras go out."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from zoommil import __version__, machine
from zoommil.diagnosis.finding import Finding

CODECS = ("JPEG", "JPEG2K", "JPEGXR", "LZW", "DEFLATE", "ZSTD", "WEBP")
"""Compressions of slide files that tifffile leaves to imagecodecs."""

_FOR_DEVELOPERS = ("dev", "docs")
_IMPORTED = ("openvino", "timm")
"""Optional packages whose import is tried: they may be installed and not work."""


def check_software() -> Iterator[Finding]:
    """Versions, readers and what they decode, runtimes, optional extras."""
    yield Finding(
        "version",
        "ok",
        f"zoommil {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}",
    )
    yield check_requirements()
    yield from _check_readers()
    yield from _check_runtimes()
    yield from _check_extras()


def requirements(extra: str = "") -> list[Requirement]:
    """What the package needs, or needs for one of its extras."""
    every = [Requirement(text) for text in metadata.requires("zoommil") or ()]
    always = {str(one) for one in every if one.marker is None or one.marker.evaluate({"extra": ""})}
    if not extra:
        return [one for one in every if str(one) in always]
    applies = [one for one in every if one.marker and one.marker.evaluate({"extra": extra})]
    return [one for one in applies if str(one) not in always]


def lacking(wanted: list[Requirement]) -> dict[str, str]:
    """Requirements that are not met: name -> what is wrong."""
    wrong = {}
    for one in wanted:
        try:
            version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            wrong[one.name] = "not installed"
            continue
        if not one.specifier.contains(version, prereleases=True):
            wrong[one.name] = f"{version}, expected {one.specifier}"
    return wrong


def check_requirements() -> Finding:
    """Whether every required package is here in a version that will do."""
    wanted = requirements()
    wrong = lacking(wanted)
    if wrong:
        text = "; ".join(f"{name}: {what}" for name, what in wrong.items())
        names = " ".join(f"'{one.name}{one.specifier}'" for one in wanted if one.name in wrong)
        return Finding("packages", "problem", text, f"pip install {names}", {"wrong": wrong})
    versions = {one.name: metadata.version(one.name) for one in wanted}
    shown = ", ".join(f"{name} {versions[name]}" for name in ("torch", "numpy", "h5py"))
    text = f"all {len(wanted)} required packages ({shown}, ...)"
    return Finding("packages", "ok", text, details={"versions": versions})


def _check_readers() -> Iterator[Finding]:
    from zoommil.slides.opening import READERS

    for name in READERS.names():
        try:
            READERS.load(name)
        except Exception as error:  # whatever a plugin or a shared library raises when imported
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = "pip install --force-reinstall openslide-python openslide-bin tifffile"
            yield Finding(f"reader {name}", "problem", reason, remedy)
        else:
            yield Finding(f"reader {name}", "ok", _described_reader(name))
    yield _check_codecs()


def _described_reader(name: str) -> str:
    if name == "openslide":
        import openslide

        return (
            f"OpenSlide {openslide.__library_version__}: SVS, NDPI, VMS, SCN, MRXS, BIF, Philips, "
            "CZI, DICOM, tiled TIFF"
        )
    if name == "image":
        return f"tifffile {metadata.version('tifffile')}: other TIFF; PNG, JPEG, NumPy arrays"
    if name == "jpeg_tiles":
        return "the fast one: Aperio SVS and TIFF pyramids whose tiles are JPEG"
    return "from another package"


def _check_codecs() -> Finding:
    import imagecodecs

    here = [name for name in CODECS if getattr(imagecodecs, name).available]
    missing = [name for name in CODECS if name not in here]
    if missing:
        text = f"TIFF compressions that cannot be decoded: {', '.join(missing)}"
        remedy = "pip install --force-reinstall imagecodecs"
        return Finding("compressions", "note", text, remedy, {"missing": missing})
    return Finding("compressions", "ok", ", ".join(here))


def _check_runtimes() -> Iterator[Finding]:
    import torch

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    where = ", ".join(devices) or "CPU only"
    text = f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads"
    yield Finding("runtime torch", "ok", text, details={"cuda_devices": devices})
    if lacking(requirements("openvino")):
        status = "ok" if devices else "note"
        remedy = "pip install 'zoommil[openvino]'"
        text = "not installed; encoding on a CPU would be about 1.2 times as fast"
        yield Finding("runtime openvino", status, text, remedy)
        return
    reason = _import_error("openvino")
    if reason:
        remedy = "pip install --force-reinstall openvino, or pass --runtime torch"
        yield Finding("runtime openvino", "problem", f"does not import: {reason}", remedy)
        return
    precisions = "fp32, bf16" if machine.has_fast_bf16() else "fp32"
    text = f"OpenVINO {metadata.version('openvino')} ({precisions})"
    yield Finding("runtime openvino", "ok", text)


def _check_extras() -> Iterator[Finding]:
    names = metadata.metadata("zoommil").get_all("Provides-Extra") or []
    for extra in names:
        if extra in _FOR_DEVELOPERS or extra == "openvino":
            continue
        yield _check_extra(extra)


def _check_extra(extra: str) -> Finding:
    wanted = requirements(extra)
    wrong = lacking(wanted)
    install = f"pip install 'zoommil[{extra}]'"
    if wrong:
        text = "; ".join(f"{name}: {what}" for name, what in wrong.items())
        return Finding(f"extra {extra}", "note", text, f"where it is needed: {install}")
    for one in wanted:
        reason = _import_error(one.name) if one.name in _IMPORTED else ""
        if reason:
            text = f"{one.name} is installed but does not import: {reason}"
            remedy = "install builds of torch and torchvision that belong together"
            return Finding(f"extra {extra}", "note", text, remedy)
    text = ", ".join(f"{one.name} {metadata.version(one.name)}" for one in wanted)
    return Finding(f"extra {extra}", "ok", text)


def _import_error(module: str) -> str:
    """Why a package does not import, in one line; empty when it does."""
    try:
        if module == "openvino":
            from zoommil.encoders.openvino_runtime import import_openvino

            import_openvino()
        else:
            importlib.import_module(module)
    except Exception as error:  # a broken installation raises anything
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
