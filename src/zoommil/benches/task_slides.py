"""Row 16, the paper's tasks as slides: a task comes in, a synthetic slide with exactly its N_1 out.

A slide has the base magnification that the task's highest step needs, levels 1, 4, 16 below it, and
somewhat more tissue than N_1 patches. Tissue is searched as ever; only the least share of tissue of
a patch is set for the slide, between those of its N_1-th and its next fullest cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoommil.benches.paper_tasks import PATCH_PX, Task, Way
from zoommil.errors import ConfigError


@dataclass(frozen=True)
class TaskSlide:
    """How a task's slide is made: level-0 size at the task's highest magnification, and tissue."""

    size_px: tuple[int, int]
    tissue: float


SLIDES = {
    "BRIGHT": TaskSlide((26009, 18234), 0.42),  # the size of the slide that the paper shows
    "CRC": TaskSlide((20480, 18432), 0.5),
    "CAMELYON16": TaskSlide((40960, 32768), 0.42),
}


@dataclass(frozen=True)
class PreparedTask:
    """A task with its slide, and the least tissue of a patch that gives exactly N_1."""

    task: Task
    path: Path
    tissue_threshold: float

    def grid(self, way: Way) -> Any:
        """The grid that a way of looking cuts the slide with."""
        from zoommil.grid import GridSpec

        return GridSpec(
            magnifications=way.magnifications,
            patch_px=PATCH_PX,
            tissue_threshold=self.tissue_threshold,
        )


def prepare_task(task: Task, folder: Path, slide: TaskSlide | None = None) -> PreparedTask:
    """A task's slide, made unless it is there.

    Args:
        task: of the paper, or one like it.
        folder: where the slide is kept between runs.
        slide: how to make it; None: as :data:`SLIDES` says.
    """
    from zoommil.synthetic.slide import write_slide
    from zoommil.synthetic.spec import SlideSpec

    slide = slide or SLIDES[task.name]
    spec = SlideSpec(size_px=slide.size_px, magnification=task.highest, tissue=slide.tissue)
    path = folder / f"{task.name.lower()}-{slide.size_px[0]}.svs"
    write_slide(path, spec, seed=0)
    return PreparedTask(task, path, threshold_for(path, task.lowest, task.num_lowest))


def threshold_for(path: Path, magnification: float, num_patches: int) -> float:
    """The least tissue of a patch with which a slide has exactly so many patches.

    Raises:
        ConfigError: the slide has too few, or the next patch is as full.
    """
    from zoommil import PatchPyramid, TissueMask, find_tissue, open_slide
    from zoommil.grid import GridSpec

    with open_slide(path) as opened:
        everything = TissueMask.everything(opened)
        grid = GridSpec(magnifications=(magnification,), patch_px=PATCH_PX)
        boxes = PatchPyramid.build(opened, everything, grid).steps[0].boxes
        shares = np.sort(find_tissue(opened).fraction(boxes))[::-1]
    if len(shares) <= num_patches or shares[num_patches - 1] - shares[num_patches] < 1e-6:
        held = int((shares > 0).sum())
        raise ConfigError(
            f"{str(path)!r} cannot have exactly {num_patches} patches at {magnification:g}x "
            f"({held} have tissue). Make it larger, or with another share of tissue."
        )
    return float(shares[num_patches - 1 : num_patches + 1].mean())
