"""Row 13, localisation: predictions and annotated areas come in; how well they agree goes out.

The pointing game asks whether the patch with the most attention is on a lesion. A patch is on a
lesion when they share at least a quarter of the smaller of the two, which is as fair to a coarse
patch around a small lesion as to a fine patch inside a large one. Chance is the same question asked
of a patch drawn from all of the slide's tissue at that magnification, looked at or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float

from zoommil.inference.prediction import Prediction
from zoommil.reports.frame import boxes_of
from zoommil.reports.truth import Region

SHARED = 0.25
TOP_MASS = 0.5


@dataclass(frozen=True)
class StepLocalisation:
    """How one step's attention on one slide lies to the lesions.

    Attributes:
        magnification: of the step, None where it is not known.
        is_hit: the patch with the most attention is on a lesion.
        chance: the share of all tissue patches that are.
        chance_seen: the share of the patches seen at this step that are.
        mass_inside: of the attention, spread evenly over each patch, what falls into lesions.
        top_inside: of the area that holds the top half of the attention, what is lesion.
        even_inside: of the area of all tissue patches, what is lesion: an even look's figure.
        lesion_covered: of the lesions, what the top half of the attention covers.
    """

    magnification: float | None
    is_hit: bool
    chance: float
    chance_seen: float
    mass_inside: float
    top_inside: float
    even_inside: float
    lesion_covered: float


@dataclass(frozen=True)
class LocalisationSummary:
    """One step over many slides: means, and how often the pointing game was won."""

    step: int
    magnification: float | None
    num_slides: int
    hits: int
    pointing: float
    pointing_low: float
    pointing_high: float
    chance: float
    chance_seen: float
    mass_inside: float
    top_inside: float
    even_inside: float
    lesion_covered: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values; the interval is Wilson's, 95%."""
        return asdict(self)


def localise(prediction: Prediction, lesions: Sequence[Region]) -> tuple[StepLocalisation, ...]:
    """How the attention of every step lies to a slide's lesions, of which there must be some.

    Raises:
        PredictionError: it is not known where the patches lie.
    """
    shapes = np.array([region.polygon for region in lesions], dtype=object)
    assert len(shapes), "slides without lesions have nothing to find"
    area = shapely.union_all(shapes)
    shapely.prepare(area)
    first = boxes_of(prediction, 0)
    return tuple(
        _of_step(prediction, position, grid_of(first, boxes_of(prediction, position)), shapes, area)
        for position in range(len(prediction.steps))
    )


def summarise(found: Sequence[Sequence[StepLocalisation]]) -> tuple[LocalisationSummary, ...]:
    """The summary of each step over the slides that took it; deeper steps may have fewer."""
    summaries = []
    for step in range(max((len(steps) for steps in found), default=0)):
        rows = [steps[step] for steps in found if len(steps) > step]
        hits = sum(row.is_hit for row in rows)
        low, high = wilson_interval(hits, len(rows))
        means = {
            name: float(np.mean([getattr(row, name) for row in rows]))
            for name in (
                "chance", "chance_seen", "mass_inside", "top_inside", "even_inside",
                "lesion_covered",
            )
        }  # fmt: skip
        summaries.append(
            LocalisationSummary(
                step=step,
                magnification=rows[0].magnification,
                num_slides=len(rows),
                hits=hits,
                pointing=hits / len(rows),
                pointing_low=low,
                pointing_high=high,
                **means,
            )
        )
    return tuple(summaries)


def wilson_interval(hits: float, num: int) -> tuple[float, float]:
    """The 95% interval of a share, Wilson's score; 0 to 1 where there is nothing to count."""
    if num == 0:
        return 0.0, 1.0
    z, share = 1.959964, hits / num
    centre = (share + z**2 / (2 * num)) / (1 + z**2 / num)
    half = z / (1 + z**2 / num) * np.sqrt(share * (1 - share) / num + z**2 / (4 * num**2))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def grid_of(
    first: Float[np.ndarray, "cell 4"], boxes: Float[np.ndarray, "patch 4"]
) -> Float[np.ndarray, "all 4"]:
    """All patches of a step's size that the first step's patches hold, looked at or not."""
    ratio = max(1, round(float(first[0, 2] / boxes[0, 2])))
    sides = first[:, None, 2:] / ratio
    inside = np.stack(np.meshgrid(range(ratio), range(ratio)), axis=-1).reshape(1, -1, 2)
    corners = first[:, None, :2] + inside * sides
    return np.concatenate([corners, np.broadcast_to(sides, corners.shape)], axis=2).reshape(-1, 4)


def on_lesions(
    boxes: Float[np.ndarray, "patch 4"], lesions: np.ndarray
) -> Bool[np.ndarray, " patch"]:
    """Whether each box shares a quarter of itself, or of a lesion, with that lesion."""
    squares = squares_of(boxes)
    patches, which = shapely.STRtree(lesions).query(squares, predicate="intersects")
    shared = shapely.area(shapely.intersection(squares[patches], lesions[which]))
    smaller = np.minimum(shapely.area(squares[patches]), shapely.area(lesions[which]))
    found = np.zeros(len(boxes), bool)
    found[patches[shared >= SHARED * smaller]] = True
    return found


def covered_shares(
    boxes: Float[np.ndarray, "patch 4"], area: shapely.Geometry
) -> Float[np.ndarray, " patch"]:
    """The share of each box that lies in an area."""
    squares = squares_of(boxes)
    shares = np.zeros(len(boxes))
    near = shapely.intersects(area, squares)
    shares[near] = shapely.area(shapely.intersection(area, squares[near]))
    return shares / shapely.area(squares)


def squares_of(boxes: Float[np.ndarray, "patch 4"]) -> np.ndarray:
    """Boxes as shapely polygons."""
    right, bottom = (boxes[:, :2] + boxes[:, 2:]).T
    return np.asarray(shapely.box(boxes[:, 0], boxes[:, 1], right, bottom))


def _of_step(
    prediction: Prediction,
    position: int,
    grid: np.ndarray,
    lesions: np.ndarray,
    area: shapely.Geometry,
) -> StepLocalisation:
    step, boxes = prediction.steps[position], boxes_of(prediction, position)
    hits, covered = on_lesions(boxes, lesions), covered_shares(boxes, area)
    attention = step.attention.astype(np.float64) / step.attention.sum(dtype=np.float64)
    order = np.argsort(-attention, kind="stable")
    num_top = int(np.searchsorted(np.cumsum(attention[order]), TOP_MASS - 1e-9)) + 1
    top = order[:num_top]
    sizes = boxes[:, 2] * boxes[:, 3]
    return StepLocalisation(
        magnification=step.magnification,
        is_hit=bool(hits[order[0]]),
        chance=float(on_lesions(grid, lesions).mean()),
        chance_seen=float(hits.mean()),
        mass_inside=float(attention @ covered),
        top_inside=float(covered[top].mean()),
        even_inside=float(covered_shares(grid, area).mean()),
        lesion_covered=min(1.0, float((covered[top] * sizes[top]).sum() / shapely.area(area))),
    )
