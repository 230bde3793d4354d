"""Row 1, slides: a path comes in, bytes from anywhere in its file go out."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class SharedFile:
    """A file open for reading that closes when nobody holds it any more.

    A slide that is closed lets go of it; a thread that is just reading still ends well.
    """

    def __init__(self, path: Path) -> None:
        """Args: path: of the file. Raises OSError."""
        self._descriptor: int | None = None
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def read(self, offset: int, num_bytes: int) -> bytes:
        """These bytes of the file. Raises ValueError where it ends before them, or OSError."""
        data = self._read(offset, num_bytes)
        if len(data) < num_bytes:
            raise ValueError(f"the file ends {num_bytes - len(data)} bytes early")
        return data

    def _read(self, offset: int, num_bytes: int) -> bytes:
        assert self._descriptor is not None
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, num_bytes, offset)
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, num_bytes)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
