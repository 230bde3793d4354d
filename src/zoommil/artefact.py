"""Row 10, artefact: a trained model comes in, one folder that is enough to predict with goes out.

    model.safetensors   weights, with the feature standardisation if the model has one
    artefact.json       model and settings, classes, where features must come from, temperature,
                        provenance, versions, metrics, and the hash of the weights
    run.toml, curves.csv, metrics.json, predictions_val.csv, predictions_test.csv
                        written by training beside them

Nothing is pickled. A folder is an artefact once artefact.json is there: it is written last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoommil.bags.bag import Bag
from zoommil.errors import ArtefactError, ZoomMILError
from zoommil.files import atomic_path, file_hash, hash_of, write_json
from zoommil.units import magnification_label, mpp_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from zoommil.models.model import Model

FORMAT = "zoommil-artefact"
FORMAT_VERSION = 1
DESCRIPTION_FILE = "artefact.json"
WEIGHTS_FILE = "model.safetensors"

# What may differ between features that belong together: it moves their last bits only, and a
# prediction records it. The order of patches does not matter to an answer at all.
_FREE_IN_ENCODER = {"runtime", "runtime_version", "device"}
_FREE_IN_GRID = {"magnifications", "order"}


@dataclass(frozen=True)
class SourceStep:
    """Where the features of one step come from; None where a bag does not say."""

    feature_dim: int
    magnification: float | None = None
    mpp: float | None = None
    patch_px: int | None = None
    encoder: dict[str, Any] | None = None


@dataclass(frozen=True)
class FeatureSource:
    """Where features come from: what a bag must share with the bags a model was trained on.

    ``readers`` are those of the slides; like the runtime they may differ, and are told then.
    """

    steps: tuple[SourceStep, ...]
    storage: str
    grid: dict[str, Any] | None = None
    tissue: dict[str, Any] | None = None
    readers: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FeatureSource:
        """The source that ``asdict`` took apart."""
        steps = tuple(SourceStep(**step) for step in value["steps"])
        readers = tuple(value.get("readers", ()))
        return cls(steps, value["storage"], value["grid"], value["tissue"], readers)


@dataclass(frozen=True, eq=False)
class Artefact:
    """A trained model with everything needed to predict.

    Attributes:
        settings: what ``create_model`` builds the model from.
        weights: its state dict.
        classes: class names in the order of the logits.
        source: where features must come from.
        temperature: logits are divided by it before the softmax.
        provenance: run, data and split it was trained from.
        versions: of the packages that trained it.
        metrics: of validation and test, as training reported them.
        folder: where it was loaded from or saved to.
    """

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    classes: tuple[str, ...]
    source: FeatureSource
    temperature: float = 1.0
    provenance: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    hash: str = ""

    @property
    def magnifications(self) -> tuple[float, ...] | None:
        """The magnification of every step, or None for bags of plain vectors."""
        found = [step.magnification for step in self.source.steps]
        return None if None in found else tuple(m for m in found if m is not None)

    def build_model(self, device: torch.device | str = "cpu") -> Model:
        """The model with its weights, in evaluation mode.

        Raises:
            ArtefactError: this version's model does not take these settings or weights.
        """
        from zoommil.models.creation import create_model

        try:
            model = create_model(**self.settings)
            model.load_state_dict(self.weights)
        except (ZoomMILError, RuntimeError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise ArtefactError(
                f"{self._name} does not fit this version's model {self.settings.get('name')!r}: "
                f"{first}. It was trained with zoommil {self.versions.get('zoommil', '?')}."
            ) from error
        return model.to(device).eval()

    def check_bag(self, bag: Bag) -> None:
        """Nothing, or an ArtefactError that says what about the bag differs."""
        differences = describe_differences(self.source, source_of(bag))
        if differences:
            raise ArtefactError(
                f"the bag of {bag.slide_id!r} does not fit {self._name}: {'; '.join(differences)}. "
                "Extract the slide with the artefact's own options."
            )

    def matching(self, bag: Bag) -> Bag:
        """The bag with the artefact's steps only, checked; it may hold more magnifications.

        Raises:
            ArtefactError: something about the bag differs.
        """
        wanted, stored = self.magnifications, bag.steps
        if wanted and stored and bag.num_steps > len(wanted):
            try:
                bag = bag.at_magnifications(wanted)
            except ZoomMILError as error:
                raise ArtefactError(f"{self._name}: {error}") from error
        self.check_bag(bag)
        return bag

    def save(self, folder: Path | str) -> Artefact:
        """Write the folder; returns the artefact as it would be loaded from there."""
        from safetensors.torch import save_file

        folder = Path(folder)
        with atomic_path(folder / WEIGHTS_FILE) as temporary:
            save_file({key: value.contiguous() for key, value in self.weights.items()}, temporary)
        write_json(folder / DESCRIPTION_FILE, self._description(folder))
        return load_artefact(folder)

    @classmethod
    def load(cls, folder: Path | str) -> Artefact:
        """The artefact in a folder. Raises ArtefactError as :func:`load_artefact`."""
        return load_artefact(folder)

    def _description(self, folder: Path) -> dict[str, Any]:
        is_standardised = bool(self.settings.get("standardise"))
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "model": self.settings,
            "classes": list(self.classes),
            "source": asdict(self.source),
            "standardisation": "in the weights" if is_standardised else None,
            "temperature": self.temperature,
            "weights": {"file": WEIGHTS_FILE, "sha256": file_hash(folder / WEIGHTS_FILE)},
            "provenance": self.provenance,
            "versions": self.versions,
            "metrics": self.metrics,
        }

    @property
    def _name(self) -> str:
        return f"the artefact {str(self.folder)!r}" if self.folder else "the artefact"


def load_artefact(folder: Path | str) -> Artefact:
    """The artefact in a folder.

    Raises:
        ArtefactError: it is no artefact, of another format version, or its weights were changed.
    """
    folder = Path(folder)
    description = _read_description(folder)
    path = folder / WEIGHTS_FILE
    expected = description["weights"]["sha256"]
    if not path.is_file() or file_hash(path) != expected:
        raise ArtefactError(
            f"{str(path)!r} is {'not the file' if path.is_file() else 'missing, the one'} that "
            f"artefact.json was written with (SHA-256 {expected[:12]}...). "
            "Copy the whole folder again, or train again."
        )
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return Artefact(
            settings=description["model"],
            weights=load_file(path),
            classes=tuple(description["classes"]),
            source=FeatureSource.from_json(description["source"]),
            temperature=float(description["temperature"]),
            provenance=description["provenance"],
            versions=description["versions"],
            metrics=description["metrics"],
            folder=folder,
            hash=hash_of(description),
        )
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ArtefactError(
            f"{str(folder)!r} is a damaged artefact ({type(error).__name__}: {error}). "
            "Copy the whole folder again, or train again."
        ) from error


def source_of(bag: Bag) -> FeatureSource:
    """Where a bag's features come from, as far as it says."""
    encoders = _encoders_of(bag)
    grid = bag.provenance.get("grid")
    steps = []
    for index, rows in enumerate(bag.features):
        if bag.steps is None:
            steps.append(SourceStep(rows.shape[1], encoder=encoders[index]))
            continue
        info = bag.steps[index]
        steps.append(
            SourceStep(
                rows.shape[1],
                info.magnification,
                mpp_of(info.magnification),
                info.patch_px,
                encoders[index] or ({"name": info.encoder} if info.encoder else None),
            )
        )
    if grid is not None and bag.steps is not None:
        grid = {**grid, "magnifications": [info.magnification for info in bag.steps]}
    reader = (bag.provenance.get("slide") or {}).get("reader")
    readers = (reader,) if reader else ()
    return FeatureSource(tuple(steps), bag.dtype, grid, bag.provenance.get("tissue"), readers)


