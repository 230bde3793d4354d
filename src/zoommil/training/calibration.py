"""Row 11, calibration: validation logits come in, one temperature goes out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from zoommil.errors import TrainingError

BOUNDS = (0.05, 20.0)


@dataclass(frozen=True)
class Calibration:
    """A temperature and what it did to the validation loss."""

    temperature: float
    loss_before: float
    loss_after: float
    is_separated: bool  # every slide was right: nothing to calibrate by


def fit_temperature(
    logits: Float[np.ndarray, "row klass"], labels: Int[np.ndarray, " row"]
) -> Calibration:
    """The temperature that minimises the cross-entropy of ``softmax(logits / temperature)``.

    The loss is convex in 1/temperature, so a bounded search in one dimension finds its minimum.
    Where every slide is classified right there is none (sharper is always better on these slides),
    nothing can be learnt about confidence, and the temperature stays 1.

    Raises:
        TrainingError: there are no rows, or the logits are not finite.
    """
    if len(labels) == 0 or not np.isfinite(logits).all():
        raise TrainingError(
            f"cannot calibrate on {len(labels)} validation slides with "
            f"{'finite' if np.isfinite(logits).all() else 'NaN or infinite'} logits; "
            "give at least one slide with finite logits, or set evaluation.calibrate = false."
        )
    before = cross_entropy(logits, labels)
    if (logits.argmax(axis=1) == labels).all():
        return Calibration(1.0, before, before, is_separated=True)
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return cross_entropy(logits, labels, float(np.exp(log_temperature)))

    bounds = tuple(np.log(BOUNDS))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    if found.fun >= before:
        return Calibration(1.0, before, before, is_separated=False)
    return Calibration(float(np.exp(found.x)), before, float(found.fun), is_separated=False)


def cross_entropy(
    logits: Float[np.ndarray, "row klass"],
    labels: Int[np.ndarray, " row"],
    temperature: float = 1.0,
) -> float:
    """The mean negative log-likelihood of the true classes, in float64."""
    scaled = logits.astype(np.float64) / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    totals = np.log(np.exp(scaled).sum(axis=1))
    return float((totals - scaled[np.arange(len(labels)), labels]).mean())
