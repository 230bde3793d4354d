"""Row 5, encoders: what every network here shares; uint8 pixels flow in, features flow out.

A network maps normalised images to one vector each. :class:`PatchNetwork` puts the preprocessing
before it (to float, resize where the network needs its own size, normalise), so that runtimes
see one graph from the bytes of a patch to its feature.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn


class ConvolutionalNetwork(nn.Module):
    """A network of plain convolutions, each followed by its batch norm where it has one.

    Subclasses define their members in the order they are used (a batch norm right after its
    convolution) and give :meth:`activations`; the feature is their average over the image.
    """

    dim: int

    def activations(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch feature rows columns"]:
        """The last activations, not yet pooled."""
        raise NotImplementedError

    def forward(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch feature"]:
        """The mean activation over the image, float32 whatever the precision of the network."""
        return self.activations(images).float().mean(dim=(2, 3))


class PatchNetwork(nn.Module):
    """From the bytes of patches to their features: cast, resize if need be, normalise, network."""

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        input_px: int | None = None,
    ) -> None:
        """Args: mean, std: of pixels in [0, 1]; input_px: side to resize to, None for as is."""
        super().__init__()
        self.network = network
        self.input_px = input_px
        self.register_buffer("mean", 255.0 * torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("scale", 1.0 / (255.0 * torch.tensor(std).view(1, 3, 1, 1)))
        self.compute_dtype = torch.float32

    def forward(
        self, patches: UInt8[Tensor, "batch side side 3"]
    ) -> Float[Tensor, "batch feature"]:
        """One feature vector per patch, float32."""
        images = patches.permute(0, 3, 1, 2).float()  # NHWC in memory is channels_last already
        if self.input_px is not None and int(patches.shape[1]) != self.input_px:
            images = resize_square(images, self.input_px)
        images = (images - self.mean) * self.scale
        return self.network(images.to(self.compute_dtype)).float()


def resize_square(images: Float[Tensor, "batch 3 side side"], to_px: int) -> Tensor:
    """The images at another side length: separable bicubic, widened when it shrinks (antialiased).

    Two products with a constant matrix: the same on every runtime, and it converts to all.
    """
    weights = torch.from_numpy(_bicubic_weights(int(images.shape[2]), to_px)).to(images)
    rows = torch.matmul(weights, images)
    return torch.matmul(rows, weights.T).clamp(0.0, 255.0)


def fold_batch_norms(network: ConvolutionalNetwork) -> ConvolutionalNetwork:
    """A copy in which each batch norm has gone into the convolution before it."""
    folded = copy.deepcopy(network).eval()
    for module in folded.modules():
        children = list(module.named_children())
        for (_, first), (name, second) in pairwise(children):
            if isinstance(first, nn.Conv2d) and type(second) is nn.BatchNorm2d:
                _fold(first, second)
                setattr(module, name, nn.Identity())
    return folded


def _fold(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    """Computed in double precision: rounding happens once, to the stored weights."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    factor = norm.weight.double() / torch.sqrt(variance.double() + norm.eps)
    bias = norm.bias.double() - mean.double() * factor
    if convolution.bias is not None:
        bias = bias + convolution.bias.double() * factor
    weight = convolution.weight.double() * factor.view(-1, 1, 1, 1)
    convolution.weight = nn.Parameter(weight.float(), requires_grad=False)
    convolution.bias = nn.Parameter(bias.float(), requires_grad=False)


def _bicubic_weights(from_px: int, to_px: int) -> Float[np.ndarray, "to from"]:
    """Rows of a resampling matrix, each summing to 1; Keys' kernel with a = -0.5 as Pillow's."""
    ratio = from_px / to_px
    support = max(ratio, 1.0)
    centres = (np.arange(to_px) + 0.5) * ratio
    distance = np.abs(np.arange(from_px)[None, :] + 0.5 - centres[:, None]) / support
    near = (1.5 * distance - 2.5) * distance**2 + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    weights = np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
