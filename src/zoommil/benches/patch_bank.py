"""Row 16, benches: encoded slides with known truth go in; as many labelled bags as wished come out.

A bag is put together from whole parents of the lowest step, each with all of its descendants, so
that nesting holds: some parents that hold a focus of the bag's class, the others without any. Banks
of different slides share no patch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int

from zoommil.bags.bag import Bag
from zoommil.errors import CohortError
from zoommil.training.data import BagSet, BagSource, Example, LoadedBag

if TYPE_CHECKING:
    from zoommil.models.model import Model
    from zoommil.synthetic.truth import SlideTruth

FOCUS_SHARE = 0.15  # of a parent's area, from which it counts as showing a focus
_RASTER_PX = 16  # level-0 pixels per pixel of the truth's raster
_NONE = -1


@dataclass(frozen=True)
class PatchBank:
    """Parents of some slides with their blocks, and what each shows.

    Attributes:
        features: a matrix per step; the blocks of parent ``i`` are rows ``i*R .. i*R+R-1``.
        offsets: top-left corner of every row relative to its parent's, per step, level-0 pixels.
        side: of a parent, in level-0 pixels.
        shows: per parent the class of the focus in it, or -1; parents barely touched are left out.
        classes: class names.
    """

    features: tuple[np.ndarray, ...]
    offsets: tuple[Int[np.ndarray, "_ 2"], ...]
    side: float
    shows: Int[np.ndarray, " parent"]
    classes: tuple[str, ...]

    @classmethod
    def of_slides(
        cls, bags: Sequence[Bag], truths: Sequence[SlideTruth], classes: Sequence[str]
    ) -> PatchBank:
        """The bank of some slides' bags."""
        shares = [focus_share(truth, bag.boxes(0)) for bag, truth in zip(bags, truths, strict=True)]
        kept = [np.flatnonzero((share == 0) | (share >= FOCUS_SHARE)) for share in shares]
        shows = [
            np.where(share[rows] > 0, classes.index(truth.label), _NONE)
            for share, rows, truth in zip(shares, kept, truths, strict=True)
        ]
        kind = np.float16 if bags[0].dtype == "float16" else np.float32
        features, offsets = [], []
        for step in range(bags[0].num_steps):
            parts = [_blocks(bag.features[step], bag, rows) for bag, rows in zip(bags, kept)]  # noqa: B905
            features.append(np.concatenate(parts).astype(kind))
            places = [_blocks(_offsets(bag, step), bag, rows) for bag, rows in zip(bags, kept)]  # noqa: B905
            offsets.append(np.concatenate(places))
        side = float(bags[0].boxes(0)[0, 2])
        return cls(tuple(features), tuple(offsets), side, np.concatenate(shows), tuple(classes))

    def plain(self) -> Int[np.ndarray, " parent"]:
        """Parents without any focus, of slides of every class."""
        return np.flatnonzero(self.shows == _NONE)

    def showing(self, label: int) -> Int[np.ndarray, " parent"]:
        """Parents with a focus of that class."""
        return np.flatnonzero(self.shows == label)


