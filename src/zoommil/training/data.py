"""Row 11, data: bag files or bags at hand come in; checked, labelled bags go out, ready to learn.

Every bag is read once before the first epoch, checked against the first one, and kept in its
storage type when all of them fit into half of the free memory; otherwise its file is memory-mapped.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from zoommil.artefact import Artefact, describe_differences, source_of
from zoommil.bags.bag import Bag, find_steps
from zoommil.bags.store import open_features, read_bag, read_header
from zoommil.errors import BagError, TrainingError

if TYPE_CHECKING:
    from zoommil.models.model import Model

logger = logging.getLogger(__name__)

Bags = Path | str | Mapping[str, Bag] | Sequence[Bag]
Count = Callable[[int], None] | None
_SHARE_OF_MEMORY = 0.5


@dataclass(frozen=True)
class Example:
    """One slide to learn from or to be judged on."""

    slide_id: str
    case_id: str
    label: int


@dataclass(frozen=True)
class LoadedBag:
    """One bag as a model takes it; steps that the model does not look at are None."""

    example: Example
    features: tuple[Tensor | None, ...]
    coords: tuple[Tensor, ...] | None
    valid: tuple[Tensor, ...] | None

    def to(self, device: torch.device) -> LoadedBag:
        """The same bag on a device."""
        if device.type == "cpu":
            return self
        features, coords, valid = (
            None if part is None else tuple(None if t is None else t.to(device) for t in part)
            for part in (self.features, self.coords, self.valid)
        )
        return LoadedBag(self.example, features, coords, valid)  # type: ignore[arg-type]


class BagSource:
    """Bags by slide id: a folder of ``<slide_id>.h5`` files, a mapping, or a list of bags."""

    def __init__(self, bags: Bags, magnifications: Sequence[float] = ()) -> None:
        """Args: bags: where they are; magnifications: steps to use, empty for all."""
        self.folder = Path(bags) if isinstance(bags, str | Path) else None
        self.magnifications = tuple(magnifications)
        self._bags: dict[str, Bag] = {}
        if isinstance(bags, Mapping):
            self._bags = dict(bags)
        elif self.folder is None:
            self._bags = {bag.slide_id: bag for bag in bags}  # type: ignore[union-attr]
            if len(self._bags) != len(bags):  # type: ignore[arg-type]
                raise BagError(
                    f"{len(bags)} bags have {len(self._bags)} different slide ids; "  # type: ignore[arg-type]
                    "give every bag its own slide_id."
                )

    def path(self, slide_id: str) -> Path | None:
        """The bag's file, if bags are files."""
        return None if self.folder is None else self.folder / f"{slide_id}.h5"

    def missing(self, slide_ids: Sequence[str]) -> list[str]:
        """Those of the slides that have no bag."""
        if self.folder is None:
            return [name for name in slide_ids if name not in self._bags]
        return [name for name in slide_ids if not (self.folder / f"{name}.h5").is_file()]

    def bag(self, slide_id: str) -> Bag:
        """The bag of a slide, with the chosen magnifications. Raises BagError naming the slide."""
        path = self.path(slide_id)
        bag = read_bag(path) if path is not None else self._bags[slide_id]
        return bag.at_magnifications(self.magnifications) if self.magnifications else bag

    def map_features(self, slide_id: str, taken: Sequence[int]) -> dict[int, np.ndarray] | None:
        """The features of these steps of a bag file, memory-mapped; None for bags at hand."""
        path = self.path(slide_id)
        if path is None:
            return None
        header = read_header(path)
        stored = list(range(len(header.counts)))
        if self.magnifications:
            stored = find_steps(header.magnifications or (), self.magnifications)
        maps = {step: open_features(path, stored[step]) for step in taken}
        # Mapped once more as copy-on-write: torch takes writable arrays only, the file never is.
        return {step: _writable(rows) for step, rows in maps.items()}

    def num_bytes(self, slide_ids: Sequence[str]) -> int:
        """What keeping these bags would take beyond what is held already."""
        if self.folder is None:
            return 0
        return sum((self.folder / f"{name}.h5").stat().st_size for name in slide_ids)

    def fits_in_memory(self, slide_ids: Sequence[str], copies: int = 1) -> bool:
        """Whether so many copies of these bags take less than half of the free memory."""
        import psutil

        return (
            copies * self.num_bytes(slide_ids)
            < _SHARE_OF_MEMORY * psutil.virtual_memory().available
        )


