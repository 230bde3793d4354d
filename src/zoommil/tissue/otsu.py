"""Row 3, tissue: the default method; a thumbnail comes in, the mask of all its tissue comes out.

Black areas and ink are painted over with glass, then every pixel's contrast to the glass is
measured: mostly colour, little grey, so that shadows and uneven light count little. Otsu parts
tissue from glass, and once more what is pale from glass; all pieces above a stated area are kept.
Only 8-bit and integer arithmetic: the mask is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int16, UInt8

from zoommil.tissue.ink import black_areas, extremes, ink_marks, with_rim
from zoommil.tissue.spec import OtsuSettings, TissueSpec
from zoommil.tissue.thresholds import otsu_of_integers

_UNIT = 4  # contrast is counted in quarters of a grey level: 4 x colour + 1 x grey
_NUM_BINS = 256 * (_UNIT + 1)
_DEFAULT_GLASS = 245
_GLASS_LEVEL = 200  # glass is brighter
_GLASS_CHROMA = 24  # and hardly coloured
_CLEAR_CHROMA = 8
_WORTH_SAYING = 0.001


def otsu_mask(
    image: UInt8[np.ndarray, "height width 3"], mpp: float, spec: TissueSpec
) -> tuple[Bool[np.ndarray, "height width"], tuple[str, ...]]:
    """The mask of all tissue in a thumbnail at ``mpp``, and what to warn of."""
    settings = spec.otsu
    least_px = settings.min_area_um2 / mpp**2  # specks would be no piece of tissue either
    black = _without_small(black_areas(image), least_px)
    ink = np.zeros_like(black)
    if settings.exclude_ink:
        ink = _without_small(ink_marks(image) & ~black, least_px)
    excluded = with_rim(black | ink)
    glass = glass_colour(image, excluded)
    contrast = contrast_to_glass(image, excluded, glass, settings.smoothing_um / mpp)
    mask = contrast > contrast_threshold(contrast[~excluded], settings)
    mask = clean_up(mask & ~excluded, mpp, settings) & ~excluded
    return mask, _warnings(black, ink)


def glass_colour(
    image: UInt8[np.ndarray, "height width 3"], excluded: Bool[np.ndarray, "height width"]
) -> UInt8[np.ndarray, " 3"]:
    """The colour of empty glass: the 95th percentile of what is bright and hardly coloured.

    Pure white is what readers fill unscanned areas with. Where a quarter of the picture is a
    clear, even grey below it, that is the glass.
    """
    brightest, darkest = extremes(image)
    chroma = brightest - darkest
    bright = (darkest >= _GLASS_LEVEL) & (chroma <= _GLASS_CHROMA) & ~excluded
    if bright.sum() < _WORTH_SAYING * bright.size:
        return np.full(3, _DEFAULT_GLASS, dtype=np.uint8)
    clear = bright & (chroma <= _CLEAR_CHROMA) & (darkest < 254)
    if 4 * clear.sum() >= bright.size:
        level = np.bincount(darkest[clear], minlength=256).argmax()
        even = clear & (np.abs(darkest.astype(np.int16) - level) <= 4)
        if 2 * even.sum() >= clear.sum():
            bright = even
    return np.array([_percentile(image[:, :, c][bright], 0.95) for c in range(3)], dtype=np.uint8)


def contrast_to_glass(
    image: UInt8[np.ndarray, "height width 3"],
    excluded: Bool[np.ndarray, "height width"],
    glass: UInt8[np.ndarray, " 3"],
    sigma_px: float,
) -> Int16[np.ndarray, "height width"]:
    """How far each smoothed pixel is from glass, in quarter grey levels."""
    import cv2

    painted = image.copy()
    painted[excluded] = glass
    if sigma_px > 0:  # 8-bit Gaussian blur is fixed-point in OpenCV: bit-exact everywhere
        painted = cv2.GaussianBlur(painted, (0, 0), sigma_px, borderType=cv2.BORDER_REPLICATE)
    drop = glass - np.minimum(painted, glass)
    strongest, grey = (part.astype(np.int16) for part in extremes(drop))
    return _UNIT * (strongest - grey) + grey


def contrast_threshold(contrast: Int16[np.ndarray, " pixel"], settings: OtsuSettings) -> int:
    """The contrast above which a pixel is tissue, in quarter grey levels.

    Otsu parts tissue from the rest, then pale tissue from glass in that rest; held between the
    contrasts that are never and always tissue.
    """
    lowest = round(_UNIT * settings.min_contrast)
    highest = max(lowest, round(_UNIT * settings.max_contrast))
    if not contrast.size:
        return highest
    first = otsu_of_integers(contrast, _NUM_BINS)
    second = otsu_of_integers(contrast[contrast <= first], _NUM_BINS)
    return min(max(second, lowest), highest)


def clean_up(
    mask: Bool[np.ndarray, "height width"], mpp: float, settings: OtsuSettings
) -> Bool[np.ndarray, "height width"]:
    """The mask without small pieces and small holes, grown by the margin."""
    import cv2

    mask = _without_small(mask, settings.min_area_um2 / mpp**2)
    mask = ~_without_small(~mask, settings.max_hole_um2 / mpp**2)
    margin_px = round(settings.margin_um / mpp)
    if margin_px == 0:
        return mask
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * margin_px + 1, 2 * margin_px + 1))
    return cv2.dilate(mask.astype(np.uint8), disc) > 0


def _without_small(
    mask: Bool[np.ndarray, "height width"], min_area_px: float
) -> Bool[np.ndarray, "height width"]:
    import cv2

    _, labels, statistics, _ = cv2.connectedComponentsWithStats(
        mask.astype(np.uint8), connectivity=8
    )
    is_kept = statistics[:, cv2.CC_STAT_AREA] >= min_area_px
    is_kept[0] = False
    return is_kept[np.asarray(labels, dtype=np.int32)]


def _percentile(values: UInt8[np.ndarray, " value"], fraction: float) -> int:
    cumulated = np.cumsum(np.bincount(values, minlength=256))
    return int(np.searchsorted(cumulated, fraction * cumulated[-1]))


def _warnings(
    black: Bool[np.ndarray, "height width"], ink: Bool[np.ndarray, "height width"]
) -> tuple[str, ...]:
    """One line for each kind of area that was left out and is big enough to matter."""
    kinds = (("black", black, ""), ("pen ink", ink, " (exclude_ink = false keeps it)"))
    return tuple(
        f"{100 * part.mean():.1f}% of the picture is {name} and was left out{hint}"
        for name, part, hint in kinds
        if part.mean() > _WORTH_SAYING
    )
