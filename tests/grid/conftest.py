"""Fixtures of the grid's tests: slides that are nothing but geometry, masks that are everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zoommil.slides.levels import Level, stored_level
from zoommil.slides.resolution import Resolution
from zoommil.slides.slide import Slide, SlideContent


class BlankSlide(Slide):
    """A slide of any size with no file behind it: reading any pixel of it fails the test."""

    reader = "blank"

    @classmethod
    def can_open(cls, path: Path) -> bool:
        return False

    @classmethod
    def open(cls, source, *, mpp=None, scale="physical", cache_bytes=0):
        raise AssertionError("never opened from a file")

    def _read_block(self, level: Level, column: int, row: int):
        raise AssertionError("the grid must not read pixels")

    def _fingerprint(self) -> str:
        return "0" * 64


@pytest.fixture(scope="session")
def blank_slide() -> Callable[..., BlankSlide]:
    """Make a slide that is only geometry."""

    def make(
        size: tuple[int, int],
        mpp: float,
        bounds: tuple[int, int, int, int] | None = None,
        scale: str = "physical",
    ) -> BlankSlide:
        small = (max(1, size[0] // 16), max(1, size[1] // 16))
        levels = tuple(stored_level(i, size, s, (256, 256)) for i, s in enumerate((size, small)))
        content = SlideContent(
            size=size,
            levels=levels,
            properties={},
            resolution=Resolution(mpp, "given"),
            bounds=bounds,
        )
        return BlankSlide(None, content, scale=scale)

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    """A fixed random generator."""
    return np.random.default_rng(7)
