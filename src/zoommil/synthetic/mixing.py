"""Row 2, synthetic: a plan goes in; where each sort of gland lies, and the hint, come out.

This is where the task is made: what is seen of a focus at low magnification, what a decoy shares
with it, and what the control cohorts change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from zoommil.synthetic.lesions import region_mask
from zoommil.synthetic.scene import SlidePlan
from zoommil.synthetic.spec import SlideSpec
from zoommil.synthetic.tissue_shapes import TissueMaps, as_bytes

_VISIBLE_TINTS = ((0.4, 2.0), (2.8, 0.3))
"""Hematoxylin and eosin, times, in foci of the control whose class is plain at low magnification:
red in the middle class, blue in the last."""
_INSIDE = 0.45  # share of a focus above which a gland belongs to it


def hinted_maps(spec: SlideSpec, plan: SlidePlan) -> TissueMaps:
    """The maps with the hint of foci and decoys in tint and cells, and the control's marks."""
    focus, decoy = _masks(plan)
    maps = plan.maps
    hint = np.maximum(focus, decoy) * np.float32(spec.hint_strength if spec.hint else 0.0)
    hematoxylin = maps.hematoxylin_tint.astype(np.float32) / 255 * (1 + 0.06 * hint)
    eosin = maps.eosin_tint.astype(np.float32) / 255
    cells = maps.lymphocytes.astype(np.float32) / 255
    if spec.class_visible_low and spec.is_lesion:
        position = spec.classes.index(spec.label) / (len(spec.classes) - 1)
        share = np.clip(2 * position - 1, 0, 1)
        times = np.array(_VISIBLE_TINTS[0]) * (1 - share) + np.array(_VISIBLE_TINTS[1]) * share
        hematoxylin *= 1 + focus * np.float32(times[0] - 1)
        eosin *= 1 + focus * np.float32(times[1] - 1)
    return replace(
        maps,
        lymphocytes=as_bytes(np.maximum(cells * (1 - 0.5 * hint), 0.10 * hint)),
        hematoxylin_tint=as_bytes(hematoxylin),
        eosin_tint=as_bytes(eosin),
        fat=as_bytes(maps.fat.astype(np.float32) / 255 * (1 - np.minimum(1, 1.5 * hint))),
    )


def gland_densities(
    spec: SlideSpec, plan: SlidePlan, reactive: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Swatch, kind of nuclei, and density map of each layer of glands (vessels are one too)."""
    focus, decoy = _masks(plan)
    glands = plan.maps.glands.astype(np.float32)
    either = np.maximum(focus, decoy)
    if spec.hint:
        elsewhere = glands * np.clip(1 - 2.2 * either, 0, 1)
        in_focus = 245.0 * (focus > _INSIDE)
        in_decoy = 245.0 * np.where(decoy > 0.15, np.clip(decoy * 1.1, 0, 1), 0)
    else:
        elsewhere, in_focus = glands * (focus <= _INSIDE), glands * (focus > _INSIDE)
        in_decoy = np.zeros_like(glands)
    vessels = np.where(plan.maps.fat > 64, 60, 110) * (1 - glands / 255) * (either < 0.35)
    yield "vessels", "benign", _bytes(vessels)
    yield "normal", "benign", _bytes(elsewhere * ~reactive)
    yield "normal", "reactive", _bytes(elsewhere * reactive)
    yield "crowded", "benign", _bytes(in_decoy)
    yield "crowded", spec.nuclei, _bytes(in_focus)


def _masks(plan: SlidePlan) -> tuple[np.ndarray, np.ndarray]:
    """How much each coarse pixel belongs to foci and to decoys, 0..1."""
    focus = region_mask(plan.maps, tuple(r for r in plan.regions if r.is_focus))
    decoy = region_mask(plan.maps, tuple(r for r in plan.regions if not r.is_focus))
    return focus.astype(np.float32) / 255, decoy.astype(np.float32) / 255


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(values, 0, 255).astype(np.uint8)