def _offsets(bag: Bag, step: int) -> Int[np.ndarray, "_ 2"]:
    """Corners relative to the parents'."""
    corners = bag.boxes(step)[:, :2]
    parents = np.repeat(bag.boxes(0)[:, :2], len(corners) // len(bag.boxes(0)), axis=0)
    return np.round(corners - parents).astype(np.int64)


def _blocks(rows_of_step: np.ndarray, bag: Bag, parents: np.ndarray) -> np.ndarray:
    size = len(rows_of_step) // len(bag.features[0])
    return rows_of_step.reshape(-1, size, rows_of_step.shape[1])[parents].reshape(
        -1, rows_of_step.shape[1]
    )


def focus_share(
    truth: SlideTruth, boxes: Float[np.ndarray, "patch 4"]
) -> Float[np.ndarray, " patch"]:
    """The share of each box (level-0 pixels) that lies in a focus."""
    import cv2

    width, height = (-(-side // _RASTER_PX) for side in truth.size_px)
    mask = np.zeros((height, width), np.uint8)
    for polygon in truth.foci:
        corners = np.round(polygon.corners / _RASTER_PX).astype(np.int32)
        cv2.fillPoly(mask, [corners], (1,))
    ends = np.round(boxes / _RASTER_PX).astype(int)
    return np.array([_mean(mask[y : y + h, x : x + w], w * h) for x, y, w, h in ends])


def _mean(part: np.ndarray, area: int) -> float:
    """The mean of a part that may reach over the slide's edge."""
    return float(part.sum()) / max(area, 1)


@dataclass(frozen=True)
class Composition:
    """What a composed bag is made of."""

    num_parents: int = 16
    num_focus: tuple[int, int] = (1, 3)  # parents that show the bag's class, from .. to


class ComposedBags(BagSet):
    """Bags put together from a bank when they are asked for; the same for the same seed."""

    def __init__(
        self,
        bank: PatchBank,
        num_bags: int,
        composition: Composition,
        seed: int,
        model: Model | None = None,
    ) -> None:
        """Args: model: give only the steps it looks at; None: all."""
        generator = np.random.default_rng(seed)
        labels = [index % len(bank.classes) for index in range(num_bags)]
        examples = [
            Example(f"bag_{number:05d}", f"bag_{number:05d}", label)
            for number, label in enumerate(labels)
        ]
        super().__init__(BagSource({}), examples)
        num_steps = len(bank.features)
        self._taken = range(num_steps) if model is None else model.takes(num_steps)
        self._bank = bank
        self.parents = [_draw(bank, label, composition, generator) for label in labels]

    def load(self, index: int) -> LoadedBag:
        """The bag of this index: its parents stand in a square, in the order they were drawn."""
        bank, parents = self._bank, self.parents[index]
        columns = -(-(len(parents) ** 0.5) // 1)
        places = np.stack(np.divmod(np.arange(len(parents)), columns)[::-1], -1)
        corners = np.round(places * bank.side).astype(np.int64)
        features, coords = [], []
        for step, (rows, offsets) in enumerate(zip(bank.features, bank.offsets, strict=True)):
            size = len(rows) // len(bank.shows)
            chosen = (parents[:, None] * size + np.arange(size)).reshape(-1)
            coords.append(torch.from_numpy(np.repeat(corners, size, axis=0) + offsets[chosen]))
            taken = step in self._taken
            features.append(torch.from_numpy(rows[chosen].astype(np.float32)) if taken else None)
        return LoadedBag(self.examples[index], tuple(features), tuple(coords), None)


def _draw(
    bank: PatchBank, label: int, composition: Composition, generator: np.random.Generator
) -> Int[np.ndarray, " parent"]:
    """The parents of one bag, in random order."""
    low, high = composition.num_focus
    num_focus = int(generator.integers(low, high + 1))
    focus, plain = bank.showing(label), bank.plain()
    if len(focus) == 0 or len(plain) < composition.num_parents:
        raise CohortError(
            f"the bank has {len(focus)} parents that show {bank.classes[label]!r} and "
            f"{len(plain)} without a focus; expected at least 1 and {composition.num_parents}. "
            "Use more or larger slides."
        )
    num_focus = min(num_focus, len(focus))
    chosen = [
        generator.choice(focus, num_focus, replace=False),
        generator.choice(plain, composition.num_parents - num_focus, replace=False),
    ]
    return generator.permutation(np.concatenate(chosen))


def read_truths(paths: Sequence[Path]) -> list[SlideTruth]:
    """The truth files beside synthetic slides."""
    from zoommil.synthetic.truth import read_truth

    return [read_truth(json.loads(path.read_text(encoding="utf-8"))) for path in paths]
