"""Row 1, slides: a slide's metadata and what the user says come in, its resolution goes out.

The chain: ``openslide.mpp-x/y``, ``aperio.MPP``, the TIFF resolution tags, OME's physical size,
``openslide.objective-power``. A value that no scanner can have (the 72 dpi an image editor writes,
0, a negative) counts as missing, and is said. Nothing is ever assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zoommil.errors import ResolutionError
from zoommil.units import MPP_TIMES_MAGNIFICATION, PLAUSIBLE_MPP, is_plausible_mpp

GIVEN = "given"
_DISAGREEMENT = 0.01
_NOTABLE_ANISOTROPY = 0.01
_GREATEST_ANISOTROPY = 0.1
_MICRONS_PER_UNIT = {"inch": 25400.0, "centimeter": 10000.0, "2": 25400.0, "3": 10000.0}


@dataclass(frozen=True)
class Resolution:
    """A slide's microns per level-0 pixel, where they come from, and what was odd about it."""

    mpp: float
    source: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    source: str
    mpp_x: float
    mpp_y: float
    is_nominal: bool = False

    @property
    def mpp(self) -> float:
        return self.mpp_x if self.mpp_x == self.mpp_y else math.sqrt(self.mpp_x * self.mpp_y)

    @property
    def anisotropy(self) -> float:
        return max(self.mpp_x, self.mpp_y) / min(self.mpp_x, self.mpp_y) - 1


def find_resolution(
    name: str, properties: Mapping[str, str], given: float | None = None
) -> Resolution:
    """The resolution of a slide: the given one if there is one, else the metadata's.

    An explicit value wins, because whoever passes one knows of an error in the file; when it
    differs by more than 1% from plausible metadata a warning says both numbers.

    Args:
        name: the slide's, for messages.
        properties: its metadata, named as OpenSlide names them.
        given: microns per pixel from the user (``mpp=``, ``--mpp``, the cohort's column).

    Raises:
        ResolutionError: no source has a plausible value, or the given one is not plausible.
    """
    if given is not None and not is_plausible_mpp(given):
        raise ResolutionError(
            f"{name!r} was given mpp {given:g}; expected microns per pixel between "
            f"{PLAUSIBLE_MPP[0]:g} and {PLAUSIBLE_MPP[1]:g}. 40x is 0.25, 20x is 0.5."
        )
    warnings: list[str] = []
    found = _first_plausible(properties, warnings)
    if given is not None:
        if found is not None and abs(given / found.mpp - 1) > _DISAGREEMENT:
            warnings.append(
                f"mpp {given:g} was given and is used; {found.source} says {found.mpp:g}"
            )
        return Resolution(float(given), GIVEN, tuple(warnings))
    if found is None:
        reason = f" ({'; '.join(warnings)})" if warnings else ""
        raise ResolutionError(
            f"{name!r} has no usable mpp{reason}. "
            "Pass mpp=... (--mpp), or add an 'mpp' column to the cohort."
        )
    warnings.extend(_remarks(found))
    return Resolution(found.mpp, found.source, tuple(warnings))


def _first_plausible(properties: Mapping[str, str], warnings: list[str]) -> _Candidate | None:
    for candidate in _candidates(properties):
        if not (is_plausible_mpp(candidate.mpp_x) and is_plausible_mpp(candidate.mpp_y)):
            warnings.append(
                f"{candidate.source} says {candidate.mpp_x:g} um per pixel, "
                "which no scanner has: ignored"
            )
        elif candidate.anisotropy > _GREATEST_ANISOTROPY:
            warnings.append(
                f"{candidate.source} says {candidate.mpp_x:g} across and {candidate.mpp_y:g} down, "
                "more than 10% apart: ignored"
            )
        else:
            return candidate
    return None


def _remarks(found: _Candidate) -> Iterator[str]:
    if found.is_nominal:
        yield (
            f"mpp {found.mpp:g} follows from {found.source} alone, a nominal number; "
            "pass mpp=... if the scanner's exact value is known"
        )
    if found.anisotropy > _NOTABLE_ANISOTROPY:
        yield (
            f"{found.source} is {found.mpp_x:g} across and {found.mpp_y:g} down; "
            f"their mean {found.mpp:g} is used for both"
        )


def _candidates(properties: Mapping[str, str]) -> Iterator[_Candidate]:
    """Every source that says anything, in order of trust, plausible or not."""
    yield from _pair(properties, "openslide.mpp-x", "openslide.mpp-x", "openslide.mpp-y")
    yield from _pair(properties, "aperio.MPP", "aperio.MPP", "aperio.MPP")
    unit = properties.get("tiff.ResolutionUnit", "").strip().lower()
    per_unit_x = _number(properties, "tiff.XResolution")
    per_unit_y = _number(properties, "tiff.YResolution") or per_unit_x
    if per_unit_x is not None and per_unit_y is not None and unit in _MICRONS_PER_UNIT:
        microns = _MICRONS_PER_UNIT[unit]
        yield _Candidate(
            "tiff.XResolution", _quotient(microns, per_unit_x), _quotient(microns, per_unit_y)
        )
    yield from _pair(properties, "ome.PhysicalSizeX", "ome.PhysicalSizeX", "ome.PhysicalSizeY")
    power = _number(properties, "openslide.objective-power")
    if power is not None:
        mpp = _quotient(MPP_TIMES_MAGNIFICATION, power)
        yield _Candidate("openslide.objective-power", mpp, mpp, is_nominal=True)


def _pair(
    properties: Mapping[str, str], source: str, name_x: str, name_y: str
) -> Iterator[_Candidate]:
    mpp_x = _number(properties, name_x)
    mpp_y = _number(properties, name_y)
    mpp_x, mpp_y = (mpp_y if mpp_x is None else mpp_x), (mpp_x if mpp_y is None else mpp_y)
    if mpp_x is not None and mpp_y is not None:
        yield _Candidate(source, mpp_x, mpp_y)


def _number(properties: Mapping[str, str], name: str) -> float | None:
    """A property as a number; some scanners write a decimal comma."""
    try:
        return float(properties[name].strip().replace(",", "."))
    except (KeyError, ValueError):
        return None


def _quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf
