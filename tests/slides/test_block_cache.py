"""The block cache: bounded, and no block is decoded twice at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zoommil.slides.cache import BlockCache


def block(value: int) -> np.ndarray:
    return np.full((10, 10, 3), value, np.uint8)


def test_it_forgets_the_longest_unused_first_and_stays_within_its_bytes():
    cache = BlockCache(3 * 300)
    made: list[int] = []

    def produce(keys):
        made.extend(keys)
        return {key: block(key) for key in keys}

    for key in (1, 2, 3, 1, 4):
        cache.fetch([key], produce)
    assert cache.held_bytes == 900
    cache.fetch([1], produce)
    cache.fetch([2], produce)
    assert made == [1, 2, 3, 4, 2]


def test_blocks_that_are_not_kept_are_made_again():
    cache = BlockCache(10_000)
    made: list[int] = []

    def produce(keys):
        made.extend(keys)
        return {key: block(key) for key in keys}

    cache.fetch([1], produce, keep=False)
    cache.fetch([1], produce)
    cache.fetch([1], produce)
    assert made == [1, 1]


def test_threads_wait_for_a_block_that_is_being_made():
    cache = BlockCache(10_000)
    started, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    def produce(keys):
        made.extend(keys)
        started.set()
        assert go_on.wait(10)
        return {key: block(key) for key in keys}

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cache.fetch, [7], produce)
        assert started.wait(10)
        others = [pool.submit(cache.fetch, [7], produce) for _ in range(3)]
        go_on.set()
        blocks = [future.result(10)[7] for future in [first, *others]]
    assert made == [7]
    assert all((found == 7).all() for found in blocks)


def test_a_waiting_thread_tries_itself_when_the_other_failed_for_another_block():
    cache = BlockCache(10_000)
    started, go_on = threading.Event(), threading.Event()

    def fail(keys):
        started.set()
        assert go_on.wait(10)
        raise ValueError(f"one of {keys} is bad")

    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(cache.fetch, [1, 2], fail)
        assert started.wait(10)
        waiting = pool.submit(cache.fetch, [2], lambda keys: {key: block(key) for key in keys})
        go_on.set()
        with pytest.raises(ValueError, match="is bad"):
            failing.result(10)
        assert (waiting.result(10)[2] == 2).all()


def test_cached_blocks_cannot_be_written_to():
    cache = BlockCache(10_000)
    found = cache.fetch([1], lambda keys: {key: block(key) for key in keys})[1]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 0
