"""Row 2, synthetic: a spec and a seed go in; maps, places and swatches of one slide come out."""

from __future__ import annotations

import math
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from zoommil.synthetic.glands import (
    CROWDED_GLANDS,
    NORMAL_GLANDS,
    GlandSwatch,
    draw_glands,
    style_between,
)
from zoommil.synthetic.lesions import place_regions
from zoommil.synthetic.matching import match_low_magnification
from zoommil.synthetic.mixing import gland_densities, hinted_maps
from zoommil.synthetic.noise import open_noise, periodic_noise
from zoommil.synthetic.nuclei import KINDS, draw_nuclei
from zoommil.synthetic.scene import GlandLayer, SlidePlan, SlideScene
from zoommil.synthetic.spec import SlideSpec
from zoommil.synthetic.stains import colour_table, sample_stain
from zoommil.synthetic.textures import draw_fat, draw_lymphocytes, draw_stroma
from zoommil.synthetic.tissue_shapes import draw_tissue_maps
from zoommil.synthetic.vessels import draw_vessels

SWATCH_PX = (1024, 4096)  # smallest, largest; the smallest exceeds a block and what reaches into it
SWATCH_UM = (500.0, 1800.0)  # at least, at most about; glands and vessels find room in the smallest
NOISE_PX = 256  # the period of the scanner's noise: a tile, so that bare tiles are all alike

_ORIGINS = ("stroma", "turned stroma", "fat", "lymphocytes", "edge", "normal", "crowded", "vessels")


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


def draw_scene(spec: SlideSpec, seed: int, plan: SlidePlan, threads: int = 1) -> SlideScene:
    """Everything a renderer needs: the swatches at this slide's resolution, and its stain."""
    mpp, side_px = spec.mpp, _swatch_side(spec.mpp, max(spec.size_px))
    cells_px = min(side_px, max(512, round(1280 / mpp)))
    with ThreadPoolExecutor(threads) as pool:
        crowded = pool.submit(_draw_crowded, spec, seed, side_px)
        normal = pool.submit(_draw_normal, spec, seed, side_px)
        stroma = pool.submit(draw_stroma, side_px, mpp, stream_of(seed, "stroma"))
        cells = pool.submit(draw_lymphocytes, cells_px, mpp, stream_of(seed, "lymphocytes"))
        fat = pool.submit(draw_fat, side_px, mpp, stream_of(seed, "fat"))
        vessels = pool.submit(draw_vessels, side_px, mpp, stream_of(seed, "vessels"))
    origins = {name: _origin(seed, name, side_px) for name in _ORIGINS}
    swatches = {
        "normal": normal.result(),
        "crowded": crowded.result() or normal.result(),
        "vessels": vessels.result(),
    }
    if crowded.result() is None:
        origins["crowded"] = origins["normal"]
    return SlideScene(
        mpp=mpp,
        maps=hinted_maps(spec, plan),
        stroma=stroma.result(),
        fat=fat.result(),
        lymphocytes=cells.result(),
        glands=tuple(
            GlandLayer(density, swatches[name], kind, origins[name])
            for name, kind, density in gland_densities(spec, plan, _reactive(plan, seed))
            if density.any()
        ),
        edge_um=_edge_roughness(mpp, stream_of(seed, "edge")),
        noise=_scanner_noise(spec.noise, stream_of(seed, "noise")),
        table=colour_table(sample_stain(stream_of(seed, "stain"), spec.stain_variation)),
        origins=origins,
    )


def _swatch_side(mpp: float, slide_px: int) -> int:
    """About two millimetres, as a power of two; less where the slide itself is smaller."""
    least, most = (2 ** math.ceil(math.log2(um / mpp)) for um in SWATCH_UM)
    wanted = min(most, max(least, 2 ** math.ceil(math.log2(slide_px))))
    return min(SWATCH_PX[1], max(SWATCH_PX[0], wanted))


def _draw_normal(spec: SlideSpec, seed: int, side_px: int) -> GlandSwatch:
    """The glands of healthy tissue; without a hint, lesions are glands like these."""
    kinds = {"benign", "reactive"} if spec.hint else {"benign", "reactive", spec.nuclei}
    return _draw_glands(spec, seed, "normal", 0.0, kinds, side_px)


def _draw_crowded(spec: SlideSpec, seed: int, side_px: int) -> GlandSwatch | None:
    """The glands of foci and decoys."""
    if not spec.hint:
        return None
    kinds = {"benign", spec.nuclei}
    return _draw_glands(spec, seed, "crowded", spec.hint_strength, kinds, side_px)


def _draw_glands(
    spec: SlideSpec, seed: int, name: str, crowding: float, kinds: set[str], side_px: int
) -> GlandSwatch:
    style = style_between(NORMAL_GLANDS, CROWDED_GLANDS, crowding)
    nuclei = {
        kind: draw_nuclei(KINDS[kind], spec.mpp, stream_of(seed, "nuclei-" + kind))
        for kind in sorted(kinds)
    }
    swatch = draw_glands(style, nuclei, side_px, spec.mpp, stream_of(seed, "glands-" + name))
    return match_low_magnification(swatch, "benign", spec.mpp)


def _origin(seed: int, name: str, side_px: int) -> tuple[int, int]:
    x, y = stream_of(seed, "origin-" + name).integers(0, side_px, 2)
    return int(x), int(y)


def _reactive(plan: SlidePlan, seed: int) -> np.ndarray:
    """Where harmless glands have larger nuclei: variation that says nothing of the class."""
    height, width = plan.maps.depth_um.shape
    wavelength_px = 900.0 / plan.maps.um_per_px
    return open_noise(height, width, wavelength_px, stream_of(seed, "reactive")) > 0.6


def _edge_roughness(mpp: float, generator: np.random.Generator) -> np.ndarray:
    side_px = SWATCH_PX[0]
    rough = 5.0 * periodic_noise(side_px, 14.0 / mpp, generator)
    return (rough + 10.0 * periodic_noise(side_px, 50.0 / mpp, generator)).astype(np.float32)


def _scanner_noise(amount: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What to add and what to subtract."""
    values = np.round(generator.normal(0.0, amount, (NOISE_PX, NOISE_PX, 3)))
    return np.clip(values, 0, 255).astype(np.uint8), np.clip(-values, 0, 255).astype(np.uint8)
