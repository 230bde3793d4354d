"""Written slides: what OpenSlide makes of them, and that they repeat bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openslide
import pytest
from pydantic import ValidationError

from synthetic_slides import SEED, read_level, small_spec
from zoommil.errors import OutputError
from zoommil.synthetic.slide import SlideSpec, truth_path, write_slide


def test_aperio_slide_has_levels_resolution_and_magnification(written):
    with openslide.OpenSlide(written["normal"][0]) as slide:
        assert slide.properties["openslide.vendor"] == "aperio"
        assert slide.level_dimensions == ((2048, 1800), (512, 450), (128, 112))
        assert float(slide.properties["openslide.mpp-x"]) == 2.0
        assert float(slide.properties["aperio.MPP"]) == 2.0
        assert slide.properties["openslide.objective-power"] == "5"


def test_generic_slide_with_odd_sizes_and_levels(tmp_path):
    spec = small_spec(
        size_px=(1001, 777), downsamples=(1, 2, 8), format="tiff", magnification=10 / 2.2651
    )
    write_slide(tmp_path / "a.tiff", spec, 3)
    with openslide.OpenSlide(tmp_path / "a.tiff") as slide:
        assert slide.properties["openslide.vendor"] == "generic-tiff"
        assert slide.level_dimensions == ((1001, 777), (500, 388), (125, 97))
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(2.2651, rel=1e-5)


def assert_levels_agree(path: Path, level: int, downsample: int) -> None:
    """The level is the finest one averaged, and a shift by one of its pixels is much worse."""
    coarse = read_level(path, level)[..., 1].astype(float)
    height, width = coarse.shape
    finest = read_level(path, 0)[: height * downsample, : width * downsample, 1].astype(float)
    reduced = finest.reshape(height, downsample, width, downsample).mean((1, 3))
    error = np.abs(reduced - coarse).mean()
    for axis in (0, 1):
        for step in (-1, 1):
            assert error < 0.4 * np.abs(reduced - np.roll(coarse, step, axis)).mean()


def test_downsamples_that_are_no_powers_of_two(tmp_path):
    write_slide(tmp_path / "a.svs", small_spec(size_px=(1600, 1000), downsamples=(1, 3, 6)), 3)
    assert_levels_agree(tmp_path / "a.svs", 1, 3)
    assert_levels_agree(tmp_path / "a.svs", 2, 6)


def test_every_level_shows_the_same(written):
    assert_levels_agree(written["normal"][0], 1, 4)
    assert_levels_agree(written["normal"][0], 2, 16)


def test_share_of_tissue_is_as_asked(written):
    pixels = read_level(written["normal"][0], 2).astype(int)
    stained = np.ptp(pixels, axis=-1) > 15
    assert 0.45 < stained.mean() < 0.68  # 0.6 less the holes of lumina and fat


def test_same_seed_gives_same_bytes_whatever_the_threads(written, tmp_path):
    for threads in (1, 3):
        path = tmp_path / f"{threads}.svs"
        write_slide(path, small_spec(label="low_grade"), SEED, threads=threads)
        assert path.read_bytes() == written["low_grade"][0].read_bytes()


def test_other_seed_gives_another_slide(written, tmp_path):
    write_slide(tmp_path / "a.svs", small_spec(), SEED + 1)
    other = read_level(tmp_path / "a.svs", 2).astype(int)
    assert np.abs(other - read_level(written["normal"][0], 2)).mean() > 5


def test_intact_slide_is_reused(written):
    path, truth = written["high_grade"]
    before = path.stat().st_mtime_ns
    again = write_slide(path, small_spec(label="high_grade"), SEED)
    assert path.stat().st_mtime_ns == before
    assert again.label == truth.label
    for one, two in zip(again.polygons, truth.polygons, strict=True):
        assert one.name == two.name
        np.testing.assert_allclose(one.corners, two.corners, atol=0.006)


@pytest.mark.parametrize("damage", ["cut off", "other spec", "no truth"])
def test_damaged_or_different_slide_is_written_anew(damage, written, tmp_path):
    wanted = written["normal"][0].read_bytes()
    path = tmp_path / "a.svs"
    path.write_bytes(wanted[:-100] if damage == "cut off" else wanted)
    about = json.loads(truth_path(written["normal"][0]).read_text())
    if damage == "other spec":
        about["key"] = "0" * 64
    if damage != "no truth":
        truth_path(path).write_text(json.dumps(about))
    before = path.stat().st_mtime_ns
    write_slide(path, small_spec(), SEED)
    assert path.stat().st_mtime_ns != before
    assert path.read_bytes() == wanted
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svs", "a.truth.geojson"]


def test_key_follows_spec_and_seed(written):
    keys = [json.loads(truth_path(path).read_text())["key"] for path, _ in written.values()]
    assert len(set(keys)) == 3


def test_unwritable_folder_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        write_slide(tmp_path / "file" / "a.svs", small_spec(size_px=(600, 600)), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "tumor"}, "not one of the classes"),
        ({"downsamples": (2, 4)}, "start at 1"),
        ({"downsamples": (1, 4, 4)}, "start at 1 and increase"),
        ({"downsamples": (1, 7, 11, 13)}, "no common multiple"),
        ({"focus_mm": (2.0, 1.0)}, "must be a range"),
        ({"tissue": 0.0}, "greater than 0"),
        ({"tisue": 0.3}, "not permitted"),
    ],
)
def test_specs_that_cannot_be_meant_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        SlideSpec(**changes)


_MEASURE = """
import sys, tempfile, pathlib
from zoommil.machine import peak_memory_bytes
from zoommil.synthetic.slide import SlideSpec, write_slide
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[1]))
shape = dict(magnification=5.0, tissue=0.05)
write_slide(folder / "small.svs", SlideSpec(size_px=(2048, 2048), **shape), 1)
before = peak_memory_bytes()
write_slide(folder / "large.svs", SlideSpec(size_px=(32768, 32768), **shape), 1)
print(peak_memory_bytes() - before)
"""


def test_memory_does_not_grow_with_the_slide(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    whole_slide = 32768 * 32768 * 3
    assert int(run.stdout) < 0.3 * whole_slide  # bands: it grows with the width, not the area
