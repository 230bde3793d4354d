"""Row 2, synthetic: a spec and a seed go in, a pyramidal slide file and its truth come out."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from zoommil.files import atomic_path, file_hash, hash_of, write_json
from zoommil.machine import num_cores
from zoommil.synthetic.drawing import draw_plan, draw_scene
from zoommil.synthetic.rendering import bare_glass, has_tissue, render_block
from zoommil.synthetic.scene import SlideScene
from zoommil.synthetic.spec import SlideSpec
from zoommil.synthetic.truth import SlideTruth, read_truth, truth_of
from zoommil.synthetic.writer import PyramidWriter, encode_tile, level_layouts
from zoommil.units import nominal_magnification

__all__ = ["SlideSpec", "SlideTruth", "truth_path", "write_slide"]

GENERATOR_VERSION = 2  # another one whenever the same spec and seed give other pixels

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Block:
    """One rendered block: its tiles, encoded, and its pixels at every further level."""

    column: int
    row: int
    tiles: list[tuple[int, int, bytes | None]]  # column, row, JPEG (None: bare glass)
    reduced: list[np.ndarray | None]


def truth_path(path: Path | str) -> Path:
    """Where a slide's truth lies: ``a.svs`` has ``a.truth.geojson`` beside it."""
    return Path(path).with_suffix(".truth.geojson")


