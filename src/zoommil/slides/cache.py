"""Row 1, slides: keys of wanted blocks come in, decoded blocks go out, each decoded once.

A least-recently-used cache bounded in bytes. Threads that want a block which another thread is
just decoding wait for it instead of decoding it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

Block = UInt8[np.ndarray, "height width 3"]
Key = TypeVar("Key", bound=Hashable)
Produce = Callable[[list[Key]], Mapping[Key, np.ndarray]]


class BlockCache:
    """Decoded blocks by key, at most ``capacity_bytes`` of them; safe to use from many threads."""

    def __init__(self, capacity_bytes: int) -> None:
        """Args: capacity_bytes: the most that is kept; blocks in use do not count."""
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0
        self._blocks: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._pending: dict[Hashable, Future[np.ndarray]] = {}
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """The bytes of all blocks kept now."""
        return self._held_bytes

    def fetch(
        self, keys: Iterable[Key], produce: Produce[Key], *, keep: bool = True
    ) -> dict[Key, np.ndarray]:
        """The blocks of these keys; ``produce`` is called once for all that nobody has or makes.

        Args:
            keys: the wanted blocks.
            produce: makes the blocks of a list of keys. It must not ask this cache for any key
                that may itself wait for one of these (finer levels only: then nothing deadlocks).
            keep: whether the blocks made now are kept for later calls.
        """
        found: dict[Key, np.ndarray] = {}
        claimed: list[Key] = []
        awaited: dict[Key, Future[np.ndarray]] = {}
        with self._lock:
            for key in keys:
                block = self._blocks.get(key)
                if block is not None:
                    self._blocks.move_to_end(key)
                    found[key] = block
                elif key in self._pending:
                    awaited[key] = self._pending[key]
                else:
                    self._pending[key] = Future()
                    claimed.append(key)
        if claimed:
            found.update(self._make(claimed, produce, keep))
        for key, future in awaited.items():
            if future.exception() is None:
                found[key] = future.result()
            else:  # the other thread failed, perhaps for another block of its batch: try ourselves
                found.update(self.fetch([key], produce, keep=keep))
        return found

    def clear(self) -> None:
        """Forget all blocks."""
        with self._lock:
            self._blocks.clear()
            self._held_bytes = 0

    def _make(self, keys: list[Key], produce: Produce[Key], keep: bool) -> Mapping[Key, np.ndarray]:
        try:
            blocks = produce(keys)
        except BaseException as error:
            with self._lock:
                futures = [self._pending.pop(key) for key in keys]
            for future in futures:
                future.set_exception(error)
            raise
        for block in blocks.values():
            block.flags.writeable = False
        with self._lock:
            futures = {key: self._pending.pop(key) for key in keys}
            if keep:
                self._insert(blocks)
        for key, future in futures.items():
            future.set_result(blocks[key])
        return blocks

    def _insert(self, blocks: Mapping[Key, np.ndarray]) -> None:
        for key, block in blocks.items():
            if key not in self._blocks:
                self._blocks[key] = block
                self._held_bytes += block.nbytes
        while self._held_bytes > self._capacity_bytes and self._blocks:
            _, old = self._blocks.popitem(last=False)
            self._held_bytes -= old.nbytes
