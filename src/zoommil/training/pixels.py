"""Row 11, pixels: slides and their patch boxes come in; drawn patches go out, to train an encoder.

The one exception to "training sees bags": SparseConvMIL as published draws 100 patches of a slide
with replacement, encodes them with a ResNet-34 that is trained along, and adds up the gradients of
eight slides a step. Every epoch draws afresh; validation always sees the same patches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from zoommil.bags.bag import Bag
from zoommil.encoders.card import IMAGENET_MEAN, IMAGENET_STD
from zoommil.errors import BagError, ModelError
from zoommil.models.model import MILOutput, Model, State, StepOutput
from zoommil.models.sparseconvmil_pixels import PixelSparseConvMIL
from zoommil.slides.opening import open_slide
from zoommil.training.data import BagSet, BagSource, Example, LoadedBag


@dataclass(frozen=True)
class PatchSource:
    """The patches of one slide at one resolution.

    Attributes:
        path: the slide, or its pixels.
        slide_mpp: its resolution where its file does not say.
        boxes: (x, y, width, height) in level-0 pixels.
        mpp: resolution of the patches.
        patch_px: their side at that resolution.
    """

    path: Path | UInt8[np.ndarray, "height width 3"]
    boxes: Float[np.ndarray, "patch 4"]
    mpp: float
    patch_px: int
    slide_mpp: float | None = None

    @classmethod
    def of_bag(
        cls, bag: Bag, path: Path, *, step: int = -1, slide_mpp: float | None = None
    ) -> PatchSource:
        """The patches that a bag was made of, so that tissue is not looked for again.

        Raises:
            BagError: the bag does not say where its patches lie.
        """
        if bag.steps is None:
            raise BagError(
                f"bag {bag.slide_id!r} does not say where its patches lie; extract the slide again."
            )
        info = bag.steps[step]
        return cls(path, bag.boxes(step % bag.num_steps), info.mpp, info.patch_px, slide_mpp)


@dataclass(frozen=True)
class DrawnPatches:
    """Some patches of a slide, as drawn."""

    pixels: UInt8[np.ndarray, "patch side side 3"]
    corners: Float[np.ndarray, "patch 2"]
    side: float  # of a patch in level-0 pixels


def draw_patches(
    source: PatchSource, num_patches: int, generator: np.random.Generator, *, augment: bool = False
) -> DrawnPatches:
    """That many patches of a slide, drawn with replacement.

    Args:
        source: the slide's patches.
        num_patches: how many.
        generator: draws them.
        augment: flip and turn each by quarters at random.

    Raises:
        SlideReadError: a patch cannot be decoded.
    """
    rows = generator.integers(len(source.boxes), size=num_patches)
    corners = source.boxes[rows, :2]
    unique, inverse = np.unique(rows, return_inverse=True)
    with open_slide(source.path, mpp=source.slide_mpp) as slide:
        read = slide.read_boxes(
            source.boxes[unique, :2], source.patch_px, source.patch_px, source.mpp
        )
    pixels = read[inverse]
    if augment:
        pixels = np.stack([_turned(patch, generator) for patch in pixels])
    return DrawnPatches(pixels, corners, float(source.boxes[0, 2]))


def _turned(
    patch: UInt8[np.ndarray, "side side 3"], generator: np.random.Generator
) -> UInt8[np.ndarray, "side side 3"]:
    turned = np.rot90(patch, int(generator.integers(4)))
    return turned[::-1] if generator.random() < 0.5 else turned


def as_input(
    pixels: UInt8[np.ndarray, "patch side side 3"],
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> Float32[Tensor, "patch 3 side side"]:
    """Pixels as a network takes them: from 0 to 1, minus the mean, over the deviation."""
    values = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255.0
    return (values - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


class PixelBagSet(BagSet):
    """Slides whose bags are drawn patches, anew at every use in training.

    A draw depends on the seed, the epoch, the slide and how often it came up in that epoch; so a
    resumed run draws what the interrupted one would have drawn.
    """

    def __init__(
        self,
        sources: Sequence[PatchSource],
        examples: Sequence[Example],
        *,
        num_patches: int = 100,
        seed: int = 0,
        is_training: bool = True,
        augment: bool = False,
    ) -> None:
        """Args: is_training: draw anew each time, instead of always the same patches."""
        super().__init__(BagSource({}), examples)
        self._sources = tuple(sources)
        self._num_patches, self._seed = num_patches, seed
        self._is_training, self._augment = is_training, augment and is_training
        self._epoch = 0
        self._uses: Counter[int] = Counter()

    @property
    def depth(self) -> int:
        """Patches are read and decoded ahead."""
        return 2

    def start_epoch(self, epoch: int) -> None:
        """Draw what belongs to this epoch from now on."""
        self._epoch = epoch
        self._uses.clear()

    def load(self, index: int) -> LoadedBag:
        """Drawn patches; ``coords`` holds their corners and then the side of a patch."""
        key = [self._seed, index]
        if self._is_training:
            key += [self._epoch, self._uses[index]]
            self._uses[index] += 1
        drawn = draw_patches(
            self._sources[index],
            self._num_patches,
            np.random.default_rng(key),
            augment=self._augment,
        )
        corners, side = torch.from_numpy(drawn.corners.copy()), torch.tensor([drawn.side])
        return LoadedBag(self.examples[index], (as_input(drawn.pixels),), (corners, side), None)


class PixelModel(Model):
    """A network over patches as the loop takes it; it cannot be given features."""

    def __init__(self, network: PixelSparseConvMIL) -> None:
        """Args: network: encoder and SparseConvMIL."""
        super().__init__(
            network.mil.feature_dims, network.mil.num_classes, standardise=False, seed=0
        )
        self.network = network

    def takes(self, num_bag_steps: int) -> tuple[int, ...]:
        """The one step that its patches are of."""
        return (num_bag_steps - 1,)

    def step(
        self,
        features: Any,  # noqa: ARG002 (it takes none)
        state: State,  # noqa: ARG002
        *,
        coords: Any = None,  # noqa: ARG002
        valid: Any = None,  # noqa: ARG002
        k: int | None = None,  # noqa: ARG002
    ) -> StepOutput:
        """Not possible: it needs pixels."""
        raise ModelError("this model encodes patches itself; give it pixels, through forward.")

    def forward(
        self,
        features: Sequence[Any],
        coords: Sequence[Any] | None = None,
        valid: Sequence[Any] | None = None,  # noqa: ARG002 (all drawn patches are)
    ) -> MILOutput:
        """The answer for drawn patches as :meth:`PixelBagSet.load` gives them."""
        if coords is None:
            raise ModelError("patches came without coords; SparseConvMIL places them on a map.")
        return self.network(features[-1], coords[0], float(coords[1]))