def describe_differences(expected: FeatureSource, found: FeatureSource) -> list[str]:
    """What keeps features of two sources apart, in words; nothing when they belong together."""
    magnifications = [_magnifications(source) for source in (expected, found)]
    if magnifications[0] != magnifications[1]:
        return [f"steps: expected {magnifications[0]}, got {magnifications[1]}"]
    differences = []
    for index, (wanted, given) in enumerate(zip(expected.steps, found.steps, strict=True)):
        where = f"step {index}" if wanted.magnification is None else _label(wanted)
        differences += _encoder_differences(wanted.encoder, given.encoder, where)
        for name in ("feature_dim", "patch_px"):
            if getattr(wanted, name) != getattr(given, name):
                values = f"expected {getattr(wanted, name)}, got {getattr(given, name)}"
                differences.append(f"{name} at {where}: {values}")
    if expected.storage != found.storage:
        differences.append(f"precision: expected {expected.storage}, got {found.storage}")
    return differences + _dict_differences("grid", expected.grid, found.grid, _FREE_IN_GRID)


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION_FILE
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        inside = folder / "artefact"
        is_run = (inside / DESCRIPTION_FILE).is_file()
        raise ArtefactError(
            f"{str(folder)!r} is not an artefact: artefact.json cannot be read "
            f"({getattr(error, 'strerror', None) or error}). "
            f"Give {repr(str(inside)) if is_run else 'the folder'} that 'zoommil train' wrote."
        ) from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ArtefactError(f"{str(path)!r} is not the description of an artefact.")
    version = description.get("format_version")
    if version != FORMAT_VERSION:
        raise ArtefactError(
            f"{str(folder)!r} is an artefact of format {version!r}; this zoommil reads format "
            f"{FORMAT_VERSION}. Use the zoommil that wrote it "
            f"({description.get('versions', {}).get('zoommil', 'unknown')}), or train again."
        )
    return description


def _encoders_of(bag: Bag) -> list[dict[str, Any] | None]:
    """The encoder's identity per step of the bag, None where it does not say."""
    encoders = bag.provenance.get("encoders")
    if not encoders:
        return [None] * bag.num_steps
    chosen = bag.provenance.get("selected_steps", range(bag.num_steps))
    return [encoders[step if len(encoders) > 1 else 0] for step in chosen]


def _magnifications(source: FeatureSource) -> str:
    if any(step.magnification is None for step in source.steps):
        return f"{len(source.steps)} of unknown magnification"
    return ", ".join(_label(step) for step in source.steps)


def _label(step: SourceStep) -> str:
    assert step.magnification is not None
    return magnification_label(step.magnification)


def _encoder_differences(
    expected: dict[str, Any] | None, found: dict[str, Any] | None, where: str
) -> list[str]:
    if expected and found and expected.get("name") != found.get("name"):
        return [f"encoder at {where}: expected {expected.get('name')}, got {found.get('name')}"]
    free = set(_FREE_IN_ENCODER)
    if expected and found and expected.get("precision") != found.get("precision"):
        free.add("quantised")  # only one of them is: the precision says so
    return _dict_differences(f"encoder at {where}", expected, found, free)


def _dict_differences(
    name: str, expected: dict[str, Any] | None, found: dict[str, Any] | None, free: set[str]
) -> list[str]:
    if expected is None and found is None:
        return []
    if expected is None or found is None:
        known = "says it" if expected is None else "does not say it"
        return [f"{name}: only one side is known (the bag {known})"]
    keys = [key for key in dict.fromkeys([*expected, *found]) if key not in free]
    return [
        f"{name}, {key}: expected {expected.get(key)}, got {found.get(key)}"
        for key in keys
        if expected.get(key) != found.get(key)
    ]
