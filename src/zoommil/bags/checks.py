"""Row 7, bags: arrays as given go in; arrays a bag can trust, or one clear error, come out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from zoommil.errors import BagError

STORAGE_TYPES = ("float16", "float32")
FLOAT16_MAX = float(np.finfo(np.float16).max)


def as_array(values: Any) -> np.ndarray:
    """NumPy from a NumPy array, a torch tensor (any device or type) or nested lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # NumPy has no such type
            values = values.float()
        values = values.numpy()
    return np.asarray(values)


def as_features(values: Any, step: int, slide_id: str) -> tuple[Float32[np.ndarray, "_ _"], bool]:
    """A step's features as float32, and whether they came as float16."""
    rows = as_array(values)
    where = f"bag {slide_id!r}, step {step}: features"
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise BagError(
            f"{where} are {rows.dtype} of shape {rows.shape}; expected numbers of shape "
            "(patches, width)."
        )
    if not rows.shape[0] or not rows.shape[1]:
        raise BagError(f"{where} of shape {rows.shape} are empty; a bag needs a patch per step.")
    is_half = rows.dtype == np.float16
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(rows, dtype=np.float32)
    if not np.isfinite(np.sum(rows, dtype=np.float64)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise BagError(
            f"{where} have {rows[row, column]} in row {row}, column {column}; all must be finite. "
            "Extract the slide again, or remove it."
        )
    return rows, is_half


def as_storage(
    features: Float[np.ndarray, "patch feature"], dtype: str, where: str = "features"
) -> Float[np.ndarray, "patch feature"]:
    """The features in the storage type, rounded to nearest even.

    Inference rounds with it too, which is why predictions from pixels and from bags agree.

    Raises:
        BagError: a value beyond float16's range (65504).
    """
    if check_storage_type(dtype) == "float32":
        return np.ascontiguousarray(features, dtype=np.float32)
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(features, dtype=np.float16)
    if not np.isfinite(rounded).all():
        row, column = np.argwhere(~np.isfinite(rounded))[0]
        raise BagError(
            f"{where}: {features[row, column]:g} in row {row}, column {column} does not fit "
            f"float16 (at most {FLOAT16_MAX:g}). Store as float32."
        )
    return rounded


def check_storage_type(dtype: str) -> str:
    """The storage type itself. Raises BagError when it is not one."""
    if str(dtype) not in STORAGE_TYPES:
        raise BagError(f"storage type {dtype!r} is not known. Use {' or '.join(STORAGE_TYPES)}.")
    return str(dtype)


def as_coords(values: Any, count: int | None, what: str = "coords") -> Int[np.ndarray, "_ 2"]:
    """Two whole numbers per patch as int64; ``count`` patches unless None."""
    coords = as_array(values)
    if coords.ndim != 2 or coords.shape[1] != 2 or count not in (None, len(coords)):
        expected = "patches" if count is None else count
        raise BagError(f"{what} have shape {coords.shape}; expected ({expected}, 2).")
    whole = coords.astype(np.int64) if coords.dtype.kind in "iuf" else None
    if whole is None or not np.array_equal(whole, coords):
        raise BagError(f"{what} are {coords.dtype}; expected whole numbers.")
    return whole


def as_valid(values: Any, count: int) -> Bool[np.ndarray, " _"]:
    """One truth value per patch."""
    valid = as_array(values)
    if valid.shape != (count,) or valid.dtype.kind not in "bui":
        raise BagError(f"valid is {valid.dtype} of shape {valid.shape}; expected {count} booleans.")
    return valid.astype(bool)


def count_ratios(counts: Sequence[int], slide_id: str) -> tuple[int, ...]:
    """The linear ratios that the row counts stand for: N_(m+1) = N_m * ratio^2."""
    ratios = []
    for step, (parents, children) in enumerate(pairwise(counts)):
        ratio = math.isqrt(children // parents)
        if ratio < 2 or children != parents * ratio**2:
            raise BagError(
                f"bag {slide_id!r}: step {step} has {parents} rows and step {step + 1} has "
                f"{children}; it must have rows x ratio^2 of them for a whole ratio of 2 or more."
            )
        ratios.append(ratio)
    return tuple(ratios)


def select_ratios(ratios: Sequence[int], chosen: Sequence[int]) -> tuple[int, ...]:
    """The ratios between chosen steps.

    Raises:
        BagError: steps that are missing or not ascending, or a step left out between ratios that
            are not powers of two, where the order inside a block would change.
    """
    if not chosen or list(chosen) != sorted(set(chosen)) or chosen[0] < 0:
        raise BagError(f"steps {list(chosen)}: choose one or more, ascending, from 0.")
    if chosen[-1] > len(ratios):
        raise BagError(f"steps {list(chosen)}: the bag has {len(ratios) + 1}, numbered from 0.")
    selected = []
    for lower, upper in pairwise(chosen):
        between = ratios[lower:upper]
        if len(between) > 1 and any(ratio & (ratio - 1) for ratio in between):
            raise BagError(
                f"steps {list(chosen)} leave one out between ratios {list(between)}; only powers "
                "of two keep their order then. Keep the step, or extract without it."
            )
        selected.append(math.prod(between))
    return tuple(selected)


def check_links(
    magnifications: Sequence[float],
    grids: Sequence[Int[np.ndarray, "_ 2"] | None],
    counts: Sequence[int],
    ratios: Sequence[int],
) -> None:
    """Check that every child's row and column lie inside its parent's."""
    for step, grid in enumerate(grids):
        if grid is not None and len(grid) != counts[step]:
            raise BagError(
                f"step {step} has {counts[step]} rows of features but {len(grid)} of rows and "
                "columns."
            )
    for step, ratio in enumerate(ratios):
        factor = magnifications[step + 1] / magnifications[step]
        if abs(factor / ratio - 1) > 1e-6:
            raise BagError(
                f"magnifications {magnifications[step]:g}x and {magnifications[step + 1]:g}x are "
                f"{factor:g}x apart, but the rows of their features {ratio}x."
            )
        parent, child = grids[step], grids[step + 1]
        if parent is None or child is None:
            continue
        wrong = np.flatnonzero((child // ratio != np.repeat(parent, ratio**2, axis=0)).any(axis=1))
        if wrong.size:
            raise BagError(
                f"row {wrong[0]} of step {step + 1} is not inside row {wrong[0] // ratio**2} of "
                f"step {step}: children must follow their parents' order."
            )


def check_coords_on_grid(
    coords: Sequence[Int[np.ndarray, "_ 2"]], boxes: Sequence[Float[np.ndarray, "_ 4"]]
) -> None:
    """Check that stored corners are the grid's, rounded."""
    for step, (corners, exact) in enumerate(zip(coords, boxes, strict=True)):
        off = np.abs(corners - exact[:, :2]).max(axis=1)
        if off.max() > 0.5 + 1e-6:
            row = int(off.argmax())
            raise BagError(
                f"coords of step {step}, row {row} are {corners[row].tolist()} but the grid says "
                f"{exact[row, :2].tolist()}; coords are level-0 top-left x, y."
            )
