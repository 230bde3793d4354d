"""What a new reader may rely on: bounds, block-wise reading, and blocks it halves itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from slide_files import noise_picture

from zoommil.slides.levels import Level, stored_level
from zoommil.slides.resolution import Resolution
from zoommil.slides.slide import Slide, SlideContent

SIZE = (1000, 700)


class MemorySlide(Slide):
    """A reader of one picture in memory that notes what it is asked for."""

    reader = "memory"

    def __init__(self, bounds=None, halves_itself: bool = False, cache_bytes: int = 1 << 26):
        self.picture = noise_picture(*SIZE)
        self.asked: list[tuple[int, int, int]] = []
        self.halves_itself = halves_itself
        level = stored_level(0, SIZE, SIZE, (128, 128))
        content = SlideContent(SIZE, (level,), {}, Resolution(0.25, "given"), bounds=bounds)
        super().__init__(None, content, cache_bytes=cache_bytes)

    @classmethod
    def can_open(cls, path: Path) -> bool:
        return False

    @classmethod
    def open(cls, source, **options) -> MemorySlide:
        return cls()

    def _fingerprint(self) -> str:
        return "0" * 64

    def _read_block(self, level: Level, column: int, row: int) -> np.ndarray:
        self.asked.append((level.halvings, column, row))
        x, y = column * 128, row * 128
        return self.picture[y : y + 128, x : x + 128].copy()

    def _read_halved_block(self, level: Level, column: int, row: int) -> np.ndarray | None:
        if not self.halves_itself or level.halvings > 1:
            return None
        self.asked.append((level.halvings, column, row))
        width, height = level.block_size(column, row)
        return np.full((height, width, 3), 9, np.uint8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, (0, 0, 1000, 700)),
        ((100, 50, 300, 200), (100, 50, 300, 200)),
        ((900, -20, 300, 200), (900, 0, 100, 180)),
        ((2000, 0, 10, 10), (0, 0, 1000, 700)),
        ((0, 0, 0, 0), (0, 0, 1000, 700)),
    ],
)
def test_bounds_lie_inside_the_slide_and_nonsense_means_everything(given, expected):
    assert MemorySlide(bounds=given).bounds == expected


def test_blocks_are_asked_for_once_and_only_where_the_box_is():
    slide = MemorySlide()
    for _ in range(3):
        pixels = slide.read(130, 200, 100, 120, 0.25)
    np.testing.assert_array_equal(pixels, slide.picture[200:320, 130:230])
    assert sorted(slide.asked) == [(0, 1, 1), (0, 1, 2)]


def test_halving_asks_for_each_finer_block_once_and_keeps_the_result():
    slide = MemorySlide()
    slide.read(0, 0, 100, 100, 1.0)
    assert sorted(slide.asked) == [(0, column, row) for column in range(4) for row in range(4)]
    slide.read(10, 10, 100, 100, 1.0)
    assert len(slide.asked) == 16


def test_pixels_do_not_depend_on_the_cache():
    pixels = [MemorySlide(cache_bytes=size).read(-5, 3, 300, 200, 0.6) for size in (0, 1 << 26)]
    np.testing.assert_array_equal(*pixels)


def test_a_reader_may_halve_blocks_itself():
    slide = MemorySlide(halves_itself=True)
    assert (slide.read(0, 0, 50, 50, 0.5) == 9).all()
    assert slide.asked == [(1, 0, 0)]
    assert (slide.read(0, 0, 50, 50, 1.0) == 9).all()  # halved once more, from those
    np.testing.assert_array_equal(slide.read(0, 0, 9, 9, 0.25), slide.picture[:9, :9])
