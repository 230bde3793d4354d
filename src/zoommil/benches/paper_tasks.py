"""Row 16, the paper's tasks: their geometry as data, and the patches that each way takes.

``num_lowest`` (N_1) is not printed in the paper: it follows from its rows of one magnification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PATCH_PX = 256


@dataclass(frozen=True)
class Way:
    """One way to look at a slide: its magnifications, lowest first, and how many are zoomed into.

    One magnification and no ``k`` is the exhaustive way.
    """

    name: str
    magnifications: tuple[float, ...]
    k: int | None = None

    @property
    def ratios(self) -> tuple[int, ...]:
        """How many times finer each step is than the one before, linear."""
        return tuple(round(fine / coarse) for coarse, fine in pairwise(self.magnifications))


@dataclass(frozen=True)
class Task:
    """One data set of the paper.

    Attributes:
        name: of the data set.
        num_classes: of its slides.
        num_lowest: patches at the lowest magnification, N_1.
        highest: the magnification that everything is encoded at by the exhaustive way.
        zooms: the ways to zoom, all from the same lowest magnification.
    """

    name: str
    num_classes: int
    num_lowest: int
    highest: float
    zooms: tuple[Way, ...]

    @property
    def lowest(self) -> float:
        """The magnification that every zoom starts at."""
        return self.zooms[0].magnifications[0]

    @property
    def exhaustive(self) -> Way:
        """Everything at the highest magnification."""
        return Way("everything", (self.lowest, self.highest))

    @property
    def num_highest(self) -> int:
        """Patches at the highest magnification."""
        return self.num_lowest * round(self.highest / self.lowest) ** 2


BRIGHT = Task(
    "BRIGHT", 3, 60, 10.0,
    (Way("ZoomMIL", (1.25, 2.5, 10.0), 12), Way("ZoomMIL-Eff", (1.25, 2.5), 8)),
)  # fmt: skip
CRC = Task(
    "CRC", 3, 199, 20.0,
    (Way("ZoomMIL", (5.0, 10.0, 20.0), 16), Way("ZoomMIL-Eff", (5.0, 10.0), 12)),
)  # fmt: skip
CAMELYON = Task("CAMELYON16", 2, 2284, 20.0, (Way("ZoomMIL", (10.0, 20.0), 300),))
TASKS = {"bright": BRIGHT, "crc": CRC, "camelyon": CAMELYON}


def zoom_counts(num_lowest: int, ratios: Sequence[int], k: int) -> tuple[int, ...]:
    """Patches encoded at each step: all of the first, then the children of what was chosen."""
    counts = [num_lowest]
    for ratio in ratios:
        counts.append(min(k, counts[-1]) * ratio**2)
    return tuple(counts)


def bag_counts(num_lowest: int, ratios: Sequence[int]) -> tuple[int, ...]:
    """Patches of a whole bag at each step."""
    return tuple(num_lowest * math.prod(ratios[:step]) ** 2 for step in range(len(ratios) + 1))
