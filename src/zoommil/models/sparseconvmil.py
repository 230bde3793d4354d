"""Row 9, models: SparseConvMIL, convolution over a map of patches; features in, answer out.

Lerousseau et al. 2021: patches drawn from the slide are put on a sparse map where they lie, two
submanifold convolutions let near ones see each other, the mean over occupied cells is classified.
This form takes frozen features; `sparseconvmil_pixels` trains the encoder too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoommil.errors import ModelError
from zoommil.models.attention import ClassifierHead
from zoommil.models.model import Answer, SingleStepModel
from zoommil.models.positions import grid_spacing, positions_in_patches, square_coords
from zoommil.models.sampling import check_num_patches, sampled_rows, spread, usable_rows
from zoommil.models.submanifold import Occupancy, SubmanifoldConv


class SparseConvMIL(SingleStepModel):
    """Two submanifold convolutions over the sampled patches, their mean, a two-layer classifier."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        num_patches: int | None = 100,
        cell_px: float = 128.0,
        patch_px: float = 256.0,
        channels: int = 32,
        hidden_dim: int = 128,
        augment: bool = True,
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Model with the settings of the ZoomMIL paper.

        Args:
            num_patches: drawn per bag, with replacement; None: use all.
            cell_px: side of a cell of the map (d), in pixels of the step's magnification. With
                half of patch_px, as published, touching patches lie two cells apart and a filter
                joins them only when augmentation brings them closer; patch_px makes them adjacent.
            patch_px: side of a patch in the same pixels.
            augment: turn, flip, scale and shift the map while training.
        """
        super().__init__(
            feature_dim, num_classes, ratios, at=at, standardise=standardise, seed=seed
        )
        check_num_patches(num_patches)
        if cell_px <= 0 or patch_px <= 0:
            raise ModelError(
                f"cell_px is {cell_px} and patch_px {patch_px}; expected positive numbers."
            )
        self.num_patches = num_patches
        self.cell_px = cell_px
        self.patch_px = patch_px
        self.augment = augment
        self.convolutions = nn.ModuleList(
            [SubmanifoldConv(self.feature_dims[0], channels), SubmanifoldConv(channels, channels)]
        )
        self.head = ClassifierHead(
            channels, num_classes, kind="mlp", hidden_dim=hidden_dim, dropout=0.0
        )

    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """The attention given is each patch's share in the mean over cells.

        Bags without coords are laid out line by line in a square. The side of a patch is taken to
        be the spacing of the bag's patches.
        """
        if coords is None:
            coords = square_coords(len(features)).to(features.device)
        rows = usable_rows(features, valid)
        rows = sampled_rows(rows, self.num_patches, self.noise, self.training)
        occupancy = self.place(coords[rows], grid_spacing(coords))
        logits = self.classify(features[rows], occupancy)
        return Answer(logits, spread(occupancy.shares(), rows, len(features)))

    def place(self, coords: Tensor, patch_side: float) -> Occupancy:
        """The cells of patches with these level-0 corners, augmented while training.

        Args: patch_side: side of a patch in level-0 pixels.
        """
        positions_px = positions_in_patches(coords, patch_side) * self.patch_px
        if self.training and self.augment:
            positions_px = augmented(positions_px, self.noise.generator("cpu"))
        return Occupancy.of(torch.floor(positions_px / self.cell_px).long())

    def classify(
        self, features: Float[Tensor, "patch feature"], occupancy: Occupancy
    ) -> Float[Tensor, " class"]:
        """The logits of patches that lie in these cells."""
        sparse_map = occupancy.average(features)
        for convolution in self.convolutions:
            sparse_map = convolution(sparse_map).relu()
        return self.head(sparse_map.features.mean(dim=0))


def augmented(
    positions_px: Float[Tensor, "patch 2"], generator: torch.Generator
) -> Float[Tensor, "patch 2"]:
    """The positions shifted, then scaled, flipped and turned at random; whole pixels from 0 up."""
    extent = positions_px.amax(dim=0) - positions_px.amin(dim=0)
    shift = torch.floor(torch.rand(2, generator=generator).to(extent) * (extent + 1))
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    flips = torch.randint(2, (2,), generator=generator) * 2 - 1
    scales = 0.7 + 0.6 * torch.rand(2, generator=generator)
    cosine, sine = math.cos(angle), math.sin(angle)
    rotation = torch.tensor([[cosine, -sine], [sine, cosine]])
    matrix = (rotation @ torch.diag(flips * scales)).to(positions_px)
    moved = torch.trunc((positions_px - shift) @ matrix.T)
    return moved - moved.amin(dim=0)
