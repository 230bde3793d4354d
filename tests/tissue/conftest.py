"""Fixtures of the tissue tests: drawn slides, 8 um per pixel where nothing else is said."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest

GLASS = 243


class Drawing:
    """A picture of a slide at 8 um per pixel that pieces of tissue and marks are drawn on."""

    def __init__(self, height: int, width: int, glass: int | tuple[int, int, int], noise: float):
        self.random = np.random.default_rng(3)
        self.pixels = np.empty((height, width, 3), np.float32)
        self.pixels[:] = glass
        self.pixels += self.random.normal(0, noise, (height, width, 3))

    def piece(self, centre, radii, colour, texture: float = 10.0) -> np.ndarray:
        """Draw an ellipse of textured tissue; its pixels."""
        where = np.zeros(self.pixels.shape[:2], np.uint8)
        cv2.ellipse(where, centre, radii, 20, 0, 360, 1, -1)
        grain = self.random.normal(0, 1, where.shape).astype(np.float32)
        grain = cv2.GaussianBlur(grain, (0, 0), 1.5)
        shades = np.array(colour, np.float32) + texture * (grain / grain.std())[..., None]
        self.pixels[where > 0] = shades[where > 0]
        return where > 0

    def stroke(self, start, end, colour, thickness: int = 7) -> np.ndarray:
        """Draw a pen stroke; its pixels."""
        where = np.zeros(self.pixels.shape[:2], np.uint8)
        cv2.line(where, start, end, 1, thickness)
        cv2.line(self.pixels, start, end, colour, thickness, cv2.LINE_AA)
        return where > 0

    def image(self) -> np.ndarray:
        """The picture, through JPEG as slides are."""
        rounded = np.clip(np.rint(self.pixels), 0, 255).astype(np.uint8)
        _, coded = cv2.imencode(".jpg", rounded[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
        return np.ascontiguousarray(cv2.imdecode(coded, cv2.IMREAD_COLOR)[:, :, ::-1])


@pytest.fixture
def drawing() -> Callable[..., Drawing]:
    """Make an empty slide to draw on."""

    def make(height=300, width=400, glass=GLASS, noise=2.0) -> Drawing:
        return Drawing(height, width, glass, noise)

    return make
