"""Row 12, predictor: an artefact is loaded; a slide or a bag comes in, a Prediction goes out."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from zoommil.artefact import Artefact, load_artefact
from zoommil.bags.bag import Bag
from zoommil.encoding import Progress
from zoommil.errors import ConfigError, MissingExtraError, TissueError, UnknownNameError
from zoommil.files import file_hash
from zoommil.grid import PatchPyramid
from zoommil.inference.answering import Ledger, answer_of
from zoommil.inference.cost import HeadMacs, Stopwatch
from zoommil.inference.limits import Limits
from zoommil.inference.loading import (
    check_encoder,
    differences_of,
    grid_of,
    load_encoders,
    reader_differences,
    tissue_of,
)
from zoommil.inference.prediction import Prediction
from zoommil.inference.provenance import of_bag, of_slide
from zoommil.inference.sources import BagFeatures, FeatureSource, SlideFeatures
from zoommil.inference.zooming import Zoom, limited, wanted_k
from zoommil.slides.opening import open_slide
from zoommil.slides.slide import Slide
from zoommil.tissue import TissueMask, find_tissue, tissue_identity
from zoommil.units import mpp_of

if TYPE_CHECKING:
    from zoommil.encoders.encoder import Encoder

logger = logging.getLogger(__name__)

SlideLike = Slide | Path | str | UInt8[np.ndarray, "height width channel"]
MaskLike = TissueMask | Path | str | None


class Predictor:
    """A trained model, ready to look at slides.

    A model that zooms reads only what it chooses; a model of one magnification sees all of that
    one. Encoders are loaded when the first slide needs them. One prediction at a time.
    """

    def __init__(
        self,
        artefact: Artefact,
        *,
        device: str = "auto",
        encoders: Encoder | Sequence[Encoder] | None = None,
        weights: str | Sequence[str] | None = None,
        runtime: str = "auto",
        precision: str = "auto",
        reader: str = "auto",
    ) -> None:
        """Args as of :meth:`load`; encoders: one for all steps or one per step, if at hand."""
        from zoommil.training.loop import pick_device

        self.artefact = artefact
        self._place = pick_device(device)
        self.model = artefact.build_model(self._place)
        self._reader = reader
        self._options: dict[str, Any] = {
            "weights": weights,
            "runtime": runtime,
            "precision": precision,
            "device": device,
        }
        self._given = encoders
        self._is_warm = False
        self._known_macs: dict[Any, int | None] = {}

    @classmethod
    def load(
        cls,
        artefact: Artefact | Path | str,
        device: str = "auto",
        *,
        weights: str | Sequence[str] | None = None,
        runtime: str = "auto",
        precision: str = "auto",
        reader: str = "auto",
    ) -> Predictor:
        """The predictor of an artefact.

        Args:
            artefact: trained model, or its folder.
            device: of model and encoder: "cpu", "cuda", "cuda:N"; "auto": CUDA where there is one.
            weights: the encoder's, if not its own: a file or ``random:SEED``, one or one per step.
            runtime: of the encoder; "auto": that of training where installed.
            precision: of the encoder; "auto": that of training.
            reader: of slides; "auto": that of training where it opens them.

        Raises:
            ArtefactError: it is none, of another version, or its weights were changed.
        """
        if not isinstance(artefact, Artefact):
            artefact = load_artefact(artefact)
        return cls(
            artefact,
            device=device,
            weights=weights,
            runtime=runtime,
            precision=precision,
            reader=reader,
        )

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Which steps of the artefact's grid the model looks at."""
        return self.model.takes(len(self.artefact.source.steps))

    @cached_property
    def encoders(self) -> Mapping[int, Encoder]:
        """The encoder of each step the model looks at, loaded on first use."""
        if self._given is None:
            return load_encoders(self.artefact, self.steps, **self._options)
        given = self._given if isinstance(self._given, Sequence) else (self._given,)
        num_steps = len(self.artefact.source.steps)
        if len(given) not in (1, num_steps):
            raise ConfigError(
                f"{len(given)} encoders were given for {num_steps} magnifications; give one for "
                "all, or one for each."
            )
        found = {step: given[step if len(given) > 1 else 0] for step in self.steps}
        for step, encoder in found.items():
            check_encoder(self.artefact, step, encoder)
        return found

    def check_limits(self, limits: Limits | None) -> Limits:
        """The limits, if this model can be held to them. Raises as :meth:`predict`."""
        limits = limits or Limits()
        limited(self.model, limits)
        wanted_k(self.model, limits)
        return limits

    def warm_up(self) -> None:
        """Load and compile the encoders, so that the first slide is as quick as the others."""
        if self._is_warm:
            return
        patch_px = grid_of(self.artefact).patch_px
        blank = np.zeros((1, patch_px, patch_px, 3), np.uint8)
        for encoder in dict.fromkeys(self.encoders.values()):
            encoder.encode(blank)
        _ = self.head_macs
        self._is_warm = True

    @cached_property
    def head_macs(self) -> HeadMacs:
        """The model's operations per step, for any number of patches."""
        return HeadMacs(self.model)

    def predict(
        self,
        slide: SlideLike,
        mpp: float | None = None,
        mask: MaskLike = None,
        *,
        limits: Limits | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Prediction:
        """The answer for a slide, from its pixels.

        Args:
            slide: a file, an open slide, or pixels.
            mpp: microns per level-0 pixel, for slides that do not say.
            mask: a tissue mask to use instead of searching: a file, or one made before.
            limits: budgets and when to stop; None: as trained.
            batch_size: patches read and handed over at a time; changes nothing in the answer.
            progress: called with the number of patches done since the last call.

        Raises:
            SlideError: the slide cannot be opened, is too coarse or has no resolution, or a part
                that was zoomed into cannot be decoded.
            TissueError: no tissue, or a mask of another slide.
            BudgetError: a budget is below what the first step needs.
        """
        *_, answer = self.stream(
            slide, mpp, mask, limits=limits, batch_size=batch_size, progress=progress
        )
        return answer

    def stream(
        self,
        slide: SlideLike,
        mpp: float | None = None,
        mask: MaskLike = None,
        *,
        limits: Limits | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Prediction]:
        """The answer after each step; the last one is what :meth:`predict` gives."""
        limits = self.check_limits(limits)
        if limits.budget_seconds is not None:
            self.warm_up()  # what is done once is no part of a slide's seconds
        encoders, macs, _ = self.encoders, self._macs(), self.head_macs
        watch, grid = Stopwatch(), grid_of(self.artefact)
        with ExitStack() as stack:
            with watch.stage("open"):
                opened = slide if isinstance(slide, Slide) else self.open(slide, mpp)
                if opened is not slide:
                    stack.enter_context(opened)
                for magnification in grid.magnifications:
                    opened.downsample_of(mpp_of(magnification))  # too coarse is said at once
            before = opened.read_statistics()
            with watch.stage("mask"):
                found = self._tissue(opened, mask)
            mask_pixels = (opened.read_statistics() - before).pixels_read
            with watch.stage("grid"):
                pyramid = PatchPyramid.build(opened, found, grid)
            source = SlideFeatures(
                opened,
                found,
                pyramid,
                [encoders.get(step, next(iter(encoders.values()))) for step in _steps(pyramid)],
                dtype=self.artefact.source.storage,
                watch=watch,
                batch_size=batch_size,
                progress=progress,
            )
            ledger = Ledger.of_slide(opened, pyramid, macs, mask_pixels, before, watch)
            ledger.files["artefact"] = self._folder
            warnings = (*opened.warnings, *found.warnings, *pyramid.warnings)
            yield from self._answers(
                source,
                limits,
                ledger,
                slide_id=opened.slide_id,
                provenance=self.provenance(opened, limits, mask),
                warnings=(*warnings, *self._differences(opened)),
            )

    def predict_bag(self, bag: Bag, *, limits: Limits | None = None) -> Prediction:
        """The answer for stored features; ``cost`` is what reading and encoding them would take.

        Raises:
            ArtefactError: the bag's features do not belong to this artefact.
        """
        limits = self.check_limits(limits)
        if limits.budget_seconds is not None:
            raise ConfigError("budget_seconds bounds reading and encoding; a bag needs neither.")
        bag = self.artefact.matching(bag)
        watch = Stopwatch()
        ledger = Ledger.of_bag(bag, self._macs(), watch)
        ledger.files["artefact"] = self._folder
        *_, answer = self._answers(
            BagFeatures(bag),
            limits,
            ledger,
            slide_id=bag.slide_id,
            provenance=of_bag(bag, self.artefact, limits),
            warnings=(),
        )
        return answer

    def provenance(
        self, slide: Slide, limits: Limits | None = None, mask: MaskLike = None
    ) -> dict[str, Any]:
        """Everything a prediction of this slide follows from; its hash is the key for resuming."""
        if isinstance(mask, TissueMask):
            tissue = {"mask_fingerprint": mask.fingerprint}
        else:
            mask_hash = None if mask is None else _mask_hash(Path(mask))
            tissue = tissue_identity(tissue_of(self.artefact), mask_hash)
        return of_slide(slide, self.artefact, self.encoders, tissue, limits or Limits())

    def open(
        self,
        slide: Path | str | np.ndarray,
        mpp: float | None = None,
        *,
        like: Collection[str] | None = None,
    ) -> Slide:
        """The slide as it will be read. Raises SlideError as ``open_slide``.

        Args:
            slide: a file, or pixels.
            mpp: microns per level-0 pixel, for slides that do not say.
            like: readers to stay with where the reader is "auto"; None: those of training.
        """
        scale = grid_of(self.artefact).scale
        like = self.artefact.source.readers if like is None else like
        return open_slide(slide, mpp=mpp, scale=scale, reader=self._reader, like=like)

    def _tissue(self, slide: Slide, mask: MaskLike) -> TissueMask:
        found = find_tissue(slide, tissue_of(self.artefact), mask=mask)
        if found.is_empty:
            raise TissueError(
                f"{slide.name!r} has no tissue that could be found, so there is nothing to look "
                "at. Check the slide, or pass a mask of its tissue (--mask)."
            )
        return found

    def _answers(
        self,
        source: FeatureSource,
        limits: Limits,
        ledger: Ledger,
        *,
        slide_id: str,
        provenance: dict[str, Any],
        warnings: tuple[str, ...],
    ) -> Iterator[Prediction]:
        zoom = Zoom(
            self.model,
            source,
            limits,
            temperature=self.artefact.temperature,
            head=self.head_macs,
            encoder_macs=[ledger.macs.get(step) for step in range(len(source.counts))],
            watch=ledger.watch,
        )
        for _ in zoom.run():
            yield answer_of(
                zoom,
                source,
                self.artefact,
                ledger,
                slide_id=slide_id,
                provenance=provenance,
                warnings=warnings,
            )

    @property
    def _folder(self) -> str:
        return str(self.artefact.folder.resolve()) if self.artefact.folder else ""

    def _macs(self) -> dict[int, int | None]:
        """Multiply-accumulates of one patch for every step of the artefact; None: not known."""
        loaded = {one.name: one for one in self.__dict__.get("encoders", {}).values()}
        found: dict[int, int | None] = {}
        for step, source in enumerate(self.artefact.source.steps):
            name, patch_px = (source.encoder or {}).get("name"), source.patch_px
            if name and patch_px and (name, patch_px) not in self._known_macs:
                count = loaded[name].macs_per_patch if name in loaded else partial(_macs_of, name)
                self._known_macs[name, patch_px] = count(patch_px)
            found[step] = self._known_macs.get((name, patch_px))
        return found

    def _differences(self, slide: Slide) -> tuple[str, ...]:
        found = [differences_of(self.artefact, step, one) for step, one in self.encoders.items()]
        found.append(reader_differences(self.artefact, slide))
        return tuple(dict.fromkeys(text for texts in found for text in texts))


def _mask_hash(path: Path) -> str:
    if not path.is_file():
        raise TissueError(f"mask {str(path)!r} is not a file. Check the path.")
    return file_hash(path)


def _macs_of(name: str, patch_px: int) -> int | None:
    """The operations of an encoder that need not be loaded; None when nobody knows it here."""
    from zoommil.encoders.building import count_macs
    from zoommil.encoders.card import find_card

    try:
        return count_macs(find_card(name), patch_px)
    except (UnknownNameError, MissingExtraError):
        return None


def _steps(pyramid: PatchPyramid) -> range:
    return range(len(pyramid.steps))
