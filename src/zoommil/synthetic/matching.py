"""Row 2, synthetic: swatches of several kinds of nuclei go in; the same, alike from afar, come out.

The class of a lesion must not be readable at low magnification. Each kind's hematoxylin is adjusted
smoothly until the light it lets through, averaged over lengths above a nucleus, is that of the
reference kind.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zoommil.synthetic.glands import GlandSwatch

COARSE_UM = 4.0
CUTOFF_UM = (18.0, 26.0)  # wavelengths above the second are matched, below the first left alone
_LIGHT_PER_UNIT = 0.01 * 0.65 * np.log(10.0)  # of hematoxylin, averaged over the colours


def match_low_magnification(
    swatch: GlandSwatch, reference: str, mpp: float, rounds: int = 4
) -> GlandSwatch:
    """The swatch with every kind's hematoxylin matched to the reference's from afar."""
    target = _light(swatch.hematoxylin[reference])
    matched = {}
    for kind, plane in swatch.hematoxylin.items():
        matched[kind] = plane
        if kind != reference:
            matched[kind] = _matched(plane, target, mpp, rounds)
    return replace(swatch, hematoxylin=matched)


def _matched(plane: np.ndarray, target: np.ndarray, mpp: float, rounds: int) -> np.ndarray:
    """Multiply the plane by a smooth gain until its light, smoothed, is the target's."""
    side = plane.shape[0]
    coarse = max(1, int(side * mpp / COARSE_UM))
    wanted = _smooth(_shrink(target, coarse), side * mpp / coarse)
    gain = np.ones((coarse, coarse), np.float32)
    stained = plane.astype(np.float32)
    current = stained
    for _ in range(rounds):
        light = _light(current)
        excess = _smooth(_shrink(light, coarse), side * mpp / coarse) - wanted
        slope = _smooth(_shrink(light * current, coarse), side * mpp / coarse) * _LIGHT_PER_UNIT
        gain *= np.clip(1 + excess / np.maximum(slope, 0.02), 0.7, 1.4)
        gain = np.clip(gain, 0.4, 2.2)
        current = np.minimum(stained * _grow(gain, side), 255)
    return np.clip(current + 0.5, 0, 255).astype(np.uint8)


def _light(plane: np.ndarray) -> np.ndarray:
    return np.exp(plane.astype(np.float32) * np.float32(-_LIGHT_PER_UNIT))


def _shrink(plane: np.ndarray, side: int) -> np.ndarray:
    import cv2

    return cv2.resize(plane, (side, side), interpolation=cv2.INTER_AREA)


def _grow(plane: np.ndarray, side: int) -> np.ndarray:
    import cv2

    pad = 2
    padded = np.pad(plane, pad, mode="wrap")
    scale = plane.shape[0] / side
    shift = 0.5 * scale - 0.5 + pad
    matrix = np.array([[scale, 0, shift], [0, scale, shift]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(padded, matrix, (side, side), flags=flags)


def _smooth(plane: np.ndarray, um_per_px: float) -> np.ndarray:
    """Only wavelengths above the cutoff, periodic."""
    side = plane.shape[0]
    down = np.fft.fftfreq(side, um_per_px)[:, None]
    along = np.fft.rfftfreq(side, um_per_px)[None, :]
    frequency = np.hypot(down, along)
    position = (frequency - 1 / CUTOFF_UM[1]) / (1 / CUTOFF_UM[0] - 1 / CUTOFF_UM[1])
    keep = 0.5 + 0.5 * np.cos(np.pi * np.clip(position, 0, 1))
    spectrum = np.fft.rfft2(plane) * keep.astype(np.float32)
    return np.fft.irfft2(spectrum, s=plane.shape).astype(np.float32)
