"""Row 6, encoding: a slide, boxes and an encoder in; feature rows out, in the boxes' order.

Reading and decoding run ahead of the encoder in threads, a compute batch of neighbouring boxes at
a time, so that the encoder never waits on an ordinary disk and memory stays bounded by the batches
in flight; what neighbouring batches share is decoded once, in the slide's block cache.
Extraction and inference both call this; it is the reason why the two agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from zoommil.machine import num_cores

if TYPE_CHECKING:
    from zoommil.encoders.encoder import Encoder
    from zoommil.slides.slide import Slide

Progress = Callable[[int], None]
"""Called with the number of patches just done."""


def encode_boxes(
    slide: Slide,
    boxes: Float[np.ndarray, "patch 4"],
    mpp: float,
    patch_px: int,
    encoder: Encoder,
    *,
    batch_size: int | None = None,
    readers: int | None = None,
    progress: Progress | None = None,
) -> Float[np.ndarray, "patch feature"]:
    """One feature row per box, float32, whatever the number of readers.

    Args:
        slide: where the pixels are.
        boxes: (x, y, width, height) in level-0 pixels; neighbours should follow each other.
        mpp: resolution of the patches.
        patch_px: side of a patch at that resolution.
        encoder: turns pixels into rows; called from this thread only.
        batch_size: patches read and handed to the encoder at a time, rounded up to whole compute
            batches; it never changes the result.
        readers: reading threads; by default one per core, at most four.
        progress: called with the number of patches done since the last call.

    Raises:
        SlideReadError: a box could not be decoded; nothing is put in its place.
    """
    rows = np.empty((len(boxes), encoder.dim), np.float32)
    done = 0
    for pixels in read_ahead(
        slide,
        boxes,
        mpp,
        patch_px,
        chunk=_whole_batches(batch_size or 1, encoder.batch_size),
        readers=readers or min(4, num_cores()),
    ):
        rows[done : done + len(pixels)] = encoder.encode(pixels)
        done += len(pixels)
        if progress is not None:
            progress(len(pixels))
    return rows


def _whole_batches(num_patches: int, compute_batch: int) -> int:
    return -(-num_patches // compute_batch) * compute_batch


def read_ahead(
    slide: Slide,
    boxes: Float[np.ndarray, "patch 4"],
    mpp: float,
    patch_px: int,
    *,
    chunk: int,
    readers: int,
) -> Iterator[UInt8[np.ndarray, "patch height width 3"]]:
    """The boxes' pixels in order, ``chunk`` at a time, read by ``readers`` threads in advance."""
    starts = iter(range(0, len(boxes), chunk))

    def read(start: int) -> np.ndarray:
        corners = boxes[start : start + chunk, :2]
        return slide.read_boxes(corners, patch_px, patch_px, mpp)

    pool = ThreadPoolExecutor(readers, thread_name_prefix="zoommil-read")
    waiting: deque[Future[np.ndarray]] = deque()
    try:
        for start in starts:
            waiting.append(pool.submit(read, start))
            if len(waiting) > 2 * readers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
