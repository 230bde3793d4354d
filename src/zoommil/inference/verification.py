"""Row 12, verification: a prediction comes in; it is computed again, and what differs goes out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoommil.errors import ArtefactError, PredictionError
from zoommil.inference.limits import Limits
from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.inference.predictor import MaskLike, Predictor

TOLERANCE = {"fp32": 1e-3}
OTHER_TOLERANCE = 0.05


@dataclass(frozen=True)
class Verification:
    """Whether a prediction could be confirmed.

    Attributes:
        slide_id: the slide's.
        is_confirmed: the same within the tolerance.
        is_exact: bit for bit the same.
        tolerance: of probabilities; 0 where the same bits are expected.
        conditions: what is different about this computation (reader, runtime, versions).
        differences: what came out differently.
    """

    slide_id: str
    is_confirmed: bool
    is_exact: bool
    tolerance: float
    conditions: tuple[str, ...]
    differences: tuple[str, ...]


def verify(
    prediction: Prediction,
    predictor: Predictor,
    slide: Path | str,
    *,
    mask: MaskLike = None,
) -> Verification:
    """The outcome of computing a prediction again.

    On the same kind of machine, with the same versions, reader, runtime and precision, the
    canonical JSON must be the same. Otherwise the label must be, and no probability may differ by
    more than the tolerance: 0.001 where both computed in fp32, else 0.05.

    Raises:
        PredictionError: it was made from a bag, or from another slide.
        ArtefactError: it was made by another artefact.
    """
    before = prediction.provenance
    if before.get("from") != "slide":
        raise PredictionError(
            f"the prediction of {prediction.slide_id!r} was made from stored features; only those "
            "made from a slide can be verified."
        )
    if before["artefact"] != predictor.artefact.hash:
        raise ArtefactError(
            f"the prediction of {prediction.slide_id!r} was made by artefact "
            f"{before['artefact'][:12]}..., this one is {predictor.artefact.hash[:12]}.... "
            "Pass the folder of that one (--artefact)."
        )
    limits = Limits(**before["limits"])
    if mask is None and any(
        name.startswith("mask_") and name != "mask_frame" for name in before["tissue"]
    ):
        raise PredictionError(
            f"the prediction of {prediction.slide_id!r} was made with a tissue mask of its own. "
            "Pass it (--mask)."
        )
    reader = before["slide"].get("reader", "")
    with predictor.open(slide, _given_mpp(before), like=(reader,)) as opened:
        if opened.fingerprint != before["slide"]["fingerprint"]:
            raise PredictionError(
                f"{opened.name!r} is not the slide of this prediction: its fingerprint is "
                f"{opened.fingerprint[:12]}..., expected {before['slide']['fingerprint'][:12]}.... "
                "Pass the file that was predicted (--slide)."
            )
        again = predictor.predict(opened, mask=mask, limits=replayed(prediction, limits))
    if limits.budget_seconds is not None:
        bound = replace(again.bound, by=prediction.bound.by)
        made_from = {**again.provenance, "limits": before["limits"]}
        again = replace(again, bound=bound, provenance=made_from, warnings=prediction.warnings)
    return compare(prediction, replace(again, slide_id=prediction.slide_id))


def replayed(prediction: Prediction, limits: Limits) -> Limits:
    """The limits to predict with again: what a budget of seconds chose is not chosen anew."""
    if limits.budget_seconds is None:
        return limits
    taken = prediction.bound.steps_taken
    changed: dict[str, Any] = {"budget_seconds": None, "max_steps": taken}
    if taken > 1:
        chosen = prediction.bound.k
        changed["k"] = chosen + (1,) * _num_zooms_missing(prediction)
    return limits.model_copy(update=changed)


def compare(prediction: Prediction, again: Prediction) -> Verification:
    """How two predictions of the same slide by the same artefact differ."""
    is_exact = prediction.to_json() == again.to_json()
    conditions = tuple(_conditions(prediction.provenance, again.provenance))
    tolerance = _tolerance(prediction, again) if conditions else 0.0
    differences = () if is_exact else tuple(_differences(prediction, again))
    is_confirmed = is_exact or bool(
        conditions
        and prediction.label == again.label
        and _largest_change(prediction, again) <= tolerance
    )
    return Verification(
        prediction.slide_id, is_confirmed, is_exact, tolerance, conditions, differences
    )


def _conditions(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is different about how two predictions were computed."""
    found = []
    for name in ("machine", "versions", "encoders", "tissue", "slide"):
        if before.get(name) != now.get(name):
            found += _changes(before.get(name), now.get(name), name)
    return found


def _changes(before: Any, now: Any, name: str) -> list[str]:
    from zoommil.extraction import differences

    return differences(before, now, name)


def _differences(before: Prediction, now: Prediction) -> list[str]:
    found = []
    if before.label != now.label:
        found.append(f"label: {before.label} -> {now.label}")
    if before.logits != now.logits:
        change = np.abs(np.subtract(before.logits, now.logits)).max()
        found.append(f"logits differ by up to {change:.3g}")
        found.append(f"probabilities differ by up to {_largest_change(before, now):.3g}")
    if len(before.steps) != len(now.steps):
        found.append(f"steps taken: {len(before.steps)} -> {len(now.steps)}")
    for one, other in zip(before.steps, now.steps, strict=False):
        found += _step_differences(one, other)
    if before.bound != now.bound:
        found.append(f"bound by: {before.bound.by} -> {now.bound.by}")
    if before.cost != now.cost:
        found.append(f"patches encoded: {before.cost.patches} -> {now.cost.patches}")
    return found or ["the same answer, but another spelling or other warnings"]


def _step_differences(before: PredictedStep, now: PredictedStep) -> list[str]:
    where = f"step {before.step}"
    if not np.array_equal(before.rows, now.rows):
        same = len(np.intersect1d(before.rows, now.rows))
        return [f"{where}: {len(before.rows) - same} of {len(before.rows)} patches are others"]
    found = []
    if not np.array_equal(before.attention, now.attention):
        change = np.abs(before.attention - now.attention).max()
        found.append(f"{where}: attention differs by up to {change:.3g}")
    if before.selected is not None and now.selected is not None:
        same = len(np.intersect1d(before.selected, now.selected))
        if same < len(before.selected):
            changed = len(before.selected) - same
            found.append(f"{where}: {changed} of {len(before.selected)} selected are others")
    return found


def _largest_change(before: Prediction, now: Prediction) -> float:
    first, second = (np.array(list(one.probabilities.values())) for one in (before, now))
    return float(np.abs(first - second).max())


def _tolerance(before: Prediction, now: Prediction) -> float:
    used = {
        encoder["precision"]
        for one in (before, now)
        for encoder in one.provenance.get("encoders") or ()
    }
    return TOLERANCE.get(used.pop(), OTHER_TOLERANCE) if len(used) == 1 else OTHER_TOLERANCE


def _given_mpp(provenance: dict[str, Any]) -> float | None:
    """The resolution that was given with the slide, if one was."""
    slide = provenance["slide"]
    return slide["mpp"] if slide["mpp_source"] == "given" else None


def _num_zooms_missing(prediction: Prediction) -> int:
    """How many of the model's zooms were not made."""
    all_steps = len(prediction.exhaustive_cost.all_steps.steps)
    return max(0, all_steps - 1 - len(prediction.bound.k))
