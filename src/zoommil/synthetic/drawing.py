"""Row 2, synthetic: a spec and a seed go in; maps, places and swatches of one slide come out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from zoommil.synthetic.glands import (
    CROWDED_GLANDS,
    NORMAL_GLANDS,
    GlandSwatch,
    draw_glands,
    style_between,
)
from zoommil.synthetic.lesions import Region, place_regions, region_mask
from zoommil.synthetic.matching import match_low_magnification
from zoommil.synthetic.noise import open_noise, periodic_noise
from zoommil.synthetic.nuclei import KINDS, draw_nuclei
from zoommil.synthetic.rendering import NOISE_PX, GlandLayer, SlideScene
from zoommil.synthetic.spec import SlideSpec
from zoommil.synthetic.stains import colour_table, sample_stain
from zoommil.synthetic.textures import draw_fat, draw_lymphocytes, draw_stroma
from zoommil.synthetic.tissue_shapes import TissueMaps, as_bytes, draw_tissue_maps
from zoommil.synthetic.vessels import draw_vessels


@dataclass(frozen=True)
class SlidePlan:
    """Where everything lies on a slide; the same for every label."""

    maps: TissueMaps
    regions: tuple[Region, ...]


def stream_of(seed: int, name: str) -> np.random.Generator:
    """The generator of one named part of a slide, independent of all other parts."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def draw_plan(spec: SlideSpec, seed: int) -> SlidePlan:
    """The tissue and the places of foci and decoys. Does not look at the label."""
    maps = draw_tissue_maps(
        spec.size_px[0] * spec.mpp,
        spec.size_px[1] * spec.mpp,
        tissue=spec.tissue,
        glands=spec.glands,
        fat=spec.fat,
        lymphocytes=spec.lymphocytes,
        generator=stream_of(seed, "tissue"),
    )
    generator = stream_of(seed, "regions")
    regions = place_regions(
        maps,
        num_foci=int(generator.integers(spec.num_foci[0], spec.num_foci[1] + 1)),
        num_decoys=int(generator.integers(spec.num_decoys[0], spec.num_decoys[1] + 1)),
        size_mm=spec.focus_mm,
        generator=generator,
    )
    return SlidePlan(maps, regions)


def draw_scene(spec: SlideSpec, seed: int, plan: SlidePlan) -> SlideScene:
    """Everything a renderer needs: the swatches at this slide's resolution, and its stain."""
    side_px = _swatch_side(spec.mpp)
    focus = region_mask(plan.maps, tuple(r for r in plan.regions if r.is_focus))
    decoy = region_mask(plan.maps, tuple(r for r in plan.regions if not r.is_focus))
    maps = _hinted_maps(spec, plan.maps, focus, decoy)
    origins = stream_of(seed, "origins").integers(0, side_px, (8, 2))
    cells_px = side_px if spec.mpp < 0.75 else 1280
    return SlideScene(
        mpp=spec.mpp,
        maps=maps,
        stroma=draw_stroma(side_px, spec.mpp, stream_of(seed, "stroma")),
        fat=draw_fat(side_px, spec.mpp, stream_of(seed, "fat")),
        lymphocytes=draw_lymphocytes(cells_px, spec.mpp, stream_of(seed, "lymphocytes")),
        glands=_gland_layers(spec, seed, plan.maps, focus, decoy, side_px, origins),
        edge_um=_edge_roughness(spec.mpp, stream_of(seed, "edge")),
        noise=_scanner_noise(spec.noise, stream_of(seed, "noise")),
        table=colour_table(sample_stain(stream_of(seed, "stain"), spec.stain_variation)),
        origins=tuple((int(x), int(y)) for x, y in origins),
    )


def _swatch_side(mpp: float) -> int:
    """About two millimetres, a power of two, at most 4096 pixels."""
    return int(min(4096, max(512, 2 ** np.ceil(np.log2(1800.0 / mpp)))))


