"""Row 16, computer: instructions, threads, memory and disk of this machine, judged."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zoommil import machine
from zoommil.diagnosis.finding import Finding

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16")
GB = 1e9
LITTLE_MEMORY, ENOUGH_MEMORY = 1.5 * GB, 4 * GB
LITTLE_DISK, ENOUGH_DISK = 1 * GB, 10 * GB


def check_computer() -> Iterator[Finding]:
    """What computes here, and with how much room."""
    yield _check_instructions()
    yield check_threads()
    yield _check_allocator()
    yield check_memory(available_memory())
    for name, folder in _folders().items():
        yield check_disk(name, folder)


def _check_instructions() -> Finding:
    flags = machine.cpu_flags()
    found = [name for name in INSTRUCTIONS if name in flags]
    details = {"instructions": found, "has_fast_bf16": machine.has_fast_bf16()}
    if not flags:
        text = "the processor's instructions cannot be read on this system; fp32 is used"
        return Finding("instructions", "ok", text, details=details)
    if not machine.has_fast_bf16():
        text = (
            f"{', '.join(found) or 'none of note'}: no bf16, so encoding takes about twice as long"
        )
        remedy = "nothing to install; a processor with AVX-512 BF16 or AMX, or a GPU, is quicker"
        return Finding("instructions", "note", text, remedy, details)
    return Finding("instructions", "ok", f"{', '.join(found)}: bf16 is used", details=details)


def check_threads() -> Finding:
    """Whether the cores of this process are used."""
    cores, told = machine.num_cores(), machine.num_threads()
    details = {"cores": cores, "machine_cores": os.cpu_count(), "omp_num_threads": told}
    if told is not None and told != cores:
        effect = "leaves cores idle" if told < cores else "makes threads wait for each other"
        text = f"OMP_NUM_THREADS={told} with {cores} cores: {effect}"
        return Finding("threads", "note", text, "unset OMP_NUM_THREADS", details)
    text = f"{cores} of {os.cpu_count()} cores may be used"
    return Finding("threads", "ok", text, details=details)


def _check_allocator() -> Finding:
    if machine.keep_freed_memory():
        return Finding("allocator", "ok", "glibc keeps freed memory (1.6 to 2 times quicker)")
    text = f"{platform.system()} decides itself what happens to freed memory"
    return Finding("allocator", "ok", text)


def available_memory() -> float:
    """Bytes that this process may still take: the machine's, or its control group's if less."""
    import psutil

    free = float(psutil.virtual_memory().available)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
    except OSError:
        return free
    return free if limit == "max" else min(free, float(limit) - float(used))


def check_memory(available: float) -> Finding:
    """Whether the memory suffices for one worker."""
    text = f"{available / GB:.1f} GB available"
    details = {"available_bytes": int(available)}
    remedy = "end other programs, or use a machine with more memory; one worker needs 1.5 to 4 GB"
    if available < LITTLE_MEMORY:
        return Finding("memory", "problem", text, remedy, details)
    if available < ENOUGH_MEMORY:
        return Finding("memory", "note", f"{text}: use --workers 1", remedy, details)
    return Finding("memory", "ok", text, details=details)


def _folders() -> dict[str, Path]:
    from huggingface_hub import constants

    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return {
        "disk here": Path.cwd(),
        "disk of the cache": Path(cache),
        "disk of weights": Path(constants.HF_HUB_CACHE),
        "disk of temporary files": Path(tempfile.gettempdir()),
    }


def check_disk(name: str, folder: Path) -> Finding:
    """Whether a folder, or the nearest one above it that exists, has room and can be written."""
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    free = shutil.disk_usage(existing).free
    details = {"folder": str(folder), "free_bytes": free}
    text = f"{folder}: {free / GB:.1f} GB free"
    if not os.access(existing, os.W_OK):
        remedy = (
            f"chmod u+w {existing}, or work in another folder (HF_HOME, XDG_CACHE_HOME, TMPDIR)"
        )
        return Finding(name, "problem", f"{text}, and cannot be written", remedy, details)
    remedy = "free some space; bags take about 10 MB per slide, weights up to 5 GB"
    if free < LITTLE_DISK:
        return Finding(name, "problem", text, remedy, details)
    if free < ENOUGH_DISK:
        return Finding(name, "note", text, remedy, details)
    return Finding(name, "ok", text, details=details)
