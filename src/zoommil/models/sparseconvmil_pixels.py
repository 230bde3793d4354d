"""Row 9, models: SparseConvMIL with its encoder trained along; patch pixels in, answer out."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from zoommil.errors import ModelError
from zoommil.models.model import MILOutput
from zoommil.models.positions import grid_spacing
from zoommil.models.sparseconvmil import SparseConvMIL


class PixelSparseConvMIL(nn.Module):
    """An encoder and SparseConvMIL as one network, for patches already drawn from a slide.

    Bags go through one at a time; a batch of bags is their gradients added up. The encoder's batch
    norms see one bag's patches together.
    """

    def __init__(
        self, encoder: nn.Module | str, num_classes: int, *, dim: int | None = None, **settings: Any
    ) -> None:
        """Network that is ready to train.

        Args:
            encoder: module from a batch of patches to (patch, dim), or "resnet18" or "resnet34"
                (random weights; published: ResNet-34 with ImageNet weights).
            dim: width of the features; may be left out when the encoder has it as `dim`.
            settings: SparseConvMIL's own.
        """
        super().__init__()
        self.encoder = _new_encoder(encoder) if isinstance(encoder, str) else encoder
        width = dim if dim is not None else getattr(self.encoder, "dim", None)
        if not isinstance(width, int):
            raise ModelError("the encoder has no attribute dim; pass dim=, its feature width.")
        self.mil = SparseConvMIL(width, num_classes, num_patches=None, **settings)

    def forward(
        self,
        patches: Shaped[Tensor, "patch ..."],
        coords: Shaped[Tensor, "corner 2"],
        patch_side: float | None = None,
    ) -> MILOutput:
        """The answer for one bag of drawn patches.

        Args:
            patches: as the encoder takes them; a ResNet takes normalised (patch, 3, height, width).
            coords: level-0 corners of the patches.
            patch_side: side of a patch in level-0 pixels; None: the spacing of these patches.
        """
        if len(patches) == 0 or len(coords) != len(patches):
            raise ModelError(
                f"{len(patches)} patches and {len(coords)} coords; expected one corner per patch"
                " and at least one patch."
            )
        side = grid_spacing(coords) if patch_side is None else patch_side
        occupancy = self.mil.place(coords, side)
        logits = self.mil.classify(self.encoder(patches), occupancy)
        return MILOutput(
            logits=logits,
            attention=(occupancy.shares(),),
            scores=(),
            selected=(),
            rows=(torch.arange(len(patches), device=logits.device),),
            steps=(0,),
            step_logits=(logits,),
        )

    def loss(
        self, output: MILOutput, label: int | Tensor, class_weights: Tensor | None = None
    ) -> Tensor:
        """Cross-entropy of one bag, times its class's weight."""
        return self.mil.loss(output, label, class_weights)

    def parameter_groups(
        self, *, encoder_lr: float = 1e-5, lr: float = 1e-3
    ) -> list[dict[str, Any]]:
        """Optimiser groups: the encoder slowly, the rest faster (the paper's rates)."""
        return [
            {"params": list(self.encoder.parameters()), "lr": encoder_lr},
            {"params": list(self.mil.parameters()), "lr": lr},
        ]


def _new_encoder(name: str) -> nn.Module:
    from zoommil.encoders import resnet

    makers = {"resnet18": resnet.resnet18, "resnet34": resnet.resnet34}
    if name not in makers:
        raise ModelError(f"encoder is {name!r}; expected a module or one of {', '.join(makers)}.")
    return makers[name]()
