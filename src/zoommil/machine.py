"""Row 0, machine: what this computer is, and how to keep it from working against us.

Cores this process may use, processor features, memory, and two settings worth a factor of two
each on CPUs: glibc's malloc thresholds and the number of threads per library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""How numeric libraries are told their number of threads, before they are imported."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def num_cores() -> int:
    """The cores this process may run on (its affinity, not the machine's total)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def num_threads() -> int | None:
    """The threads this process was pinned to (see :func:`pinned_threads`), or None."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else None


@cache
def cpu_flags() -> frozenset[str]:
    """The processor's feature flags as Linux spells them; empty where they cannot be read."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def has_fast_bf16() -> bool:
    """Whether bfloat16 is quicker than float32 here (AVX-512 BF16 or AMX)."""
    return bool(cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})


@cache
def keep_freed_memory() -> bool:
    """Tell glibc to keep big freed blocks instead of faulting fresh pages in again.

    Worth 1.6 to 2 times on convolution networks; resident memory then stays at its peak.
    Returns whether it was applied (Linux with glibc only). Idempotent.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        applied = libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        return bool(applied and libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far.

    On Linux by the kernel's own mark: what getrusage says of a process begins at the size of the
    process that started it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def resident_memory_bytes() -> int:
    """The resident size of this process now."""
    import psutil

    return psutil.Process().memory_info().rss


@contextlib.contextmanager
def pinned_threads(threads: int) -> Iterator[None]:
    """Processes started inside run this many threads per numeric library."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
