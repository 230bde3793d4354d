"""Row 11, preparation: a run and a first bag come in; the model to train goes out, standardised."""

from __future__ import annotations

import logging

import numpy as np

from zoommil.bags.bag import Bag
from zoommil.errors import ConfigError, ModelError, TrainingError
from zoommil.models.creation import create_model
from zoommil.models.model import Model
from zoommil.training.data import BagSet
from zoommil.training.run import RunSpec

logger = logging.getLogger(__name__)


def new_model(run: RunSpec, reference: Bag, num_classes: int) -> Model:
    """The run's model for bags like this one.

    Raises:
        ConfigError: the model refuses its settings.
    """
    widths = {rows.shape[1] for rows in reference.features}
    dims = [rows.shape[1] for rows in reference.features]
    try:
        model = create_model(
            run.model.name,
            feature_dim=widths.pop() if len(widths) == 1 else dims,
            num_classes=num_classes,
            ratios=reference.ratios,
            seed=run.seed,
            **run.model.arguments,
        )
        model.takes(reference.num_steps)
    except ModelError as error:
        raise ConfigError(f"[model] of the run: {error}") from error
    except TypeError as error:
        raise ConfigError(f"[model] of the run has a value of the wrong type: {error}.") from error
    return model


def refuse_pointless_zoom(model: Model, bags: BagSet) -> None:
    """Nothing, or a TrainingError when K is larger than every training bag, so nothing is chosen.

    A bag smaller than K is taken whole; that is said once in the log.
    """
    ks = getattr(model, "k", None)
    if not ks:
        return
    counts = list(bags.num_rows.values())
    if ks[0] > max(counts):
        raise TrainingError(
            f"model.k is {ks[0]}, but the largest training bag has {max(counts)} patches at the "
            "lowest magnification, so everything would be zoomed into; set a smaller model.k."
        )
    small = sum(count <= ks[0] for count in counts)
    if small:
        logger.warning(
            "%d of %d training bags have no more than k = %d patches at the lowest magnification "
            "and are taken whole",
            small,
            len(counts),
            ks[0],
        )


def feature_statistics(model: Model, bags: BagSet) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Mean and standard deviation of every feature of the steps a model takes, over these bags."""
    sums: list[np.ndarray] = []
    squares: list[np.ndarray] = []
    counts: list[int] = []
    for index in range(len(bags)):
        bag = bags.load(index)
        for position, step in enumerate(model.takes(len(bag.features))):
            rows = bag.features[step]
            assert rows is not None
            values = rows.double()
            if bag.valid is not None:
                values = values[bag.valid[step]]
            if position == len(sums):
                sums.append(np.zeros(values.shape[1]))
                squares.append(np.zeros(values.shape[1]))
                counts.append(0)
            sums[position] += values.sum(0).numpy()
            squares[position] += (values**2).sum(0).numpy()
            counts[position] += len(values)
    means = [total / count for total, count in zip(sums, counts, strict=True)]
    variances = [
        np.maximum(square / count - mean**2, 0.0)
        for square, count, mean in zip(squares, counts, means, strict=True)
    ]
    return means, [np.sqrt(variance) for variance in variances]
