"""Row 16, bench readers: the fast reader against OpenSlide: speed, pixels, features, selections."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoommil.benches.results import BenchResult, Table

if TYPE_CHECKING:
    from zoommil.bags.bag import Bag
    from zoommil.encoders.encoder import Encoder

READERS = ("openslide", "jpeg_tiles")
PATCH_PX = 256
BASE_MAGNIFICATION = 10.0
STEPS, STEP_PX, K = (1.25, 5.0, 10.0), 128, 8  # a 10x slide with levels 1, 4, 16: two lie between
LITE0, RANDOM = "efficientnet_lite0", ("resnet50", "random:0")
_CACHE_BYTES = 1 << 20  # a few tiles: what is measured is decoding
_WHERE = ("native, aligned", "native, random", "2x between levels")


@dataclass(frozen=True)
class Speed:
    """Patches of 256 px per second by each reader; medians of interleaved rounds."""

    where: str
    threads: int
    openslide: float
    jpeg_tiles: float

    @property
    def ratio(self) -> float:
        """How many times quicker the fast reader is."""
        return self.jpeg_tiles / self.openslide


@dataclass(frozen=True)
class PixelChange:
    """How pixels of the two readers differ at one downsample, in gray levels of 255."""

    downsample: float
    mean: float
    largest: int


@dataclass(frozen=True)
class FeatureChange:
    """How features of the two readers differ at one step.

    ``of_spread`` is the mean distance between a patch's two features over that between different
    patches' features: cosines of unrelated patches are high already.
    """

    magnification: float
    num_patches: int
    mean_cosine: float
    lowest_cosine: float
    of_spread: float


def bench_readers(
    folder: Path,
    *,
    side_px: int = 8192,
    num_patches: int = 384,
    rounds: int = 3,
    seeds: Sequence[int] = range(20),
    encoder: Encoder | None = None,
) -> BenchResult:
    """Everything about the two readers on one synthetic slide, in one run.

    Args:
        folder: where the slide is kept between runs.
        side_px: its width and height.
        num_patches: patches of one measurement of speed.
        rounds: how often each is measured.
        seeds: of the untrained models whose selections are compared.
        encoder: of the features; None: EfficientNet-Lite0, else ResNet-50 with random weights.
    """
    from zoommil.synthetic.slide import SlideSpec, write_slide

    path = folder / f"bench-readers-{side_px}.svs"
    spec = SlideSpec(size_px=(side_px, side_px), magnification=BASE_MAGNIFICATION)
    write_slide(path, spec, seed=0)
    speeds = measure_speeds(path, side_px, num_patches, rounds)
    pixels = compare_pixels(path)
    encoder = encoder or _encoder()
    slow, fast = (_bag(path, reader, encoder) for reader in READERS)
    features = compare_features(slow, fast)
    changed, selected = compare_selections(slow, fast, seeds)
    data = {
        "speeds": [asdict(speed) | {"ratio": speed.ratio} for speed in speeds],
        "pixels": [asdict(change) for change in pixels],
        "features": [asdict(change) for change in features],
        "selections": {"changed": changed, "selected": selected, "models": len(seeds)},
        "encoder": encoder.identity(),
    }
    return BenchResult(
        name="readers",
        title="Reading slides of JPEG tiles: the fast reader against OpenSlide",
        command="zoommil bench readers",
        tables=[_speed_table(speeds), _pixel_table(pixels), _feature_table(features, encoder)],
        notes=[
            f"Synthetic slide, {side_px} x {side_px} px at {BASE_MAGNIFICATION:g}x, levels 1, 4, "
            "16, 256-px tiles of JPEG 4:2:0; page cache warm, next to no tile cache; medians of "
            f"{rounds} interleaved rounds of {num_patches} patches.",
            f"{changed} of {selected} selections of {len(seeds)} untrained two-zoom models "
            f"(k = {K}) are other patches when the slide is read by the other reader.",
        ],
        data=data,
    )


def measure_speeds(path: Path, side_px: int, num_patches: int, rounds: int) -> list[Speed]:
    """Patches per second of each reader, on one thread and on two."""
    found = []
    for where in _WHERE:
        corners, downsample = _boxes(where, side_px, num_patches)
        for threads in (1, 2):
            rates: dict[str, list[float]] = {reader: [] for reader in READERS}
            for _ in range(rounds):
                for reader in READERS:
                    rates[reader].append(_rate(path, reader, corners, downsample, threads))
            medians = {reader: statistics.median(values) for reader, values in rates.items()}
            found.append(Speed(where, threads, **medians))
    return found


def compare_pixels(path: Path) -> list[PixelChange]:
    """The differences over the whole slide, at stored levels and between them."""
    from zoommil import open_slide

    found = []
    with (
        open_slide(path, reader=READERS[0]) as slow,
        open_slide(path, reader=READERS[1]) as fast,
    ):
        for downsample in (1.0, 2.0, 2.76, 4.0, 8.0, 16.0, 32.0):
            size = [min(4096, int(side / downsample)) for side in slow.size]
            read = [slide.read(0, 0, *size, slow.mpp * downsample) for slide in (slow, fast)]
            change = np.abs(read[0].astype(np.int16) - read[1])
            found.append(PixelChange(downsample, float(change.mean()), int(change.max())))
    return found


def compare_features(slow: Bag, fast: Bag) -> list[FeatureChange]:
    """The differences of the features of two bags of one slide, step by step."""
    found = []
    for magnification, one, other in zip(STEPS, slow.features, fast.features, strict=True):
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        cosines = (one * other).sum(1) / lengths
        apart = np.linalg.norm(one - other, axis=1).mean()
        spread = np.linalg.norm(one - np.roll(one, len(one) // 2, axis=0), axis=1).mean()
        found.append(
            FeatureChange(
                magnification,
                len(one),
                float(cosines.mean()),
                float(cosines.min()),
                float(apart / spread),
            )
        )
    return found


def compare_selections(slow: Bag, fast: Bag, seeds: Sequence[int]) -> tuple[int, int]:
    """How many selections of untrained models change between two bags, of how many."""
    import torch

    from zoommil.models.creation import create_model

    num_changed = num_selected = 0
    for seed in seeds:
        torch.manual_seed(seed)
        model = create_model(
            "zoommil",
            feature_dim=slow.features[0].shape[1],
            num_classes=3,
            ratios=slow.ratios,
            k=K,
        ).eval()
        with torch.inference_mode():
            outputs = [
                model([torch.from_numpy(np.array(rows)) for rows in bag.features])
                for bag in (slow, fast)
            ]
        for one, other in zip(outputs[0].selected, outputs[1].selected, strict=True):
            num_selected += len(one)
            num_changed += len(np.setdiff1d(one.numpy(), other.numpy()))
    return num_changed, num_selected


def _boxes(where: str, side_px: int, num_patches: int) -> tuple[np.ndarray, float]:
    """Corners in level-0 pixels, all different where there is room, and the downsample."""
    rng = np.random.default_rng(0)
    downsample = 2.0 if where == _WHERE[2] else 1.0
    cell = int(PATCH_PX * downsample)
    if where == _WHERE[1]:
        return rng.uniform(0, side_px - cell, (num_patches, 2)), downsample
    across = side_px // cell
    cells = rng.permutation(across**2)[:num_patches]
    corners = np.stack([cells % across, cells // across], axis=1) * float(cell)
    if downsample > 1:  # where a grid lies on the tiles is chance
        corners = np.minimum(corners + rng.uniform(0, cell, corners.shape), side_px - cell)
    return corners, downsample


def _rate(path: Path, reader: str, corners: np.ndarray, downsample: float, threads: int) -> float:
    """Patches per second of one pass over the boxes."""
    from zoommil import open_slide

    with (
        open_slide(path, reader=reader, cache_bytes=_CACHE_BYTES) as slide,
        ThreadPoolExecutor(threads) as pool,
    ):
        mpp = slide.mpp * downsample

        def read(part: np.ndarray) -> None:
            for x, y in part:
                slide.read(float(x), float(y), PATCH_PX, PATCH_PX, mpp)

        list(pool.map(read, np.array_split(corners[:16], threads)))  # imports, file in memory
        start = time.perf_counter()
        list(pool.map(read, np.array_split(corners, threads)))
        return len(corners) / (time.perf_counter() - start)


def _bag(path: Path, reader: str, encoder: Encoder) -> Bag:
    """The bag of the slide, as extraction makes it, with one reader."""
    from zoommil import find_tissue, open_slide
    from zoommil.extraction import extract
    from zoommil.grid import GridSpec, PatchPyramid

    grid = GridSpec(magnifications=STEPS, patch_px=STEP_PX)
    with open_slide(path, reader=READERS[0]) as slide:
        pyramid = PatchPyramid.build(slide, find_tissue(slide), grid)  # one grid for both
    with open_slide(path, reader=reader) as slide:
        return extract(slide, pyramid, encoder, dtype="float32")


def _encoder() -> Encoder:
    from zoommil.encoders.loading import load_encoder
    from zoommil.errors import MissingExtraError

    load: Callable[..., Encoder] = partial(load_encoder, runtime="torch", precision="fp32")
    try:
        return load(LITE0)
    except MissingExtraError:
        return load(RANDOM[0], weights=RANDOM[1])


def _speed_table(speeds: Sequence[Speed]) -> Table:
    rows = [
        [
            speed.where,
            str(speed.threads),
            f"{speed.openslide:.0f}",
            f"{speed.jpeg_tiles:.0f}",
            f"{speed.ratio:.1f}x",
        ]
        for speed in speeds
    ]
    title = f"Patches of {PATCH_PX} px per second"
    return Table(title, ["where", "threads", *READERS, "ratio"], rows)


def _pixel_table(changes: Sequence[PixelChange]) -> Table:
    rows = [[f"{one.downsample:g}", f"{one.mean:.3f}", str(one.largest)] for one in changes]
    return Table("Difference of pixels, gray levels of 255", ["downsample", "mean", "most"], rows)


def _feature_table(changes: Sequence[FeatureChange], encoder: Any) -> Table:
    rows = [
        [
            f"{one.magnification:g}x",
            str(one.num_patches),
            f"{one.mean_cosine:.6f}",
            f"{one.lowest_cosine:.6f}",
            f"{one.of_spread:.2%}",
        ]
        for one in changes
    ]
    headers = ["magnification", "patches", "mean cosine", "lowest", "of the spread"]
    return Table(f"Difference of features ({encoder.name}, fp32)", headers, rows)
