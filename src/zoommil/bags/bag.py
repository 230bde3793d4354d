"""Row 7, bags: one slide's feature matrices go in, a checked :class:`Bag` comes out.

The contract of everything that handles bags (``methods.md`` 1.2): the children of the patch in
row ``i`` of one step are rows ``i*r .. i*r+r-1`` of the next, ``r`` the ratio squared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from zoommil.bags.checks import (
    as_coords,
    as_features,
    as_valid,
    check_coords_on_grid,
    check_links,
    check_storage_type,
    count_ratios,
    select_ratios,
)
from zoommil.errors import BagError
from zoommil.files import hash_of
from zoommil.units import magnification_label, rounded_corners


@dataclass(frozen=True, eq=False)
class StepInfo:
    """Where the patches of one step lie; enough to rebuild their exact corners.

    Attributes:
        magnification: as asked for, ``10`` for 10x.
        mpp: microns per pixel of a patch's pixels.
        downsample: level-0 pixels per patch pixel.
        patch_px: the patch's side in its own pixels.
        origin_x, origin_y: level-0 corner of row 0, column 0.
        side: the patch's side in level-0 pixels, a real number.
        rows_columns: row and column of every patch, or None when they are not on one grid.
        overlap: pixels (of the patch) shared with the neighbour; 0 in this package's own bags.
        encoder: name of the encoder that made the features, if known.
    """

    magnification: float | int
    mpp: float | int
    downsample: float | int
    patch_px: int
    origin_x: float | int
    origin_y: float | int
    side: float | int
    rows_columns: Int[np.ndarray, "patch 2"] | None = None
    overlap: int = 0
    encoder: str = ""

    def __post_init__(self) -> None:
        for name in ("magnification", "mpp", "downsample", "origin_x", "origin_y", "side"):
            _set(self, name, float(getattr(self, name)))
        _set(self, "patch_px", int(self.patch_px))
        _set(self, "overlap", int(self.overlap))
        if self.rows_columns is not None:
            _set(self, "rows_columns", as_coords(self.rows_columns, None, "rows_columns"))
        positive = (self.magnification, self.mpp, self.downsample, self.patch_px, self.side)
        if not (np.all(np.isfinite(positive)) and min(positive) > 0):
            raise BagError(
                f"step of magnification {self.magnification:g}: mpp {self.mpp:g}, downsample "
                f"{self.downsample:g}, patch {self.patch_px} px, side {self.side:g}; all must be "
                "finite and above 0."
            )

    @property
    def label(self) -> str:
        """The step's name, as in ``10x``."""
        return magnification_label(self.magnification)

    @property
    def boxes(self) -> Float[np.ndarray, "patch 4"]:
        """Exact level-0 boxes (x, y, width, height). Raises BagError off a grid."""
        if self.rows_columns is None:
            raise BagError(f"step {self.label}: its patches are not on one grid; use the coords.")
        sides = np.full(len(self.rows_columns), self.side)
        x = self.origin_x + self.rows_columns[:, 1] * self.side
        y = self.origin_y + self.rows_columns[:, 0] * self.side
        return np.stack([x, y, sides, sides], axis=1)


