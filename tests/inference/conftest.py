"""Small synthetic slides, their bags, and artefacts of untrained models for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_cases import CLASSES, SMALL, bag_of

from zoommil.artefact import Artefact, source_of
from zoommil.bags.bag import Bag
from zoommil.inference.predictor import Predictor
from zoommil.models.creation import create_model
from zoommil.synthetic.slide import SlideSpec, write_slide


@pytest.fixture(scope="session")
def encoder():
    """ResNet-18 with random weights, in fp32."""
    from zoommil.encoders.loading import load_encoder

    options = {"weights": "random:0", "precision": "fp32", "runtime": "torch"}
    return load_encoder("resnet18", device="cpu", **options)


@pytest.fixture(scope="session")
def slides(tmp_path_factory) -> tuple[Path, ...]:
    """Three slides of about 1000 px at 10x, one of them at 12.5x."""
    folder = tmp_path_factory.mktemp("slides")
    paths = []
    for number, magnification in enumerate((10.0, 10.0, 12.5)):
        size = (1024, 1000 - 100 * number)
        spec = SlideSpec(
            size_px=size, magnification=magnification, downsamples=(1, 4), tissue=0.4 + 0.1 * number
        )
        paths.append(folder / f"s{number}.svs")
        write_slide(paths[-1], spec, seed=number)
    return tuple(paths)


@pytest.fixture(scope="session")
def bags(slides, encoder) -> tuple[Bag, ...]:
    """The slides' bags."""
    return tuple(bag_of(path, encoder) for path in slides)


MakeArtefact = Callable[..., Artefact]


@pytest.fixture(scope="session")
def make_artefact(bags, tmp_path_factory) -> MakeArtefact:
    """An artefact of an untrained model: ``make_artefact(name, bag=None, **settings)``."""

    def make(name: str = "zoommil", bag: Bag | None = None, **settings) -> Artefact:
        source = source_of(bag or bags[0])
        ratios = (bag or bags[0]).ratios
        if name == "zoommil":
            settings = {"k": 3, **SMALL, **settings}
        model = create_model(
            name,
            feature_dim=source.steps[0].feature_dim,
            num_classes=len(CLASSES),
            ratios=ratios,
            seed=1,
            **settings,
        )
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in model.settings.items()}
        artefact = Artefact(plain, dict(model.state_dict()), CLASSES, source, temperature=1.5)
        return artefact.save(tmp_path_factory.mktemp(f"artefact_{name}"))

    return make


@pytest.fixture(scope="session")
def artefact(make_artefact) -> Artefact:
    """An untrained ZoomMIL of three steps that may stop early."""
    return make_artefact("zoommil", step_loss=0.3)


@pytest.fixture(scope="session")
def predictor(artefact, encoder) -> Predictor:
    """Of that artefact."""
    return Predictor(artefact, encoders=encoder, device="cpu")
