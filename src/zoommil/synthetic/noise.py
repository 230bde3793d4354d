"""Row 2, synthetic: seeded random fields, periodic ones for textures and open ones for maps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32


def periodic_noise(
    side_px: int,
    wavelength_px: float,
    generator: np.random.Generator,
    *,
    stretch: float = 1.0,
) -> Float32[np.ndarray, "side side"]:
    """Smooth noise that tiles without a seam: mean 0, standard deviation 1.

    ``wavelength_px`` is the finest wavelength kept; ``stretch`` above 1 draws it out along x.
    """
    white = generator.standard_normal((side_px, side_px), dtype=np.float32)
    spectrum = np.fft.rfft2(white)
    down = np.fft.fftfreq(side_px).astype(np.float32)[:, None] * wavelength_px
    along = np.fft.rfftfreq(side_px).astype(np.float32)[None, :] * (wavelength_px * stretch)
    spectrum *= np.exp(-(down**2 + along**2))
    spectrum[0, 0] = 0.0
    field = np.fft.irfft2(spectrum, s=(side_px, side_px)).astype(np.float32)
    return field / max(float(field.std()), 1e-6)


def open_noise(
    height: int, width: int, wavelength_px: float, generator: np.random.Generator, octaves: int = 1
) -> Float32[np.ndarray, "height width"]:
    """Smooth noise without a period, about -2..2: random knots joined by cubic curves."""
    import cv2

    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        step = max(1.0, wavelength_px / 2.0 ** (octave + 1))
        knots_down, knots_along = int(height / step) + 5, int(width / step) + 5
        knots = generator.standard_normal((knots_down, knots_along), dtype=np.float32)
        shift_x, shift_y = generator.uniform(1.0, 2.0, 2)
        matrix = np.array([[1 / step, 0, shift_x], [0, 1 / step, shift_y]])
        layer = cv2.warpAffine(
            knots,
            matrix,
            (width, height),
            flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REFLECT,
        )
        total += layer / np.float32(1.8**octave)
    return total


def smooth_step(
    field: Float32[np.ndarray, "height width"], low: float, high: float
) -> Float32[np.ndarray, "height width"]:
    """The field mapped from ``low..high`` to 0..1 without corners."""
    position = np.clip((field - low) / (high - low), 0.0, 1.0)
    return (position * position * (3.0 - 2.0 * position)).astype(np.float32)
