"""Small bags with a class to learn, made as training sees them."""

from __future__ import annotations

import numpy as np

from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.training.data import BagSet, BagSource, Example

SMALL_ZOOM = {"k": 3, "embed_dim": 16, "attention_dim": 8, "num_samples": 20}


def make_bags(
    num: int, *, seed: int = 0, shift: float = 2.0, counts: tuple[int, ...] = (6, 24), dim: int = 8
) -> dict[str, Bag]:
    """Bags whose class (slide number modulo 2) shifts the first feature of every step."""
    generator = np.random.default_rng(seed)
    bags = {}
    for number in range(num):
        features = []
        for count in counts:
            rows = generator.normal(size=(count, dim)).astype(np.float32)
            rows[:, 0] += shift * (number % 2)
            features.append(rows)
        name = f"s{number:03d}"
        bags[name] = Bag(features=tuple(features), slide_id=name)
    return bags


def make_examples(bags: dict[str, Bag], first: int, last: int) -> list[Example]:
    """One case per slide, the label as in :func:`make_bags`."""
    names = list(bags)[first:last]
    return [Example(name, f"c{name}", int(name[1:]) % 2) for name in names]


def make_set(bags: dict[str, Bag], first: int, last: int, model, *, keep: bool = True) -> BagSet:
    bag_set = BagSet(BagSource(bags), make_examples(bags, first, last))
    bag_set.prepare(model, next(iter(bags.values())), keep=keep)
    return bag_set


def make_cohort(bags: dict[str, Bag], **labels: str | None) -> Cohort:
    """A cohort of the bags' slides, one case each, classes "no" and "yes"."""
    slides = []
    for name in bags:
        label = labels.get(name, ("no", "yes")[int(name[1:]) % 2])
        slides.append(SlideRow(name, None, f"c{name}", label))
    return Cohort(tuple(slides), ("no", "yes"), "cohort.csv")


def make_split(bags: dict[str, Bag]) -> dict[str, list[str]]:
    """Half of the bags for training, a quarter each for the rest."""
    names = list(bags)
    half, most = len(names) // 2, 3 * len(names) // 4
    return {"train": names[:half], "val": names[half:most], "test": names[most:]}
