"""Row 15, tiles: a key and a tile address come in; an encoded picture goes out.

Reading happens in a few threads, however many clients ask; what many ask for at once is made once;
what was made is kept, up to a bound in bytes. Where too many requests wait, the answer is "busy".
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import UInt8

from zoommil.errors import SlideReadError, UnknownNameError, ZoomMILError
from zoommil.inference.prediction import Prediction
from zoommil.machine import num_cores
from zoommil.reports.frame import boxes_of, frame_of_slide, read_picture
from zoommil.slides.slide import Slide
from zoommil.viewer.shelf import SlideShelf
from zoommil.viewer.world import TILE_PX, TileWorld

KEPT_BYTES = 64 << 20
MAX_WAITING = 512
PATCH_PX, THUMBNAIL_PX = 176, 112
NUM_TOP = 12
STAGE = (16, 19, 24)
"""The colour around the slide; the style sheet has the same."""

_QUALITY = 86


class BusyError(ZoomMILError):
    """More requests wait than will be kept waiting."""


class PictureCache:
    """Encoded pictures by name, at most so many bytes; used from one event loop."""

    def __init__(self, capacity_bytes: int = KEPT_BYTES) -> None:
        """Args: capacity_bytes: the most that is kept."""
        self._capacity_bytes = capacity_bytes
        self._pictures: OrderedDict[Hashable, bytes] = OrderedDict()
        self.held_bytes = 0

    def get(self, name: Hashable) -> bytes | None:
        """The picture of that name, if it is kept."""
        found = self._pictures.get(name)
        if found is not None:
            self._pictures.move_to_end(name)
        return found

    def put(self, name: Hashable, picture: bytes) -> None:
        """Keep a picture, and forget those nobody asked for the longest."""
        self.held_bytes += len(picture) - len(self._pictures.pop(name, b""))
        self._pictures[name] = picture
        while self.held_bytes > self._capacity_bytes and self._pictures:
            _, old = self._pictures.popitem(last=False)
            self.held_bytes -= len(old)


class PictureMaker:
    """Pictures of slides, made in threads, each once for all who wait for it."""

    def __init__(
        self, shelf: SlideShelf, *, workers: int | None = None, max_waiting: int = MAX_WAITING
    ) -> None:
        """Args: workers: threads that read; max_waiting: pictures asked for and not yet made."""
        workers = workers or max(2, min(4, num_cores()))
        self._shelf = shelf
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="pictures")
        self._max_waiting = max_waiting
        self._making: dict[Hashable, asyncio.Future[bytes]] = {}
        self.cache = PictureCache()

    async def tile(self, key: str, zoom: int, column: int, row: int) -> bytes:
        """A deep-zoom tile as JPEG.

        Raises:
            UnknownNameError: nothing has that key, or the slide has no such tile.
            SlideError: the slide cannot be opened, or that part of it not be decoded.
            BusyError: too many requests wait.
        """
        return await self._made(
            ("tile", key, zoom, column, row), key, lambda slide: draw_tile(slide, zoom, column, row)
        )

    async def patch(self, key: str, box: tuple[float, ...], mpp: float) -> bytes:
        """A patch of a prediction as JPEG. Raises as :meth:`tile`."""
        return await self._made(
            ("patch", key, box, mpp), key, lambda slide: draw_patch(slide, box, mpp)
        )

    async def thumbnail(self, key: str) -> bytes:
        """The whole slide, very small, as JPEG. Raises as :meth:`tile`."""
        return await self._made(("thumbnail", key), key, draw_thumbnail)

    def close(self) -> None:
        """Stop making pictures."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._shelf.close()

    async def _made(self, name: Hashable, key: str, draw: Callable[[Slide], np.ndarray]) -> bytes:
        kept = self.cache.get(name)
        if kept is not None:
            return kept
        if name not in self._making:
            if len(self._making) >= self._max_waiting:
                raise BusyError("too many pictures are being made. Ask again in a second.")
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._threads, self._make, key, draw)
            self._making[name] = future
            future.add_done_callback(lambda done: self._end(name, done))
        return await asyncio.shield(self._making[name])

    def _make(self, key: str, draw: Callable[[Slide], np.ndarray]) -> bytes:
        with self._shelf.slide(key) as slide:
            try:
                return encode(draw(slide))
            except (ZoomMILError, MemoryError):
                raise
            except Exception as error:  # whatever a damaged file does to a decoder
                raise SlideReadError(
                    f"a part of {slide.name!r} cannot be decoded ({type(error).__name__})."
                ) from error

    def _end(self, name: Hashable, done: asyncio.Future[bytes]) -> None:
        self._making.pop(name, None)
        if not done.cancelled() and done.exception() is None:
            self.cache.put(name, done.result())


def draw_tile(
    slide: Slide, zoom: int, column: int, row: int
) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a tile; the stage's colour beyond the slide's bounds.

    Raises:
        UnknownNameError: the slide has no such tile.
    """
    world = TileWorld.of_slide(slide)
    if not world.has_tile(zoom, column, row):
        raise UnknownNameError("the slide has no such tile.")
    x, y = world.corner_of(zoom, column, row)
    width, height = world.size_of(zoom, column, row)
    tile = np.empty((TILE_PX, TILE_PX, 3), np.uint8)
    tile[:] = STAGE
    tile[:height, :width] = slide.read(x, y, width, height, slide.mpp * world.downsample(zoom))
    return tile


def draw_patch(
    slide: Slide, box: tuple[float, ...], mpp: float
) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a level-0 box at about its own resolution, no more than are shown."""
    x, y, width, height = box
    downsample = max(1.0, width / PATCH_PX, mpp / slide.mpp)
    columns, rows = (max(1, min(PATCH_PX, round(side / downsample))) for side in (width, height))
    return slide.read(x, y, columns, rows, slide.mpp * width / columns)


def draw_thumbnail(slide: Slide) -> UInt8[np.ndarray, "height width 3"]:
    """The slide's bounds, very small."""
    return read_picture(slide, frame_of_slide(slide, THUMBNAIL_PX))


def top_patches(prediction: Prediction, position: int) -> list[int]:
    """The patches of a step with the highest attention, highest first, by their order in it."""
    attention = prediction.steps[position].attention
    return np.argsort(-attention, kind="stable")[:NUM_TOP].tolist()


def patch_box(prediction: Prediction, position: int, patch: int) -> tuple[float, ...]:
    """The level-0 box of a patch as plain numbers. Raises PredictionError where none is known."""
    return tuple(float(side) for side in boxes_of(prediction, position)[patch])


def encode(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Pixels as JPEG."""
    import simplejpeg

    return simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality=_QUALITY, colorsubsampling="420"
    )
