"""Row 16, the plain loop: extraction as it is usually written, to compare with.

OpenSlide at the right level, a DataLoader with workers, eager fp32 torch, batches of 32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 32
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class OpenSlidePatches(Dataset):
    """Patches of a slide read one by one with OpenSlide at one of its own levels."""

    def __init__(self, path: Path, corners: np.ndarray, level: int, patch_px: int) -> None:
        """Args: corners: level-0 top-left x, y of each patch; level: of the file."""
        self.path, self.corners = str(path), corners.astype(int).tolist()
        self.level, self.patch_px = level, patch_px
        self._slide = None  # opened in each worker: handles do not cross processes

    def __len__(self) -> int:
        return len(self.corners)

    def __getitem__(self, row: int) -> torch.Tensor:
        import openslide

        self._slide = self._slide or openslide.OpenSlide(self.path)
        size = (self.patch_px, self.patch_px)
        region = self._slide.read_region(tuple(self.corners[row]), self.level, size)
        pixels = torch.from_numpy(np.asarray(region.convert("RGB")).copy())
        return pixels.permute(2, 0, 1).float() / 255


def plain_features(
    path: Path,
    corners: np.ndarray,
    level: int,
    patch_px: int,
    network: torch.nn.Module,
    num_workers: int,
) -> torch.Tensor:
    """The features of every patch, in order."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_MEAN, _STD))
    patches = OpenSlidePatches(path, corners, level, patch_px)
    with torch.no_grad():
        batches = DataLoader(patches, BATCH_SIZE, num_workers=num_workers)
        return torch.cat([network((batch - mean) / std) for batch in batches])
