"""Row 12, sources: rows of a step are asked for; their features come, from pixels or from a bag.

The zoom does not know which. From pixels, only what is asked for is read and encoded, and every
row is rounded to the storage type of the bags the model learnt from: so both give the same answer.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from zoommil.bags.bag import Bag
from zoommil.bags.checks import as_storage
from zoommil.encoding import Progress, encode_boxes
from zoommil.errors import ArtefactError
from zoommil.grid import PatchPyramid
from zoommil.inference.cost import Stopwatch
from zoommil.slides.slide import Slide
from zoommil.slides.statistics import ReadStatistics
from zoommil.tissue import TissueMask

if TYPE_CHECKING:
    from zoommil.encoders.encoder import Encoder

Rows = Int[np.ndarray, " row"]
Probe = Callable[[int, int, float], None]
"""Called with patches done, patches in all and seconds so far, after the first of a step."""

_SAME_PLACE_PX = 1e-6


@dataclass(frozen=True, eq=False)
class StepFeatures:
    """The features of some rows of a step, and what getting them took."""

    features: Float[np.ndarray, "patch feature"]
    boxes: Float[np.ndarray, "patch 4"] | None
    coords: Int[np.ndarray, "patch 2"] | None
    valid: Bool[np.ndarray, " patch"] | None
    num_encoded: int
    pixels_read: int | None


class FeatureSource(ABC):
    """Where the features of a slide's patches come from.

    Attributes:
        counts: rows per step of the grid.
        magnifications: of every step, None where they are not known.
    """

    counts: tuple[int, ...]
    magnifications: tuple[float | None, ...]

    @abstractmethod
    def features(self, step: int, rows: Rows | None, probe: Probe | None = None) -> StepFeatures:
        """The features of these rows of a step; None: of all."""

    @abstractmethod
    def num_to_encode(self, step: int, rows: Rows | None) -> int:
        """How many of these rows have to be encoded; None: of all."""


class BagFeatures(FeatureSource):
    """Features that were stored."""

    def __init__(self, bag: Bag) -> None:
        """Args: bag: with the model's steps only."""
        self._bag = bag
        self.counts = tuple(len(rows) for rows in bag.features)
        self.magnifications = (None,) * bag.num_steps if bag.steps is None else bag.magnifications

    def features(self, step: int, rows: Rows | None, probe: Probe | None = None) -> StepFeatures:  # noqa: ARG002
        """The stored rows."""
        bag = self._bag
        chosen = slice(None) if rows is None else rows
        return StepFeatures(
            features=bag.features[step][chosen],
            boxes=None if bag.steps is None else bag.boxes(step)[chosen],
            coords=None if bag.coords is None else bag.coords[step][chosen],
            valid=None if bag.valid is None else bag.valid[step][chosen],
            num_encoded=self.num_to_encode(step, rows),
            pixels_read=None,
        )

    def num_to_encode(self, step: int, rows: Rows | None) -> int:
        """The valid ones among the rows."""
        valid = None if self._bag.valid is None else self._bag.valid[step]
        return _num_valid(valid, self.counts[step], rows)