class BagSet:
    """The bags of one split in a fixed order, checked; what epochs draw from."""

    def __init__(self, source: BagSource, examples: Sequence[Example]) -> None:
        """Args: source: where bags come from; examples: slides with their class indices."""
        self.examples = tuple(examples)
        self._source = source
        self.keys: dict[str, str] = {}  # what each bag was made from
        self.num_rows: dict[int, int] = {}  # patches of the first step, by index
        self.readers: set[str] = set()  # of the slides, as far as the bags say
        self._must_convert = False
        self._kept: dict[int, LoadedBag] = {}

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def labels(self) -> list[int]:
        """The class index of every bag."""
        return [example.label for example in self.examples]

    @property
    def depth(self) -> int:
        """How many bags to load ahead: none when all lie in memory as they are used."""
        return 2 if self._must_convert else 0

    def prepare(self, model: Model, reference: Bag, *, keep: bool, report: Count = None) -> None:
        """Read every bag once: check it against a reference bag, then keep it or map its file.

        Raises:
            BagError: a bag that is empty, not finite, or not of the reference's widths.
            TrainingError: a bag of another encoder, grid or precision; both are named.
        """
        for index, example in enumerate(self.examples):
            bag = self._source.bag(example.slide_id)
            check_content(bag, example.slide_id)
            check_kinship(bag, example.slide_id, reference)
            self._take(index, bag, model, keep=keep)
            if report is not None:
                report(index + 1)

    def prepare_for(self, artefact: Artefact, model: Model) -> None:
        """Check every bag against an artefact; bags of files are memory-mapped.

        Raises:
            ArtefactError: a bag of another encoder, grid or precision.
            BagError: a bag that is empty or not finite.
        """
        for index, example in enumerate(self.examples):
            bag = self._source.bag(example.slide_id)
            check_content(bag, example.slide_id)
            artefact.check_bag(bag)
            self._take(index, bag, model, keep=False)

    def _take(self, index: int, bag: Bag, model: Model, *, keep: bool) -> None:
        example, taken = self.examples[index], model.takes(bag.num_steps)
        maps = None if keep else self._source.map_features(example.slide_id, taken)
        self._kept[index] = as_loaded(bag, example, taken, maps)
        self._must_convert |= maps is not None or bag.dtype == "float16"
        self.num_rows[index] = len(bag.features[0])
        self.readers.update(source_of(bag).readers)
        self.keys[example.slide_id] = bag.key if bag.provenance else content_key(bag)

    def start_epoch(self, epoch: int) -> None:
        """Told before every epoch of training; stored bags are the same in all of them."""

    def load(self, index: int) -> LoadedBag:
        """The bag of this index in float32."""
        kept = self._kept[index]
        features = tuple(None if rows is None else rows.float() for rows in kept.features)
        return LoadedBag(kept.example, features, kept.coords, kept.valid)


def as_loaded(
    bag: Bag,
    example: Example,
    taken: Sequence[int],
    maps: Mapping[int, np.ndarray] | None = None,
) -> LoadedBag:
    """A bag as tensors in its storage type, for the steps a model takes.

    Args:
        maps: memory-mapped features by step, instead of the bag's own.
    """
    kind = np.float16 if bag.dtype == "float16" else np.float32
    features = tuple(
        None
        if step not in taken
        else _tensor(rows.astype(kind, copy=False) if maps is None else maps[step])
        for step, rows in enumerate(bag.features)
    )
    coords = None if bag.coords is None else tuple(_tensor(rows) for rows in bag.coords)
    valid = None if bag.valid is None else tuple(_tensor(rows) for rows in bag.valid)
    return LoadedBag(example, features, coords, valid)


def _writable(rows: np.memmap) -> np.ndarray:
    assert rows.filename is not None
    return np.memmap(rows.filename, rows.dtype, "c", rows.offset, rows.shape)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def content_key(bag: Bag) -> str:
    """The hash of a bag's numbers, for bags that do not say where they come from."""
    digest = hashlib.sha256()
    for rows in bag.features:
        digest.update(repr(rows.shape).encode())
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def check_content(bag: Bag, slide_id: str) -> None:
    """Nothing, or a BagError that says what keeps this bag from being learnt from."""
    for step, rows in enumerate(bag.features):
        if len(rows) == 0:
            raise BagError(
                f"the bag of {slide_id!r} is empty at step {step}; a bag needs at least one patch. "
                "Check the slide's tissue mask and extract it again, or drop the slide."
            )
        if not np.isfinite(rows).all():
            bad = int((~np.isfinite(rows)).any(axis=1).sum())
            raise BagError(
                f"the bag of {slide_id!r} holds NaN or infinity in {bad} of {len(rows)} rows of "
                f"step {step}; expected finite numbers. Extract this slide again."
            )


def check_kinship(bag: Bag, slide_id: str, reference: Bag) -> None:
    """Nothing, or the error that says why two bags do not belong together."""
    widths, expected = _widths(bag), _widths(reference)
    if widths != expected:
        raise BagError(
            f"the bag of {slide_id!r} has features of widths {widths}, that of "
            f"{reference.slide_id!r} {expected}; all bags must come from one encoder."
        )
    if bag.ratios != reference.ratios and bag.num_steps == reference.num_steps:
        raise BagError(
            f"the bag of {slide_id!r} zooms by {bag.ratios}, that of {reference.slide_id!r} by "
            f"{reference.ratios}; all bags must have one grid."
        )
    differences = describe_differences(source_of(reference), source_of(bag))
    if differences:
        raise TrainingError(
            f"the bags of {reference.slide_id!r} and {slide_id!r} do not belong together: "
            f"{'; '.join(differences)}. Extract all slides with one set of options."
        )


def _widths(bag: Bag) -> tuple[int, ...]:
    return tuple(rows.shape[1] for rows in bag.features)


def is_kept(memory: Literal["auto", "memory", "mapped"], source: BagSource, ids: Any) -> bool:
    """Whether bags are kept in memory."""
    keep = source.fits_in_memory(ids) if memory == "auto" else memory == "memory"
    logger.info("%d bags, %s", len(ids), "kept in memory" if keep else "memory-mapped")
    return keep