def write_slide(
    path: Path | str,
    spec: SlideSpec,
    seed: int,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SlideTruth:
    """The truth of the slide now at ``path``; written unless an intact one is already there.

    The file's bytes depend on spec and seed alone, not on ``threads``. ``progress`` is told the
    number of blocks done and of all blocks.

    Raises:
        OutputError: the folder cannot be written.
    """
    path = Path(path)
    key = hash_of({"spec": spec.model_dump(mode="json"), "seed": seed, "by": GENERATOR_VERSION})
    known = _intact(path, key)
    if known is not None:
        return known
    plan = draw_plan(spec, seed)
    with atomic_path(path) as temporary:
        scene = draw_scene(spec, seed, plan, threads or num_cores())
        with temporary.open("wb") as stream, _single_threaded_cv2():
            _write_pyramid(stream, spec, scene, key, threads or num_cores(), progress)
        digest = file_hash(temporary)
    truth = truth_of(spec, plan)
    write_json(truth_path(path), truth.to_geojson() | {"key": key, "sha256": digest})
    _log.debug("wrote %s", path.name)
    return truth


def _intact(path: Path, key: str) -> SlideTruth | None:
    """The truth of an earlier writing of the very same slide, if the file is still whole."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        value: dict[str, Any] = json.loads(truth_path(path).read_text(encoding="utf-8"))
        if value["key"] == key and value["sha256"] == file_hash(path):
            return read_truth(value)
    return None


def _write_pyramid(
    stream: BufferedIOBase,
    spec: SlideSpec,
    scene: SlideScene,
    key: str,
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    levels = level_layouts(*spec.size_px, spec.downsamples, spec.tile_px)
    writer = PyramidWriter(stream, levels, spec.mpp, _descriptions(spec, key))
    glass = encode_tile(bare_glass(scene, spec.tile_px, spec.tile_px), spec.quality)
    strips = [_Strip(spec, scene, writer, index) for index in range(1, len(levels))]
    columns, rows = -(-spec.size_px[0] // spec.block_px), -(-spec.size_px[1] // spec.block_px)
    places = ((column, row) for row in range(rows) for column in range(columns))
    blocks = _in_order(lambda place: _make_block(spec, scene, *place), places, threads)
    for done, block in enumerate(blocks, start=1):
        for column, row, tile in block.tiles:
            writer.add(0, column, row, glass if tile is None else tile, is_shared=tile is None)
        for strip, pixels in zip(strips, block.reduced, strict=True):
            strip.add(block, pixels, is_last_of_row=block.column == columns - 1)
        if progress is not None:
            progress(done, columns * rows)
    for strip in strips:
        strip.finish()
    writer.finish()


def _make_block(spec: SlideSpec, scene: SlideScene, column: int, row: int) -> _Block:
    """Render one block where it has tissue, encode its tiles, reduce it for the other levels."""
    import cv2

    side, tile_px = spec.block_px, spec.tile_px
    left, top = column * side, row * side
    right, bottom = min(left + side, spec.size_px[0]), min(top + side, spec.size_px[1])
    corners = [(x, y) for y in range(top, bottom, tile_px) for x in range(left, right, tile_px)]
    tissue = [corner for corner in corners if has_tissue(scene, *corner, tile_px, tile_px)]
    tiles: list[tuple[int, int, bytes | None]]
    if not tissue:
        tiles = [(x // tile_px, y // tile_px, None) for x, y in corners]
        return _Block(column, row, tiles, [None] * (len(spec.downsamples) - 1))
    pixels = _render_part(spec, scene, left, top, tissue)
    tiles = []
    for x, y in corners:
        part = pixels[y - top : y - top + tile_px, x - left : x - left + tile_px]
        data = encode_tile(part, spec.quality) if (x, y) in tissue else None
        tiles.append((x // tile_px, y // tile_px, data))
    reduced: list[np.ndarray | None] = [
        cv2.resize(pixels, (side // d, side // d), interpolation=cv2.INTER_AREA)
        for d in spec.downsamples[1:]
    ]
    return _Block(column, row, tiles, reduced)


def _render_part(
    spec: SlideSpec, scene: SlideScene, left: int, top: int, tissue: list[tuple[int, int]]
) -> np.ndarray:
    """A block's pixels, rendered in the smallest box that holds all tiles with tissue."""
    side, tile_px = spec.block_px, spec.tile_px
    x0, y0 = min(x for x, _ in tissue), min(y for _, y in tissue)
    x1, y1 = max(x for x, _ in tissue) + tile_px, max(y for _, y in tissue) + tile_px
    if (x0, y0, x1, y1) == (left, top, left + side, top + side):
        return render_block(scene, left, top, side, side)
    pixels = bare_glass(scene, side, side)
    pixels[y0 - top : y1 - top, x0 - left : x1 - left] = render_block(
        scene, x0, y0, x1 - x0, y1 - y0
    )
    return pixels


class _Strip:
    """One row of tiles of a reduced level, filled block by block and written when complete."""

    def __init__(
        self, spec: SlideSpec, scene: SlideScene, writer: PyramidWriter, index: int
    ) -> None:
        import cv2

        self._spec, self._writer, self._index = spec, writer, index
        self._level = level_layouts(
            spec.size_px[0], spec.size_px[1], spec.downsamples, spec.tile_px
        )[index]
        self._block_px = spec.block_px // self._level.downsample
        side = self._block_px
        bare = bare_glass(scene, spec.block_px, spec.block_px)
        self._bare = cv2.resize(bare, (side, side), interpolation=cv2.INTER_AREA)
        self._glass = encode_tile(self._bare_box(spec.tile_px, spec.tile_px), spec.quality)
        self._height = max(spec.tile_px, self._block_px)
        self._pixels = np.empty((self._height, self._level.columns * spec.tile_px, 3), np.uint8)
        self._top = 0
        self._clear()

    def add(self, block: _Block, pixels: np.ndarray | None, *, is_last_of_row: bool) -> None:
        """Place one block's reduced pixels; write the tile rows that are then complete."""
        top = block.row * self._block_px
        if pixels is not None:
            left = block.column * self._block_px
            part = pixels[:, : max(0, self._pixels.shape[1] - left)]
            self._pixels[
                top - self._top : top - self._top + len(part), left : left + part.shape[1]
            ] = part
            tile_px = self._spec.tile_px
            self._used[left // tile_px : -(-(left + part.shape[1]) // tile_px)] = True
        if is_last_of_row and top + self._block_px >= self._top + self._height:
            self._write()

    def finish(self) -> None:
        """Write what is left at the bottom of the level."""
        if self._top < self._level.height:
            self._write()

    def _bare_box(self, height: int, width: int) -> np.ndarray:
        side = self._block_px
        copies = (-(-height // side), -(-width // side), 1)
        return np.tile(self._bare, copies)[:height, :width]

    def _clear(self) -> None:
        self._pixels[:] = self._bare_box(*self._pixels.shape[:2])
        self._used = np.zeros(self._level.columns, bool)

    def _write(self) -> None:
        tile_px = self._spec.tile_px
        for top in range(0, self._height, tile_px):
            row = (self._top + top) // tile_px
            if row >= self._level.rows:
                break
            for column in range(self._level.columns):
                tile = self._glass
                if self._used[column]:
                    left = column * tile_px
                    part = self._pixels[top : top + tile_px, left : left + tile_px]
                    tile = encode_tile(part, self._spec.quality)
                self._writer.add(self._index, column, row, tile, is_shared=not self._used[column])
        self._top += self._height
        self._clear()


def _in_order(
    work: Callable[[tuple[int, int]], _Block], places: Iterator[tuple[int, int]], threads: int
) -> Iterator[_Block]:
    """Results in the order of the places, a few ahead of the reader at most."""
    with ThreadPoolExecutor(max_workers=threads) as pool:
        waiting: deque[Future[_Block]] = deque()
        for place in places:
            waiting.append(pool.submit(work, place))
            if len(waiting) > 4 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextlib.contextmanager
def _single_threaded_cv2() -> Iterator[None]:
    """Keep OpenCV from starting threads of its own inside ours."""
    import cv2

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


def _descriptions(spec: SlideSpec, key: str) -> list[str]:
    """The ImageDescription of each level; Aperio's way for ``svs``."""
    texts = []
    for level in level_layouts(*spec.size_px, spec.downsamples, spec.tile_px):
        size = f"{spec.size_px[0]}x{spec.size_px[1]}"
        tile = f"({spec.tile_px}x{spec.tile_px})"
        if spec.format == "tiff":
            texts.append(f"zoommil synthetic {key[:16]}" if level.downsample == 1 else "")
        elif level.downsample == 1:
            magnification = nominal_magnification(spec.mpp) or spec.magnification
            texts.append(
                f"Aperio zoommil synthetic v{GENERATOR_VERSION}\r\n{size} [0,0 {size}] {tile} "
                f"JPEG/RGB Q={spec.quality}|AppMag = {magnification:g}|MPP = {spec.mpp:.6g}"
                f"|ScanScope ID = SYNTHETIC|Key = {key[:16]}"
            )
        else:
            texts.append(
                f"Aperio zoommil synthetic v{GENERATOR_VERSION}\r\n{size} {tile} -> "
                f"{level.width}x{level.height} JPEG/RGB Q={spec.quality}"
            )
    return texts