@dataclass(frozen=True, eq=False, init=False)
class Bag:
    """One slide's patch features, one float32 matrix per step, lowest magnification first.

    NumPy arrays and torch tensors of any number type are taken; NumPy comes out. A bag of plain
    vectors is a bag too: ``Bag(features=(vectors,))``.

    Attributes:
        features: a matrix (N_m, D_m) per step, float32 whatever the storage type.
        coords: level-0 top-left x, y per step, int64; made from ``steps`` when they have a grid.
        slide_id: the slide's id.
        steps: where the patches lie, if known.
        provenance: where the features came from, JSON values; its hash is the key for resuming.
        valid: False where a patch was not encoded (zero features), or None when all were.
        dtype: what a file of it stores; "float16" when the features came as float16.
        slide_mpp, slide_size: microns per pixel and (width, height) of level 0, if known.

    Raises:
        BagError: widths, counts, nesting, coordinates or numbers that do not fit.
    """

    features: tuple[Float32[np.ndarray, "_ _"], ...]
    coords: tuple[Int[np.ndarray, "_ 2"], ...] | None
    slide_id: str
    steps: tuple[StepInfo, ...] | None
    provenance: dict[str, Any]
    valid: tuple[Bool[np.ndarray, " _"], ...] | None
    dtype: str
    slide_mpp: float | None
    slide_size: tuple[int, int] | None

    def __init__(
        self,
        features: Sequence[Any] | np.ndarray,
        coords: Sequence[Any] | None = None,
        slide_id: str = "",
        steps: Sequence[StepInfo] | None = None,
        provenance: Mapping[str, Any] | None = None,
        *,
        valid: Sequence[Any] | None = None,
        dtype: str | None = None,
        slide_mpp: float | int | None = None,
        slide_size: Sequence[Any] | None = None,
    ) -> None:
        """See the class; arrays may be NumPy's or torch's."""
        if not isinstance(features, tuple | list) or not features:
            raise BagError(
                "a bag takes a tuple with one matrix of features per step, as "
                f"Bag(features=(vectors,)); got {'nothing' if len(features) == 0 else 'one array'}."
            )
        given = [as_features(rows, step, slide_id) for step, rows in enumerate(features)]
        is_half = all(is_float16 for _, is_float16 in given)
        _set(self, "features", tuple(rows for rows, _ in given))
        _set(self, "slide_id", slide_id)
        _set(self, "provenance", dict(provenance or {}))
        _set(self, "dtype", check_storage_type(dtype or ("float16" if is_half else "float32")))
        _set(self, "slide_mpp", None if slide_mpp is None else float(slide_mpp))
        size = None if slide_size is None else (int(slide_size[0]), int(slide_size[1]))
        _set(self, "slide_size", size)
        counts = [len(rows) for rows in self.features]
        ratios = count_ratios(counts, slide_id)
        for name, values in (("coords", coords), ("steps", steps), ("valid", valid)):
            if values is not None and len(values) != len(counts):
                raise BagError(
                    f"bag {slide_id!r} has {len(counts)} steps of features but {len(values)} of "
                    f"{name}; give one per step, or None."
                )
        _set(self, "valid", _each(as_valid, valid, counts))
        _set(self, "steps", None if steps is None else tuple(steps))
        _set(self, "coords", _each(as_coords, coords, counts))
        if self.steps is not None:
            self._place(self.steps, counts, ratios)

    def _place(self, steps: tuple[StepInfo, ...], counts: list[int], ratios: tuple[int, ...]):
        """Check links and corners against the steps' grids, or make the corners from them."""
        grids = [info.rows_columns for info in steps]
        check_links([info.magnification for info in steps], grids, counts, ratios)
        if any(grid is None for grid in grids):
            return
        boxes = [info.boxes for info in steps]
        if self.coords is None:
            _set(self, "coords", tuple(rounded_corners(b) for b in boxes))
        else:
            check_coords_on_grid(self.coords, boxes)

    @property
    def num_steps(self) -> int:
        """How many steps it has."""
        return len(self.features)

    @property
    def ratios(self) -> tuple[int, ...]:
        """Linear ratio of each step to the one before: 2 means 2x, four children."""
        return count_ratios([len(rows) for rows in self.features], self.slide_id)

    @property
    def magnifications(self) -> tuple[float, ...]:
        """Magnification of every step. Raises BagError for a bag without step information."""
        return tuple(info.magnification for info in self._known_steps())

    @property
    def key(self) -> str:
        """The hash of its provenance: what resuming compares."""
        return hash_of(self.provenance)

    def boxes(self, step: int) -> Float[np.ndarray, "patch 4"]:
        """Level-0 boxes of a step: exact on a grid, from the stored corners otherwise."""
        info = self._known_steps()[step]
        if info.rows_columns is not None:
            return info.boxes
        if self.coords is None:
            raise BagError(f"bag {self.slide_id!r} has neither grid nor coords; import it again.")
        corners = self.coords[step].astype(np.float64)
        return np.concatenate([corners, np.full_like(corners, info.side)], axis=1)

    def children(self, step: int, rows: Int[np.ndarray, " row"]) -> Int[np.ndarray, " child"]:
        """Rows of the next step that lie inside these rows, block by block."""
        r = self.ratios[step] ** 2
        return (np.asarray(rows)[:, None] * r + np.arange(r)).reshape(-1)

    def select(self, steps: Sequence[int]) -> Bag:
        """The bag with these steps only, ascending; a middle one may be left out.

        Raises:
            BagError: a step that is not there, or a skip whose ratios are not powers of two.
        """
        chosen = [step + self.num_steps if step < 0 else step for step in steps]
        select_ratios(self.ratios, chosen)
        if chosen == list(range(self.num_steps)):
            return self
        return replace(
            self,
            features=tuple(self.features[step] for step in chosen),
            coords=None if self.coords is None else tuple(self.coords[s] for s in chosen),
            steps=None if self.steps is None else tuple(self.steps[s] for s in chosen),
            valid=None if self.valid is None else tuple(self.valid[s] for s in chosen),
            provenance={**self.provenance, "selected_steps": chosen},
        )

    def at_magnifications(self, magnifications: Sequence[float]) -> Bag:
        """The bag with these magnifications only (1.25, 2.5, 10 of a bag that also has 5)."""
        return self.select(find_steps(self.magnifications, magnifications))

    def _known_steps(self) -> tuple[StepInfo, ...]:
        if self.steps is None:
            raise BagError(
                f"bag {self.slide_id!r} does not say where its patches lie. "
                "Select steps by index, or import it again with mpp=..."
            )
        return self.steps


def find_steps(stored: Sequence[float], wanted: Sequence[float]) -> list[int]:
    """Indices of the wanted magnifications. Raises BagError naming those that are not stored."""
    found = []
    for magnification in wanted:
        near = [i for i, m in enumerate(stored) if abs(m / magnification - 1) < 1e-6]
        if not near:
            known = ", ".join(magnification_label(m) for m in stored)
            raise BagError(
                f"magnification {magnification_label(magnification)} is not in the bag; it has "
                f"{known}. Extract again with it, or ask for what is there."
            )
        found.append(near[0])
    return found


def _each(convert: Callable[..., Any], values: Sequence[Any] | None, counts: Sequence[int]):
    if values is None:
        return None
    return tuple(convert(value, count) for value, count in zip(values, counts, strict=True))


def _set(instance: object, name: str, value: object) -> None:
    object.__setattr__(instance, name, value)
