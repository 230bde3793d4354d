"""Row 9, models: a bag whose features are all known; each step's choice in, the next step out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zoommil.errors import ModelError
from zoommil.models.inputs import as_matrix, as_valid, check_ratios
from zoommil.models.model import StepOutput
from zoommil.models.topk import Selection


class FullBag:
    """The matrices and masks of all steps, narrowed step by step to what was zoomed into."""

    def __init__(self, matrices: list[Tensor], masks: list[Tensor | None]) -> None:
        self.matrices, self.masks = matrices, masks

    @classmethod
    def checked(
        cls,
        features: Sequence[Any],
        valid: Sequence[Any] | None,
        *,
        widths: Sequence[int],
        ratios: Sequence[int],
        like: Tensor,
    ) -> FullBag:
        """All steps on `like`'s device. Raises ModelError where they do not fit together."""
        matrices = [
            as_matrix(one, width, step, like)
            for step, (one, width) in enumerate(zip(features, widths, strict=True))
        ]
        check_ratios([len(matrix) for matrix in matrices], ratios)
        if valid is not None and len(valid) != len(matrices):
            raise ModelError(f"valid has {len(valid)} masks; expected one per step, or None.")
        given = valid if valid is not None else [None] * len(matrices)
        masks = [
            as_valid(one, len(matrix), step, matrix)
            for step, (one, matrix) in enumerate(zip(given, matrices, strict=True))
        ]
        return cls(matrices, masks)

    def zoom(self, step: int, output: StepOutput) -> None:
        """Narrow the steps from `step` on to what the one before has chosen."""
        if output.selection is None:
            # Rows of the bag itself, gathered when their turn comes: no copies of deeper steps.
            rows = output.state.rows
            mask = self.masks[step]
            self.matrices[step] = self.matrices[step][rows]
            self.masks[step] = None if mask is None else mask[rows]
            return
        for deeper in range(step, len(self.matrices)):
            self.matrices[deeper] = output.selection.apply(self.matrices[deeper])
            self.masks[deeper] = _mixed_mask(output.selection, self.masks[deeper])


def _mixed_mask(selection: Selection, mask: Tensor | None) -> Tensor | None:
    """A mixed row is valid if at least half its weight comes from valid patches."""
    if mask is None:
        return None
    with torch.no_grad():
        return selection.apply(mask.float()[:, None])[:, 0] >= 0.5