def _hinted_maps(
    spec: SlideSpec, maps: TissueMaps, focus: np.ndarray, decoy: np.ndarray
) -> TissueMaps:
    """The maps with the hint of the regions in their tint and cells, and the controls' marks."""
    from dataclasses import replace

    hint = np.maximum(focus, decoy).astype(np.float32) / 255 * spec.hint_strength
    if not spec.hint:
        hint = hint * 0
    hematoxylin = maps.hematoxylin_tint.astype(np.float32) / 255 * (1 + 0.06 * hint)
    eosin = maps.eosin_tint.astype(np.float32) / 255
    cells = maps.lymphocytes.astype(np.float32) / 255
    cells = np.maximum(cells * (1 - 0.5 * hint), 0.10 * hint)
    if spec.class_visible_low and spec.is_lesion:
        share = focus.astype(np.float32) / 255
        position = spec.classes.index(spec.label) / (len(spec.classes) - 1)
        hematoxylin *= 1 + share * (0.45 * position)
        eosin *= 1 + share * (0.45 * (1 - position))
    return replace(
        maps,
        lymphocytes=as_bytes(cells),
        hematoxylin_tint=as_bytes(hematoxylin),
        eosin_tint=as_bytes(eosin),
        fat=as_bytes(maps.fat.astype(np.float32) / 255 * (1 - np.minimum(1, 1.5 * hint))),
    )


def _gland_layers(
    spec: SlideSpec,
    seed: int,
    maps: TissueMaps,
    focus: np.ndarray,
    decoy: np.ndarray,
    side_px: int,
    origins: np.ndarray,
) -> tuple[GlandLayer, ...]:
    normal = _draw_style(spec, seed, "normal", side_px)
    glands = maps.glands.astype(np.float32)
    in_focus, in_decoy = focus.astype(np.float32) / 255, decoy.astype(np.float32) / 255
    if spec.hint:
        crowded = _draw_style(spec, seed, "crowded", side_px)
        elsewhere = glands * np.clip(1 - 2.2 * np.maximum(in_focus, in_decoy), 0, 1)
        fill = 245.0
        focus_density = fill * np.where(in_focus > 0.45, 1, 0)
        decoy_density = fill * np.where(in_decoy > 0.15, np.clip(in_decoy * 1.1, 0, 1), 0)
    else:
        crowded = normal
        elsewhere = glands * (in_focus < 0.45)
        focus_density = glands * (in_focus >= 0.45)
        decoy_density = np.zeros_like(glands)
    reactive = _reactive_patches(maps, stream_of(seed, "reactive"))
    vessels = draw_vessels(side_px, spec.mpp, stream_of(seed, "vessels"))
    sparse = np.where(maps.fat > 64, 60, 110) * (1 - glands / 255) * (np.maximum(focus, decoy) < 90)
    home, other = _pair(origins[4]), _pair(origins[5 if spec.hint else 4])
    layers = [
        GlandLayer(_bytes(sparse), vessels, "benign", _pair(origins[7])),
        GlandLayer(_bytes(elsewhere * ~reactive), normal, "benign", home),
        GlandLayer(_bytes(elsewhere * reactive), normal, "reactive", home),
        GlandLayer(_bytes(decoy_density), crowded, "benign", other),
        GlandLayer(_bytes(focus_density), crowded, spec.nuclei, other),
    ]
    return tuple(layer for layer in layers if layer.density.any())


def _reactive_patches(maps: TissueMaps, generator: np.random.Generator) -> np.ndarray:
    """Where harmless glands have larger nuclei: variation that says nothing of the class."""
    noise = open_noise(*maps.depth_um.shape, 900.0 / maps.um_per_px, generator)
    return noise > 0.6


def _draw_style(spec: SlideSpec, seed: int, name: str, side_px: int) -> GlandSwatch:
    share = {"normal": 0.0, "crowded": spec.hint_strength}[name]
    style = style_between(NORMAL_GLANDS, CROWDED_GLANDS, share)
    kinds = ["benign", "reactive"] if name == "normal" else ["benign"]
    if spec.is_lesion and (name == "crowded" or not spec.hint):
        kinds.append(spec.nuclei)
    nuclei = {k: draw_nuclei(KINDS[k], spec.mpp, stream_of(seed, "nuclei-" + k)) for k in kinds}
    swatch = draw_glands(style, nuclei, side_px, spec.mpp, stream_of(seed, "glands-" + name))
    return match_low_magnification(swatch, "benign", spec.mpp)


def _edge_roughness(mpp: float, generator: np.random.Generator) -> np.ndarray:
    side_px = 1024
    rough = 5.0 * periodic_noise(side_px, 14.0 / mpp, generator)
    return (rough + 10.0 * periodic_noise(side_px, 50.0 / mpp, generator)).astype(np.float32)


def _scanner_noise(amount: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    values = np.round(generator.normal(0.0, amount, (NOISE_PX, NOISE_PX, 3)))
    return (np.clip(values, 0, 255).astype(np.uint8), np.clip(-values, 0, 255).astype(np.uint8))


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(values, 0, 255).astype(np.uint8)


def _pair(values: np.ndarray) -> tuple[int, int]:
    return int(values[0]), int(values[1])
