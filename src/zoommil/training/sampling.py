"""Row 11, sampling: class labels come in, the order in which an epoch sees the bags goes out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class BagSampler:
    """The order of every epoch: a permutation, or draws with replacement balanced by class.

    All randomness comes from one generator of its own, whose state can be stored and set, so a
    resumed run continues the very sequence of the interrupted one.
    """

    def __init__(self, labels: list[int], *, is_weighted: bool, seed: int) -> None:
        """Args: labels: class index per bag; is_weighted: weight N / n_class, with replacement."""
        self._labels = labels
        self._weights = class_balanced_weights(labels) if is_weighted else None
        self._generator = torch.Generator().manual_seed(seed)

    def epoch(self) -> list[int]:
        """As many bag indices as there are bags."""
        if self._weights is None:
            order = torch.randperm(len(self._labels), generator=self._generator)
        else:
            order = torch.multinomial(
                self._weights, len(self._labels), replacement=True, generator=self._generator
            )
        return order.tolist()

    def state(self) -> Tensor:
        """The generator's state."""
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Continue from a stored state."""
        self._generator.set_state(state.cpu())


def class_balanced_weights(labels: list[int]) -> Float[Tensor, " bag"]:
    """For each bag N / n_class: every class is then drawn equally often on average."""
    counts = torch.bincount(torch.tensor(labels))
    return (len(labels) / counts.double())[torch.tensor(labels)]


def class_weights(labels: list[int], num_classes: int) -> Float[Tensor, " klass"]:
    """Loss weights N / (C n_class): their mean over the bags is one."""
    counts = torch.bincount(torch.tensor(labels), minlength=num_classes).clamp(min=1)
    return (len(labels) / (num_classes * counts.double())).float()
