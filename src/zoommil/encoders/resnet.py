"""Row 5, encoders: residual networks; normalised pixels flow in, pooled features flow out.

The parameter names are torchvision's, so its checkpoints, and those of timm's ``*.tv_in1k`` on the
hub, load as they are.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from zoommil.encoders.network import Convolution, ConvolutionalNetwork


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (ResNet-18 and ResNet-34)."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(in_channels, channels, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.relu(self.bn1(self.conv1(inputs)))
        outputs = self.bn2(self.conv2(outputs))
        return self.relu(outputs + self.downsample(inputs))


class Bottleneck(nn.Module):
    """1x1, 3x3 (which strides, as in torchvision), 1x1 beside a shortcut (ResNet-50)."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = _convolution(channels, channels * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(in_channels, channels * self.expansion, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.relu(self.bn1(self.conv1(inputs)))
        outputs = self.relu(self.bn2(self.conv2(outputs)))
        outputs = self.bn3(self.conv3(outputs))
        return self.relu(outputs + self.downsample(inputs))


class ResNet(ConvolutionalNetwork):
    """A residual network up to one of its stages, averaged over the image."""

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...]) -> None:
        """Args: block: kind of residual block; depths: blocks per stage, as many stages as kept."""
        super().__init__()
        self.conv1 = _convolution(3, 64, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        channels = 64
        for stage, depth in enumerate(depths, start=1):
            stage_channels = 64 * 2 ** (stage - 1)
            blocks = []
            for index in range(depth):
                stride = 2 if stage > 1 and index == 0 else 1
                blocks.append(block(channels, stage_channels, stride))
                channels = stage_channels * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.num_stages = len(depths)
        self.dim = channels

    def activations(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch feature rows columns"]:
        """The last kept stage's activations."""
        outputs = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in range(1, self.num_stages + 1):
            outputs = self.get_submodule(f"layer{stage}")(outputs)
        return outputs


def resnet18() -> ResNet:
    """ResNet-18 whole: 512-d."""
    return ResNet(BasicBlock, (2, 2, 2, 2))


def resnet34() -> ResNet:
    """ResNet-34 whole: 512-d."""
    return ResNet(BasicBlock, (3, 4, 6, 3))


def resnet50_stage3() -> ResNet:
    """ResNet-50 up to its third stage: 1024-d, what CLAM, TRIDENT and ZoomMIL call resnet50."""
    return ResNet(Bottleneck, (3, 4, 6))


def _convolution(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> Convolution:
    return Convolution(
        in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False
    )


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    if in_channels == out_channels and stride == 1:
        return nn.Identity()
    return nn.Sequential(
        _convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels)
    )
