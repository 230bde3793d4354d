"""Resizing inside the encoder is the antialiased one everybody uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from zoommil.encoders.building import wrap_network
from zoommil.encoders.card import find_card
from zoommil.encoders.resizing import resampling_weights, resize_square

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(("from_px", "to_px"), [(128, 112), (128, 48), (64, 112)])
def test_it_agrees_with_pillow_to_its_rounding(from_px, to_px, interpolation, tissue_patches):
    patch = tissue_patches[0][:from_px, :from_px]
    expected = Image.fromarray(patch).resize((to_px, to_px), FILTERS[interpolation])
    images = torch.from_numpy(patch).permute(2, 0, 1)[None].float()
    resized = resize_square(images, to_px, interpolation)[0].permute(1, 2, 0).numpy()
    difference = np.abs(resized - np.asarray(expected, dtype=np.float32))
    assert difference.max() < 1.6  # Pillow rounds to bytes after each of its two passes
    assert difference.mean() < 0.4


@pytest.mark.parametrize("interpolation", FILTERS)
def test_a_plain_colour_stays(interpolation):
    weights = resampling_weights(256, 224, interpolation)
    assert np.allclose(weights.sum(axis=1), 1.0)
    white = torch.full((1, 3, 256, 256), 255.0)
    assert torch.allclose(resize_square(white, 224, interpolation), torch.tensor(255.0), atol=1e-3)


class _Look(torch.nn.Module):
    """Hands on what a network would see."""

    def forward(self, images):
        self.images = images
        return images.mean(dim=(2, 3))


@pytest.mark.parametrize(
    ("name", "side", "seen"),
    [("resnet50", 224, 224), ("resnet50", 64, 64), ("uni", 256, 224), ("gigapath", 256, 224)],
)
def test_convolutional_networks_take_patches_as_they_are(name, side, seen):
    look = _Look()
    wrap_network(look, find_card(name))(torch.zeros(1, side, side, 3, dtype=torch.uint8))
    assert look.images.shape == (1, 3, seen, seen)


def test_gigapath_cuts_the_centre_and_does_not_shrink(tissue_patches):
    patch = torch.from_numpy(np.tile(tissue_patches[:1], (1, 2, 2, 1)))
    card = find_card("gigapath").model_copy(update={"mean": (0.0,) * 3, "std": (1.0,) * 3})
    look = _Look()
    wrap_network(look, card)(patch)
    centre = patch[0, 16:240, 16:240].permute(2, 0, 1) / 255.0
    assert torch.allclose(look.images[0], centre, atol=1e-6)


def test_pixels_are_normalised_by_the_card():
    look = _Look()
    card = find_card("h_optimus_0")
    wrap_network(look, card)(torch.full((1, 224, 224, 3), 255, dtype=torch.uint8))
    expected = (1.0 - torch.tensor(card.mean)) / torch.tensor(card.std)
    assert torch.allclose(look.images[0, :, 0, 0], expected, atol=1e-5)
