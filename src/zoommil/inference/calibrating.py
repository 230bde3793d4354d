"""Row 12, calibrating: an artefact and slides come in; the int8 form of its encoders is stored."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoommil.artefact import Artefact
from zoommil.encoders.quantisation import QuantisedNetwork, check_installed, quantise
from zoommil.errors import ArtefactError
from zoommil.inference.loading import find_int8, grid_of, name_of, per_step, tissue_of
from zoommil.inference.predictor import Predictor
from zoommil.sampling import NUM_PATCHES, sample_patches

if TYPE_CHECKING:
    from zoommil.bags.cohort import SlideRow
    from zoommil.slides.slide import Slide

logger = logging.getLogger(__name__)


def prepare_int8(
    artefact: Artefact,
    rows: Sequence[SlideRow],
    *,
    weights: str | Sequence[str] | None = None,
    num_patches: int = NUM_PATCHES,
) -> tuple[QuantisedNetwork, ...]:
    """The int8 networks that were made now and stored with the artefact; none when all are there.

    Args:
        artefact: a stored one.
        rows: slides whose patches to calibrate on.
        weights: of the encoders, if not their own, as of ``Predictor.load``.
        num_patches: of all slides together, for each encoder.

    Raises:
        ArtefactError: it is not stored, or was trained on the int8 features of another network.
        MissingExtraError: OpenVINO or NNCF is not installed.
    """
    if artefact.folder is None:
        raise ArtefactError("int8 networks are stored with an artefact; save this one first.")
    predictor = Predictor(artefact, device="cpu")
    files = per_step(weights, len(artefact.source.steps))
    lacking: dict[tuple[str, str, str | None], list[int]] = {}
    for step in predictor.steps:
        if find_int8(artefact, step) is None:
            source = artefact.source.steps[step]
            known = str((source.encoder or {}).get("weights_hash", ""))
            lacking.setdefault((name_of(artefact, source), known, files[step]), []).append(step)
    if not lacking:
        return ()
    check_installed()

    def open_row(row: SlideRow) -> Slide:
        if row.path is None:
            raise ArtefactError(f"slide {row.slide_id!r} has no file")
        return predictor.open(row.path, row.mpp)

    made = []
    for (name, known, file), steps in lacking.items():
        sample = sample_patches(
            rows,
            grid_of(artefact),
            tissue_of(artefact),
            open_row,
            steps=steps,
            num_patches=num_patches,
        )
        logger.info("calibrating %s on %d patches", name, len(sample.pixels))
        made.append(
            quantise(
                name,
                sample.pixels,
                artefact.folder,
                weights=file,
                slides=sample.slides,
                weights_hash=known or None,
            )
        )
    return tuple(made)
