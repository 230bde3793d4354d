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
    is_at_bound: bool


def fit_temperature(
    logits: Float[np.ndarray, "row klass"], labels: Int[np.ndarray, " row"]
) -> Calibration:
    """The temperature that minimises the cross-entropy of ``softmax(logits / temperature)``.

    The loss is convex in 1/temperature, so a bounded search in one dimension finds its minimum.
    Logits that separate validation perfectly have none: the answer is then the lower bound, 0.05,
    and says so.

    Raises:
        TrainingError: there are no rows, or the logits are not finite.
    """
    if len(labels) == 0 or not np.isfinite(logits).all():
        raise TrainingError(
            f"cannot calibrate on {len(labels)} validation slides with "
            f"{'finite' if np.isfinite(logits).all() else 'NaN or infinite'} logits; "
            "give at least one slide with finite logits, or set evaluation.calibrate = false."
        )
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return cross_entropy(logits, labels, float(np.exp(log_temperature)))

    low, high = np.log(BOUNDS)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    before = cross_entropy(logits, labels)
    temperature = float(np.exp(found.x)) if found.fun < before else 1.0
    is_at_bound = bool(min(found.x - low, high - found.x) < 1e-3)
    return Calibration(temperature, before, min(float(found.fun), before), is_at_bound)


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
