"""Row 2, synthetic: stain concentrations go in, scanner colours come out (Beer-Lambert).

Concentration planes are uint8: one unit is 0.01 of optical density, so 255 is 2.55.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8, UInt32

DENSITY_PER_UNIT = 0.01

_HEMATOXYLIN = (0.63, 0.69, 0.36)
_EOSIN = (0.14, 0.84, 0.48)


@dataclass(frozen=True)
class Stain:
    """One slide's colours: the optical density of each stain per channel, and the bare glass."""

    hematoxylin: tuple[float, float, float]
    eosin: tuple[float, float, float]
    glass: tuple[float, float, float]


def sample_stain(generator: np.random.Generator, variation: float = 1.0) -> Stain:
    """A slide's stain, drawn around the textbook vectors; knows nothing of the slide's label."""
    hematoxylin = _tilted(_HEMATOXYLIN, 0.045 * variation, generator)
    eosin = _tilted(_EOSIN, 0.045 * variation, generator)
    strengths = np.exp(generator.normal(0.0, 0.13 * variation, 2))
    lamp = generator.uniform(240.0, 248.0)
    glass = lamp + generator.uniform(-2.0, 2.0, 3)
    return Stain(
        hematoxylin=_triple(hematoxylin * strengths[0]),
        eosin=_triple(0.92 * eosin * strengths[1]),
        glass=_triple(glass),
    )


def colour_table(stain: Stain) -> UInt32[np.ndarray, 65536]:
    """Packed RGBX of every pair of concentrations, at index ``256 * hematoxylin + eosin``."""
    density = np.arange(256, dtype=np.float64) * DENSITY_PER_UNIT
    hematoxylin = np.multiply.outer(density, np.array(stain.hematoxylin))
    eosin = np.multiply.outer(density, np.array(stain.eosin))
    transmitted = 10.0 ** -(hematoxylin[:, None, :] + eosin[None, :, :])
    table = np.full((256, 256, 4), 255, np.uint8)
    table[..., :3] = np.clip(transmitted * np.array(stain.glass) + 0.5, 0, 255)
    return table.reshape(-1).view(np.uint32)


def develop(
    hematoxylin: UInt8[np.ndarray, "height width"],
    eosin: UInt8[np.ndarray, "height width"],
    table: UInt32[np.ndarray, 65536],
) -> UInt8[np.ndarray, "height width 3"]:
    """RGB pixels of two concentration planes under a slide's colour table."""
    import cv2

    height, width = hematoxylin.shape
    pairs = cv2.merge([eosin, hematoxylin]).view("<u2").reshape(height, width)
    packed = np.take(table, pairs).view(np.uint8).reshape(height, width, 4)
    return cv2.cvtColor(packed, cv2.COLOR_RGBA2RGB)


def _tilted(
    vector: tuple[float, float, float], amount: float, generator: np.random.Generator
) -> np.ndarray:
    tilted = np.clip(np.array(vector) + generator.normal(0.0, amount, 3), 0.02, None)
    return tilted / np.linalg.norm(tilted)


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])
