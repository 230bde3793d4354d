"""Row 11, metrics: labels and probabilities come in, every number of a results table goes out.

All functions take a matrix of weights with one row per resample, so that a bootstrap of a thousand
resamples is a few matrix products; the point estimate is the row of ones. What is undefined (the
AUROC of a class nobody has) is NaN here and becomes null with its reason in the reports.

Conventions, once: the predicted class is the most probable one, the lowest index on ties; F1 is one
class against the rest; ``weighted_f1`` weighs by true support; balanced accuracy averages recall
over the classes present; AUROC and AUPRC (average precision) average the one-against-rest values of
all classes, except that the AUPRC of two classes is the second one's; Brier sums the squared error
over all classes (0 to 2); ECE has 15 equal bins of the largest probability; kappa is quadratic in
the class index, hence only of use where the classes have an order.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

SCALARS = (
    "weighted_f1",
    "accuracy",
    "balanced_accuracy",
    "auroc",
    "auprc",
    "quadratic_kappa",
    "brier",
    "ece",
)
PER_CLASS = ("f1", "recall", "precision", "auroc", "auprc")
LOWER_IS_BETTER = frozenset({"loss", "brier", "ece"})
ECE_BINS = 15

Values = dict[str, np.ndarray]


def metric_values(
    labels: Int[np.ndarray, " row"],
    probabilities: Float[np.ndarray, "row klass"],
    weights: Float[np.ndarray, "resample row"] | None = None,
) -> Values:
    """Every metric for every resample: scalars (resample,), ``class_*`` (resample, class) and
    ``confusion`` (resample, class, class) with true classes as rows; NaN where undefined."""
    if weights is None:
        weights = np.ones((1, len(labels)))
    confusion = confusion_counts(labels, probabilities, weights)
    values = _from_confusion(confusion)
    values |= _from_ranking(labels, probabilities, weights)
    values["brier"] = _brier(labels, probabilities, weights)
    values["ece"] = _ece(labels, probabilities, weights)
    return values


def confusion_counts(
    labels: Int[np.ndarray, " row"],
    probabilities: Float[np.ndarray, "row klass"],
    weights: Float[np.ndarray, "resample row"],
) -> Float[np.ndarray, "resample klass klass"]:
    """Weighted counts of (true class, predicted class)."""
    num_classes = probabilities.shape[1]
    cells = labels * num_classes + probabilities.argmax(axis=1)
    one_hot = np.zeros((len(labels), num_classes**2))
    one_hot[np.arange(len(labels)), cells] = 1.0
    return (weights @ one_hot).reshape(-1, num_classes, num_classes)


def row_percent(
    confusion: Float[np.ndarray, "resample klass klass"],
) -> Float[np.ndarray, "resample klass klass"]:
    """Each row of a confusion matrix in percent of its true class; NaN for a class without rows."""
    return 100.0 * _divide(confusion, confusion.sum(axis=2, keepdims=True))


def _divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Top over bottom, NaN where the bottom is zero."""
    bottom = np.broadcast_to(bottom, top.shape)
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)


def _from_confusion(confusion: Float[np.ndarray, "resample klass klass"]) -> Values:
    support = confusion.sum(axis=2)
    predicted = confusion.sum(axis=1)
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    total = support.sum(axis=1)
    f1 = _divide(2.0 * hits, support + predicted)
    recall = _divide(hits, support)
    weighted = np.where(support > 0, support * np.nan_to_num(f1), 0.0).sum(axis=1)
    present = (support > 0).sum(axis=1)
    return {
        "confusion": confusion,
        "weighted_f1": _divide(weighted, total),
        "accuracy": _divide(hits.sum(axis=1), total),
        "balanced_accuracy": _divide(np.nan_to_num(recall).sum(axis=1), present),
        "quadratic_kappa": _quadratic_kappa(confusion),
        "class_f1": f1,
        "class_recall": recall,
        "class_precision": _divide(hits, predicted),
    }


def _quadratic_kappa(
    confusion: Float[np.ndarray, "resample klass klass"],
) -> Float[np.ndarray, " resample"]:
    index = np.arange(confusion.shape[1], dtype=float)
    penalty = (index[:, None] - index[None, :]) ** 2
    total = confusion.sum(axis=(1, 2))
    expected = np.einsum("ri,rj->rij", confusion.sum(axis=2), confusion.sum(axis=1))
    expected = _divide(expected, total[:, None, None])
    observed_penalty = (penalty * confusion).sum(axis=(1, 2))
    return 1.0 - _divide(observed_penalty, np.nan_to_num(penalty * expected).sum(axis=(1, 2)))


def _from_ranking(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> Values:
    areas = [
        ranking_areas(np.ascontiguousarray(probabilities[:, index]), labels == index, weights)
        for index in range(probabilities.shape[1])
    ]
    auroc = np.stack([area[0] for area in areas], axis=1)
    auprc = np.stack([area[1] for area in areas], axis=1)
    is_binary = probabilities.shape[1] == 2
    return {
        "class_auroc": auroc,
        "class_auprc": auprc,
        "auroc": auroc.mean(axis=1),
        "auprc": auprc[:, 1] if is_binary else auprc.mean(axis=1),
    }


def ranking_areas(
    scores: Float[np.ndarray, " row"],
    is_positive: Bool[np.ndarray, " row"],
    weights: Float[np.ndarray, "resample row"],
) -> tuple[Float[np.ndarray, " resample"], Float[np.ndarray, " resample"]]:
    """The areas under the ROC curve and of average precision, per resample; ties share a rank."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    positive = np.add.reduceat(weights[:, order] * is_positive[order], starts, axis=1)
    negative = np.add.reduceat(weights[:, order] * ~is_positive[order], starts, axis=1)
    hits, alarms = positive.cumsum(axis=1), negative.cumsum(axis=1)
    num_positive, num_negative = hits[:, -1], alarms[:, -1]
    below = num_negative[:, None] - alarms
    area = (positive * (below + 0.5 * negative)).sum(axis=1)
    precision = np.nan_to_num(_divide(hits, hits + alarms))
    return (
        _divide(area, num_positive * num_negative),
        _divide((positive * precision).sum(axis=1), num_positive),
    )


def _brier(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    truth = np.eye(probabilities.shape[1])[labels]
    error = ((probabilities - truth) ** 2).sum(axis=1)
    return _divide(weights @ error, weights.sum(axis=1))


def _ece(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * ECE_BINS).astype(int) - 1, 0, ECE_BINS - 1)
    gaps = np.zeros((len(labels), ECE_BINS))
    gaps[np.arange(len(labels)), bins] = is_right - confidence
    return _divide(np.abs(weights @ gaps).sum(axis=1), weights.sum(axis=1))