class SlideFeatures(FeatureSource):
    """Features that are read and encoded when they are asked for."""

    def __init__(
        self,
        slide: Slide,
        mask: TissueMask,
        pyramid: PatchPyramid,
        encoders: Sequence[Encoder],
        *,
        dtype: str,
        watch: Stopwatch,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Args: encoders: one per step; dtype: what features are rounded to."""
        self._slide = SharedPicture(slide, mask)
        self._pyramid = pyramid
        self._encoders = tuple(encoders)
        self._dtype = dtype
        self._watch = watch
        self._options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
        self.counts = pyramid.num_patches
        self.magnifications = pyramid.spec.magnifications

    def features(self, step: int, rows: Rows | None, probe: Probe | None = None) -> StepFeatures:
        """Read and encode the rows that are valid; the others are zero."""
        place = self._pyramid.steps[step]
        chosen = slice(None) if rows is None else rows
        boxes, valid = place.boxes[chosen], place.valid[chosen]
        before = self._slide.read_statistics()
        features = np.zeros((len(boxes), self._encoders[step].dim), np.float32)
        if valid.any():
            features[valid] = self._encoded(step, boxes[valid], probe)
        has_flags = self._pyramid.spec.child_tissue is not None
        return StepFeatures(
            features=features,
            boxes=boxes,
            coords=place.coords[chosen],
            valid=valid if has_flags else None,
            num_encoded=int(valid.sum()),
            pixels_read=(self._slide.read_statistics() - before).pixels_read,
        )

    def num_to_encode(self, step: int, rows: Rows | None) -> int:
        """The patches among the rows that the grid wants."""
        return _num_valid(self._pyramid.steps[step].valid, self.counts[step], rows)

    def _encoded(
        self, step: int, boxes: Float[np.ndarray, "patch 4"], probe: Probe | None
    ) -> Float[np.ndarray, "patch feature"]:
        """The boxes' features, rounded as a bag stores them."""
        place, encoder = self._pyramid.steps[step], _Timed(self._encoders[step])
        start = time.perf_counter()
        first = min(len(boxes), encoder.batch_size) if probe is not None else 0
        parts = []
        for part in (boxes[:first], boxes[first:]):
            if len(part):
                parts.append(
                    encode_boxes(
                        cast("Slide", self._slide),
                        part,
                        place.mpp,
                        place.patch_px,
                        cast("Encoder", encoder),
                        **self._options,
                    )
                )
            if probe is not None and len(parts) == 1:
                probe(first, len(boxes), time.perf_counter() - start)
        self._watch.add("encode", encoder.seconds)
        self._watch.add("read", time.perf_counter() - start - encoder.seconds)
        where = f"slide {self._slide.slide_id!r}, {place.magnification:g}x"
        return as_storage(np.concatenate(parts), self._dtype, where).astype(np.float32)


class SharedPicture:
    """A slide as encoding reads it, where pixels read for the tissue mask are not read again.

    Where the mask's picture has the very resolution of a step, patches that lie in it are cut out
    of it: a patch's pixels are the same alone and out of a larger read.
    """

    def __init__(self, slide: Slide, mask: TissueMask) -> None:
        """Args: mask: its thumbnail is what was read, if anything was."""
        self._slide = slide
        self._picture = mask.thumbnail
        self._origin = np.asarray(mask.origin)
        self._downsample = mask.downsample
        self._lock = threading.Lock()
        self.slide_id = slide.slide_id
        self.num_shared = 0

    def read_statistics(self) -> ReadStatistics:
        """What was read of the slide so far."""
        return self._slide.read_statistics()

    def read_boxes(
        self, corners: Float[np.ndarray, "box 2"], width: int, height: int, mpp: float
    ) -> UInt8[np.ndarray, "box {height} {width} 3"]:
        """The pixels of the boxes, as :meth:`Slide.read_boxes` gives them."""
        starts = self._places_in_picture(corners, width, height, mpp)
        if starts is None or not (is_inside := (starts >= 0).all(axis=1)).any():
            return self._slide.read_boxes(corners, width, height, mpp)
        assert self._picture is not None
        pixels = np.empty((len(corners), height, width, 3), np.uint8)
        for box in np.flatnonzero(is_inside):
            x, y = starts[box]
            pixels[box] = self._picture[y : y + height, x : x + width]
        if not is_inside.all():
            others = self._slide.read_boxes(corners[~is_inside], width, height, mpp)
            pixels[~is_inside] = others
        with self._lock:
            self.num_shared += int(is_inside.sum())
        return pixels

    def _places_in_picture(
        self, corners: Float[np.ndarray, "box 2"], width: int, height: int, mpp: float
    ) -> Int[np.ndarray, "box 2"] | None:
        """Where in the picture each box begins, -1 where it is not; None: nowhere."""
        if self._picture is None:
            return None
        downsample = self._slide.downsample_of(mpp)
        if abs(downsample / self._downsample - 1) > 1e-12:
            return None
        exact = (corners - self._origin) / downsample
        starts = np.rint(exact)
        rows, columns = self._picture.shape[:2]
        fits = (
            (np.abs(exact - starts).max(axis=1) < _SAME_PLACE_PX)
            & (starts.min(axis=1) >= 0)
            & (starts[:, 0] + width <= columns)
            & (starts[:, 1] + height <= rows)
        )
        return np.where(fits[:, None], starts, -1).astype(np.int64)


class _Timed:
    """An encoder that adds up the seconds it computes."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.dim = encoder.dim
        self.batch_size = encoder.batch_size
        self.seconds = 0.0

    def encode(
        self, patches: UInt8[np.ndarray, "patch side side 3"]
    ) -> Float[np.ndarray, "patch feature"]:
        start = time.perf_counter()
        features = self._encoder.encode(patches)
        self.seconds += time.perf_counter() - start
        return features


def check_nesting(source: FeatureSource, ratios: Sequence[int]) -> None:
    """Nothing, or an ArtefactError when a source's steps do not nest as the model expects."""
    for step, ratio in enumerate(ratios):
        if source.counts[step + 1] != source.counts[step] * ratio**2:
            raise ArtefactError(
                f"step {step + 1} has {source.counts[step + 1]} patches, the model expects "
                f"{ratio}x{ratio} for each of the {source.counts[step]} of step {step}; use the "
                "magnifications it was trained with."
            )


def _num_valid(valid: Bool[np.ndarray, " patch"] | None, count: int, rows: Rows | None) -> int:
    if valid is None:
        return count if rows is None else len(rows)
    return int((valid if rows is None else valid[rows]).sum())
