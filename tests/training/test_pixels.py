"""Training from pixels: what is drawn, and that encoder and MIL network learn together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from zoommil.bags.bag import Bag
from zoommil.errors import BagError, ModelError
from zoommil.models.sparseconvmil_pixels import PixelSparseConvMIL
from zoommil.training.checkpoint import load_checkpoint, save_checkpoint
from zoommil.training.data import Example
from zoommil.training.loop import Trainer
from zoommil.training.pixels import PatchSource, PixelBagSet, PixelModel, as_input, draw_patches
from zoommil.training.run import RunSpec

SIDE = 64


def make_source(label: int, seed: int) -> PatchSource:
    """A slide of 4 x 2 patches; the class is only in how their texture runs."""
    generator = np.random.default_rng(seed)
    wave = 128 + 100 * np.sin(np.arange(4 * SIDE) / 2 + generator.random() * 6)
    image = np.tile(wave, (2 * SIDE, 1))
    if label:
        image = np.tile(wave[: 2 * SIDE, None], (1, 4 * SIDE))
    pixels = np.repeat(image[..., None], 3, axis=2).astype(np.uint8)
    boxes = np.array([[x * SIDE, y * SIDE, SIDE, SIDE] for y in range(2) for x in range(4)], float)
    return PatchSource(pixels, boxes, mpp=1.0, patch_px=SIDE, slide_mpp=1.0)


SOURCES = [make_source(number % 2, number) for number in range(4)]
EXAMPLES = [Example(f"s{number}", f"s{number}", number % 2) for number in range(4)]


def make_trainer(epochs: int = 25) -> Trainer:
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    network = PixelSparseConvMIL(encoder, 2, dim=8, augment=False)
    run = RunSpec.from_recipe(
        "sparseconvmil",
        {
            "training": {"epochs": epochs, "batch_bags": 4, "weighted_sampler": False},
            "optimiser": {"lr": 1e-2, "group_lr": {"network.encoder": 5e-3}},
        },
    )
    sets = [PixelBagSet(SOURCES, EXAMPLES, num_patches=8, is_training=t) for t in (True, False)]
    return Trainer(PixelModel(network), sets[0], sets[1], run)


def test_draws_are_of_the_slide_with_replacement_and_by_the_generator() -> None:
    source = SOURCES[0]
    drawn = draw_patches(source, 100, np.random.default_rng(0))
    assert drawn.pixels.shape == (100, SIDE, SIDE, 3)
    assert len(np.unique(drawn.corners, axis=0)) == 8
    assert isinstance(source.path, np.ndarray)
    for patch, (x, y) in zip(drawn.pixels[:8], drawn.corners.astype(int), strict=False):
        assert (patch == source.path[y : y + SIDE, x : x + SIDE]).all()
    again = draw_patches(source, 100, np.random.default_rng(0))
    assert (again.corners == drawn.corners).all()


def test_augmentation_turns_and_flips_but_keeps_the_pixels() -> None:
    source = SOURCES[0]
    drawn = draw_patches(source, 20, np.random.default_rng(1), augment=True)
    plain = draw_patches(source, 20, np.random.default_rng(1))
    assert (drawn.corners == plain.corners).all()
    assert not (drawn.pixels == plain.pixels).all()
    assert (np.sort(drawn.pixels.ravel()) == np.sort(plain.pixels.ravel())).all()


def test_input_is_normalised_per_channel() -> None:
    pixels = np.full((1, 2, 2, 3), 255, np.uint8)
    values = as_input(pixels, (0.5, 0.5, 0.0), (0.5, 1.0, 1.0))
    assert values.shape == (1, 3, 2, 2)
    assert values[0, :, 0, 0].tolist() == [1.0, 0.5, 1.0]


def test_training_draws_anew_and_validation_never() -> None:
    training = PixelBagSet(SOURCES, EXAMPLES, num_patches=8)
    fixed = PixelBagSet(SOURCES, EXAMPLES, num_patches=8, is_training=False)

    def drawn(bags: PixelBagSet) -> list[float]:
        coords = bags.load(1).coords
        assert coords is not None
        return coords[0].flatten().tolist()

    first, second = drawn(training), drawn(training)
    assert first != second
    training.start_epoch(1)
    assert drawn(training) not in (first, second)
    training.start_epoch(0)
    assert drawn(training) == first
    assert drawn(fixed) == drawn(fixed)


def test_fine_tuned_path_overfits_four_bags_of_eight_patches() -> None:
    trainer = make_trainer()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    while not trainer.is_finished:
        trainer.run_epoch()
    assert trainer.history[-1].train_loss < 0.1 < trainer.history[0].train_loss
    assert trainer.history[-1].metrics["accuracy"] == 1.0
    moved = [not torch.equal(p, b) for p, b in zip(trainer.model.parameters(), before, strict=True)]
    assert all(moved)  # the encoder too
    assert {group["lr"] for group in trainer.optimiser.param_groups} == {1e-2, 5e-3}


def test_check_22_resumed_pixel_run_is_bit_identical(tmp_path: Path) -> None:
    straight, halting, resumed = (make_trainer(4) for _ in range(3))
    for _ in range(4):
        straight.run_epoch()
    for _ in range(2):
        halting.run_epoch()
    save_checkpoint(halting, tmp_path / "c", "x")
    load_checkpoint(resumed, tmp_path / "c", "x")
    for _ in range(2):
        resumed.run_epoch()
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_refuses_features_and_bags_without_places() -> None:
    model = make_trainer().model
    with pytest.raises(ModelError, match="pixels"):
        model.step(torch.zeros(3, 8), model.start())
    with pytest.raises(ModelError, match="coords"):
        model([torch.zeros(3, 3, SIDE, SIDE)])
    with pytest.raises(BagError, match="where its patches lie"):
        PatchSource.of_bag(Bag(features=(np.zeros((2, 3)),), slide_id="a"), Path("a.svs"))
