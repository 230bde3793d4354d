"""Row 3, tissue: values come in, Otsu's threshold of them comes out.

Own code, so that masks do not change with a library's version.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Integer, Num


def otsu_of_histogram(counts: Int[np.ndarray, " bin"], centres: Float[np.ndarray, " bin"]) -> float:
    """The bin centre that best parts a histogram in two: the largest variance between classes.

    Values up to and including the returned centre are the lower class. The first of equally good
    bins wins. A histogram with one filled bin gives that bin.
    """
    filled = np.flatnonzero(counts)
    if len(filled) < 2:
        return float(centres[filled[0]]) if len(filled) else 0.0
    counts, centres = (part[filled[0] : filled[-1] + 1] for part in (counts, centres))
    weights = counts.astype(np.float64)
    below = np.cumsum(weights)
    above = np.cumsum(weights[::-1])[::-1]
    mean_below = np.cumsum(weights * centres) / below
    mean_above = (np.cumsum((weights * centres)[::-1]) / np.cumsum(weights[::-1]))[::-1]
    between = below[:-1] * above[1:] * (mean_below[:-1] - mean_above[1:]) ** 2
    return float(centres[np.argmax(between)])


def otsu_of_values(values: Num[np.ndarray, " value"], num_bins: int = 256) -> float:
    """Otsu's threshold of real values over equal bins between their smallest and largest."""
    lowest, highest = float(values.min()), float(values.max())
    if lowest == highest:
        return lowest
    counts, edges = np.histogram(values, bins=num_bins, range=(lowest, highest))
    return otsu_of_histogram(counts, (edges[:-1] + edges[1:]) / 2)


def otsu_of_integers(values: Integer[np.ndarray, " value"], num_bins: int) -> int:
    """Otsu's threshold of integers 0 .. num_bins - 1, one bin each."""
    counts = np.bincount(values, minlength=num_bins)
    return round(otsu_of_histogram(counts, np.arange(len(counts), dtype=np.float64)))
