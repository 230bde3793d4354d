"""Row 5, encoders: what every network here shares; uint8 pixels flow in, features flow out.

A network maps normalised images to one vector each. :class:`PatchNetwork` puts the preprocessing
before it (to float, resize where the network needs its own size, normalise), so that runtimes
see one graph from the bytes of a patch to its feature.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from zoommil.encoders.card import EncoderCard
from zoommil.encoders.resizing import resize_square


class Convolution(nn.Conv2d):
    """A convolution that can be told to take oneDNN's algorithm whatever the number of threads.

    On one thread torch itself may take another, which is slower and rounds differently: features
    would depend on how the cores are shared out.
    """

    always_onednn = False

    def forward(self, input: Tensor) -> Tensor:
        images = self.padded(input)
        if not self.always_onednn:
            return super().forward(images)
        padding = [int(side) for side in self.padding]
        shape = (padding, self.stride, self.dilation, self.groups)
        return torch.mkldnn_convolution(images, self.weight, self.bias, *shape)

    def padded(self, images: Tensor) -> Tensor:
        """The images with what zeros they need beyond the convolution's own padding."""
        return images


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

    def __init__(self, network: nn.Module, card: EncoderCard) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.register_buffer("mean", 255.0 * torch.tensor(card.mean).view(1, 3, 1, 1))
        self.register_buffer("scale", 1.0 / (255.0 * torch.tensor(card.std).view(1, 3, 1, 1)))
        self.compute_dtype = torch.float32

    def forward(
        self, patches: UInt8[Tensor, "batch side side 3"]
    ) -> Float[Tensor, "batch feature"]:
        """One feature vector per patch, float32."""
        images = patches.permute(0, 3, 1, 2).float()  # NHWC in memory is channels_last already
        if not self.card.any_size:
            images = self._fitted(images)
        images = (images - self.mean) * self.scale
        return self.network(images.to(self.compute_dtype)).float()

    def _fitted(self, images: Float[Tensor, "batch 3 side side"]) -> Tensor:
        """The images at the network's own side: resized, and its centre cut out where it says."""
        input_px = self.card.input_px
        resize_px = self.card.resize_px or input_px
        if int(images.shape[2]) != resize_px:
            images = resize_square(images, resize_px, self.card.interpolation)
        margin = (resize_px - input_px) // 2
        return images[:, :, margin : margin + input_px, margin : margin + input_px]


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


def use_one_algorithm(network: nn.Module) -> None:
    """Let float32 convolutions on the CPU round alike on one thread and on many, in place."""
    if torch.backends.mkldnn.is_available():
        for module in network.modules():
            if isinstance(module, Convolution):
                module.always_onednn = True


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
