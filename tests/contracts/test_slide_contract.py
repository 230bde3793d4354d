"""What every slide reader must do, run over all registered ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tifffile

from zoommil import Slide, open_slide
from zoommil.errors import ResolutionError, SlideError
from zoommil.slides.opening import READERS

SIZE = (523, 411)
MPP = 0.25


FORMS = {
    "lossless": {"compression": "deflate", "photometric": "rgb"},
    "jpeg": {
        "compression": "jpeg",
        "compressionargs": {"level": 95},
        "photometric": "ycbcr",
        "subsampling": (1, 1),
    },
}
FORMS_OF = {"jpeg_tiles": ("jpeg",)}  # of readers that do not open all
PAIRS = [(reader, form) for reader in READERS.names() for form in FORMS_OF.get(reader, FORMS)]


def picture() -> np.ndarray:
    smooth = np.add.outer(np.arange(SIZE[1]), 2 * np.arange(SIZE[0]))[..., None] // (3, 5, 7)
    noise = np.random.default_rng(5).integers(0, 60, (SIZE[1], SIZE[0], 3))
    return (smooth % 190 + noise).astype(np.uint8)


@pytest.fixture(scope="module")
def slide_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same two levels of tiles in each form."""
    pixels = picture()
    height, width = (side // 4 * 4 for side in pixels.shape[:2])
    small = pixels[:height, :width].reshape(height // 4, 4, width // 4, 4, 3).mean((1, 3))
    paths = {form: tmp_path_factory.mktemp(form) / "0007.tif" for form in FORMS}
    for form, path in paths.items():
        with tifffile.TiffWriter(path) as writer:
            for index, level in enumerate((pixels, small.round().astype(np.uint8))):
                writer.write(
                    level,
                    tile=(128, 128),
                    subfiletype=int(index > 0),
                    resolution=(1e4 / MPP, 1e4 / MPP),
                    resolutionunit=3,
                    metadata=None,
                    **FORMS[form],
                )
    return paths


@pytest.fixture(params=PAIRS, ids="-".join)
def slide(request: pytest.FixtureRequest, slide_files: dict[str, Path]):
    reader, form = request.param
    with open_slide(slide_files[form], reader=reader) as opened:
        yield opened


@pytest.fixture
def truth(slide: Slide) -> np.ndarray:
    """The pixels as an independent decoder sees them."""
    return tifffile.imread(slide.path, key=0)


def test_it_says_what_it_is(slide: Slide, slide_files: dict[str, Path]):
    assert slide.reader in READERS.names()
    assert slide.path in slide_files.values()
    assert slide.slide_id == "0007"
    assert slide.size == SIZE
    assert slide.mpp == pytest.approx(MPP)
    assert slide.bounds == (0, 0, *SIZE)
    assert slide.scale == "physical"
    assert [level.downsample for level in slide.describe().levels] == [1, 4]
    assert all(isinstance(value, str) for value in slide.properties.values())


def test_native_pixels_are_the_pictures(slide: Slide, truth: np.ndarray):
    pixels = slide.read(37, 59, 300, 200, slide.mpp)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, truth[59:259, 37:337])


def test_width_goes_across_and_height_down(slide: Slide, truth: np.ndarray):
    assert slide.read(0, 0, 30, 20, slide.mpp).shape == (20, 30, 3)
    across, down = slide.read(100, 0, 1, 1, slide.mpp), slide.read(0, 100, 1, 1, slide.mpp)
    np.testing.assert_array_equal(across[0, 0], truth[0, 100])
    np.testing.assert_array_equal(down[0, 0], truth[100, 0])


def test_outside_is_white(slide: Slide, truth: np.ndarray):
    pixels = slide.read(-10, -20, 600, 500, slide.mpp)
    assert (pixels[:20] == 255).all()
    assert (pixels[:, :10] == 255).all()
    assert (pixels[20 + SIZE[1] :] == 255).all()
    assert (pixels[:, 10 + SIZE[0] :] == 255).all()
    np.testing.assert_array_equal(pixels[20 : 20 + SIZE[1], 10 : 10 + SIZE[0]], truth)


def test_low_resolutions_keep_the_mean(slide: Slide, truth: np.ndarray):
    mean = truth[:384, :512].mean()
    for factor in (1.3, 2, 3, 4, 6.5):
        size = (int(512 / factor), int(384 / factor))
        assert slide.read(0, 0, *size, slide.mpp * factor).mean() == pytest.approx(mean, abs=1.5)


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.0004, 1.1038, 2.0, 2.76, 4.0, 9.3])
def test_cut_from_a_larger_read_is_the_same(slide: Slide, factor: float):
    mpp = slide.mpp * factor
    downsample = slide.downsample_of(mpp)
    whole = slide.read(-31.7, 12.3, 100, 90, mpp)
    part = slide.read(-31.7 + 33 * downsample, 12.3 + 21 * downsample, 40, 50, mpp)
    np.testing.assert_array_equal(part, whole[21:71, 33:73])


def test_many_boxes_are_the_single_reads(slide: Slide):
    corners = np.random.default_rng(1).uniform(-40, 500, (11, 2))
    boxes = slide.read_boxes(corners, 20, 30, 0.7)
    singles = [slide.read(x, y, 20, 30, 0.7) for x, y in corners]
    np.testing.assert_array_equal(boxes, singles)


def test_threads_see_what_one_thread_sees(slide: Slide):
    corners = np.random.default_rng(2).uniform(0, 400, (60, 2))
    for mpp in (0.25, 0.5, 1.1):
        alone = [slide.read(x, y, 64, 64, mpp) for x, y in corners]
        with ThreadPoolExecutor(6) as pool:
            together = list(pool.map(lambda c, m=mpp: slide.read(c[0], c[1], 64, 64, m), corners))
        np.testing.assert_array_equal(together, alone)


def test_reads_are_counted(slide: Slide):
    before = slide.read_statistics()
    slide.read(0, 0, 128, 128, slide.mpp)
    slide.read(0, 0, 64, 64, slide.mpp * 4)
    spent = slide.read_statistics() - before
    assert spent.pixels_returned == 128**2 + 64**2
    assert {index: reads.pixels_read for index, reads in spent.levels.items()} == {
        0: 128**2,
        1: 64**2,
    }
    assert spent.pixels_decoded >= spent.pixels_read
    assert spent.bytes_read == 3 * spent.pixels_read


def test_the_fingerprint_is_the_files(slide: Slide):
    with open_slide(slide.path, reader="image") as other:
        assert other.fingerprint == slide.fingerprint


def test_finer_than_the_scan_is_refused(slide: Slide):
    assert slide.plan_of(slide.mpp * 0.95).is_finer_than_scan
    with pytest.raises(ResolutionError, match="finer"):
        slide.read(0, 0, 10, 10, slide.mpp / 2)


def test_closed_slides_say_so(slide: Slide):
    slide.close()
    with pytest.raises(SlideError, match="closed"):
        slide.read(0, 0, 10, 10, slide.mpp)


@pytest.mark.parametrize("reader", READERS.names())
def test_files_of_other_kinds_are_left_to_others(tmp_path: Path, reader: str):
    path = tmp_path / "notes.svs"
    path.write_text("not a slide at all")
    assert not READERS.load(reader).can_open(path)
    with pytest.raises(SlideError, match=r"notes\.svs"):
        open_slide(path, reader=reader, mpp=0.5)
