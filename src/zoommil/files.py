"""Row 0, files: writing that a kill cannot spoil, locks, and hashes of what was written.

Every final file of this package goes through :func:`atomic_path`: written under a temporary name
in the same folder, synced, renamed. A reader therefore sees the old file, the new one or none.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoommil.errors import DiskFullError, LockError, OutputError

STALE_LOCK_SECONDS = 3600.0

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EIO)

_unfinished: set[Path] = set()  # temporary files this process is writing now


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside ``path`` that becomes it when the block ends well.

    Raises:
        OutputError: the folder cannot be written.
        DiskFullError: there is no space left, also where a library says so in its own way.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    _unfinished.add(temporary)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except Exception as error:
        if _reason(error) is None:
            raise
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
        _unfinished.discard(temporary)


def unwritable(path: Path | str, error: Exception) -> OutputError:
    """The error that says why a file could not be written, and what to do."""
    reason = _reason(error) or str(error)
    is_full = reason in map(os.strerror, _FULL)
    return (DiskFullError if is_full else OutputError)(
        f"cannot write {str(path)!r}: {reason}. Check the folder's permissions and free space, "
        "then run the same command again."
    )


def _reason(error: Exception) -> str | None:
    """What the system said; HDF5 and safetensors wrap it in errors and texts of their own."""
    known = (os.strerror(number) for number in _UNWRITABLE)
    said = next((text for text in known if text in str(error)), None)
    return said or ((error.strerror or str(error)) if isinstance(error, OSError) else None)


def reserve(path: Path, num_bytes: int) -> None:
    """Make sure of room for a new file before a library writes it that cannot fail cleanly.

    HDF5 keeps what is to be written and gives it to the disk when it closes; where that fails
    it prints a traceback which nobody can catch. Does nothing where the system cannot reserve.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, max(num_bytes, 1))
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise
    finally:
        os.close(descriptor)


def remove_unfinished() -> None:
    """Remove what is half-written, in a process that ends without unwinding."""
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_text(path: Path | str, text: str) -> None:
    """Write a whole text file atomically, UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write indented JSON atomically, keys in their own order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def canonical_json(value: Any) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def hash_of(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON, hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_hash(path: Path | str) -> str:
    """The SHA-256 of a whole file, hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def exclusive_lock(path: Path | str) -> Iterator[None]:
    """Hold ``path`` as a lock file made by exclusive create; removed at the end.

    The file names its owner (process and host). A lock whose owner on this host is gone, or that
    another host has not touched for an hour, is taken over.

    Raises:
        LockError: somebody else holds it; the message names them.
    """
    path = Path(path)
    _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def touch_lock(path: Path | str) -> None:
    """Say that the owner of a lock still lives; called now and then by long work."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)


def _acquire(path: Path) -> None:
    owner = {"process": os.getpid(), "host": socket.gethostname(), "started": _process_start()}
    for _ in range(2):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            if not _remove_if_stale(path):
                break
            continue
        except OSError as error:
            raise unwritable(path, error) from error
        with os.fdopen(descriptor, "w") as stream:
            json.dump(owner, stream)
        return
    raise LockError(
        f"{path.name!r} is held by {_describe_owner(path)}. "
        "Wait for it, or remove the lock file if that process is gone."
    )


def _remove_if_stale(path: Path) -> bool:
    """Remove a lock whose owner is gone. A race between two removers is settled by the rename."""
    if not _is_stale(path):
        return False
    grave = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}.stale")
    try:
        path.rename(grave)
    except FileNotFoundError:
        return True
    if _is_stale(grave):
        grave.unlink(missing_ok=True)
        return True
    with contextlib.suppress(FileExistsError):  # it was taken afresh meanwhile: give it back
        os.link(grave, path)
    grave.unlink(missing_ok=True)
    return False


def _is_stale(path: Path) -> bool:
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return True
    owner: dict[str, Any] = {}
    with contextlib.suppress(json.JSONDecodeError, OSError):
        owner = json.loads(path.read_text() or "{}")
    if not owner:  # killed between create and write, or being written right now
        return age > 10.0
    if owner.get("host") == socket.gethostname():
        return not _is_same_process(owner)
    return age > STALE_LOCK_SECONDS


def _is_same_process(owner: dict[str, Any]) -> bool:
    import psutil

    try:
        process = psutil.Process(int(owner["process"]))
        return abs(process.create_time() - float(owner["started"])) < 2.0
    except (psutil.NoSuchProcess, KeyError, ValueError):
        return False
    except psutil.AccessDenied:
        return True


def _process_start() -> float:
    import psutil

    return psutil.Process().create_time()


def _describe_owner(path: Path) -> str:
    with contextlib.suppress(OSError, json.JSONDecodeError):
        owner = json.loads(path.read_text())
        return f"process {owner.get('process')} on {owner.get('host')}"
    return "another process"


def _sync(path: Path) -> None:
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) if path.is_dir() else os.O_RDONLY
    descriptor = os.open(path, flags)
    try:
        with contextlib.suppress(PermissionError):  # folders cannot be synced everywhere
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
