"""Row 3, tissue: the published method; a thumbnail comes in, its mask (largest pieces first) out.

A saturation pre-mask, then a loop: smooth, Otsu, take the largest component, dilate, and stop at
the first one that is bright. Quirks are kept on purpose, since published numbers depend on them:
the grey of the thresholding has its red and blue weights swapped, an even dilation kernel grows
one pixel more to one side, and one pale component ends the search.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, UInt8

from zoommil.tissue.spec import PaperSettings, TissueSpec
from zoommil.tissue.thresholds import otsu_of_integers, otsu_of_values

_WHITE = 255


def paper_mask(
    image: UInt8[np.ndarray, "height width 3"], mpp: float, spec: TissueSpec
) -> tuple[Bool[np.ndarray, "height width"], tuple[str, ...]]:
    """The published mask of a thumbnail at ``mpp``, sizes converted from microns; no warnings."""
    settings = spec.paper
    mask = gaussian_tissue_mask(
        whiten_unsaturated(image),
        sigma_px=settings.sigma_um / mpp,
        kernel_px=max(1, round(settings.kernel_um / mpp)),
        settings=settings,
    )
    return mask, ()


def whiten_unsaturated(
    image: UInt8[np.ndarray, "height width 3"],
) -> UInt8[np.ndarray, "height width 3"]:
    """A copy with white where the HSV saturation is at most its Otsu threshold (step A)."""
    import cv2

    saturation = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)[:, :, 1]
    threshold = otsu_of_integers(saturation.reshape(-1), 256)
    result = image.copy()
    result[saturation <= threshold] = _WHITE
    return result


def gaussian_tissue_mask(
    image: UInt8[np.ndarray, "height width 3"],
    *,
    sigma_px: float,
    kernel_px: int,
    settings: PaperSettings,
    downsampling: int = 1,
) -> Bool[np.ndarray, "height width"]:
    """The mask of dark components, largest first, until one is bright (step B).

    Args:
        image: RGB, unsaturated pixels already white.
        sigma_px: sd of the Gaussian, in pixels after downsampling.
        kernel_px: side of the dilation's square, in pixels after downsampling.
        settings: where the search ends.
        downsampling: shrink by this first and enlarge the mask at the end, nearest neighbour.
    """
    import cv2

    height, width = image.shape[:2]
    small = (max(1, width // downsampling), max(1, height // downsampling))
    rest = cv2.resize(image, small, interpolation=cv2.INTER_NEAREST)
    rest = rest.copy()  # painted white below, never the caller's
    grey = cv2.cvtColor(rest, cv2.COLOR_RGB2GRAY)
    mask = np.zeros(grey.shape, dtype=np.uint8)
    while True:
        component = _largest_dark_component(rest, sigma_px, settings.min_size_px)
        if component is None:
            break
        component = cv2.dilate(component, np.ones((kernel_px, kernel_px), np.uint8)) > 0
        greys = grey[component & (grey > 0)]
        if not greys.size or greys.mean() >= settings.background_grey:
            break
        mask[component] = 1
        rest[component] = _WHITE
    return cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST) > 0


def _largest_dark_component(
    image: UInt8[np.ndarray, "height width 3"], sigma_px: float, min_size_px: int
) -> UInt8[np.ndarray, "height width"] | None:
    """The largest dark component, 0 or 1, undilated; None when the image is one flat grey."""
    import cv2
    from scipy import ndimage

    # The authors' function expects BGR and gets RGB: 0.114 R + 0.587 G + 0.299 B.
    darkness = 255 - cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    if darkness.min() == darkness.max():
        return None
    smooth = ndimage.gaussian_filter(
        darkness.astype(np.float64), sigma_px, mode="nearest", truncate=4.0
    )
    positive = smooth[smooth > 0]
    binary = (smooth > 0) & (smooth >= otsu_of_values(positive))
    labels = np.zeros(binary.shape, dtype=np.int32)
    ndimage.label(binary, output=labels)  # 4-neighbourhood
    sizes = np.bincount(labels.reshape(-1))
    sizes[0] = 0
    sizes[sizes < min_size_px] = 0
    if not sizes.any():
        return np.zeros(binary.shape, np.uint8)
    return (labels == np.argmax(sizes)).astype(np.uint8)
