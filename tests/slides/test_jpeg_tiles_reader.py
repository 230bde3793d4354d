"""The fast reader of JPEG tiles: OpenSlide's pixels and metadata, or the file is OpenSlide's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openslide
import pytest
import simplejpeg
import tifffile
from jpeg_files import (
    Form,
    encoded,
    place_of_tile,
    soft_picture,
    whole_level,
    write_jpeg_tiff,
)
from slide_files import halving_pyramid, noise_picture, write_tiff

from zoommil import open_slide
from zoommil.errors import SlideError, SlideReadError
from zoommil.slides.jpeg_stream import TileDecoder, frame_of
from zoommil.slides.jpeg_tiles_reader import JpegTilesSlide
from zoommil.synthetic.slide import SlideSpec, write_slide

FORMS = [
    Form(subsampling="444"),
    Form(subsampling="422"),
    Form(subsampling="420"),
    Form(has_tables=True),
    Form(tile=(240, 240), is_aperio=True, has_tables=True),
    Form(tile=(256, 128), is_big=True),
    Form(colours="rgb", subsampling="444"),
    Form(colours="rgb", subsampling="444", is_aperio=True, has_tables=True, is_big=True),
    Form(colours="rgb", subsampling="444", keeps_notes=False),
    Form(subsampling="422", keeps_notes=False),
    Form(tile=(64, 64)),
    Form(tile=(1024, 512)),
]
SIZE = (701, 533)


def levels() -> list[np.ndarray]:
    """Downsamples 1 and 4, which divide the sides well enough for OpenSlide to say 4."""
    pyramid = halving_pyramid(soft_picture(704, 536), 3)
    return [pyramid[0], pyramid[2]]


def odd_levels() -> list[np.ndarray]:
    """Downsamples 1 and about 4: OpenSlide blends the second."""
    pyramid = halving_pyramid(soft_picture(*SIZE), 3)
    return [pyramid[0], pyramid[2]]


@pytest.fixture
def plain_file(tmp_path: Path) -> Path:
    return write_jpeg_tiff(tmp_path / "plain.tif", levels())


def both(path: Path, **options):
    return open_slide(path, reader="openslide", **options), open_slide(path, **options)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_native_pixels_and_metadata_are_openslides(tmp_path, form):
    path = write_jpeg_tiff(tmp_path / "a.svs", levels(), form)
    slow, fast = both(path)
    with slow, fast:
        assert fast.reader == "jpeg_tiles"
        assert dict(fast.properties) == dict(slow.properties)
        assert (fast.mpp, fast.mpp_source, fast.bounds) == (slow.mpp, slow.mpp_source, slow.bounds)
        assert (fast.fingerprint, fast.vendor) == (slow.fingerprint, slow.vendor)
        assert fast.warnings == slow.warnings
        for level in range(2):
            assert fast.describe().levels[level].size == slow.describe().levels[level].size
            np.testing.assert_array_equal(whole_level(fast, level), whole_level(slow, level))
        box = (-40.5, 333.25, 300, 200, 0.3)
        np.testing.assert_array_equal(fast.read(*box), slow.read(*box))


@pytest.mark.parametrize("form", FORMS[2:7:2], ids=str)
def test_odd_levels_are_as_stored_where_openslide_blends_them(tmp_path, form):
    path = write_jpeg_tiff(tmp_path / "a.svs", odd_levels(), form)
    slow, fast = both(path)
    with slow, fast:
        np.testing.assert_array_equal(whole_level(fast, 0), whole_level(slow, 0))
        pixels = whole_level(fast, 1)
        assert np.abs(pixels.astype(int) - whole_level(slow, 1)).mean() < 4
        handle = openslide.OpenSlide(path)
        origin = np.asarray(handle.read_region((0, 0), 1, pixels.shape[1::-1]))[..., :3]
        np.testing.assert_array_equal(pixels, origin)  # from its corner it blends nothing


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "svs", "downsamples": (1,), "tile_px": 240},
        {"format": "tiff", "downsamples": (1, 2, 4), "quality": 95},
        {"format": "svs", "downsamples": (1, 4, 16)},
    ],
    ids=str,
)
def test_native_pixels_of_synthetic_slides_are_openslides(tmp_path, changes):
    path = tmp_path / f"a.{changes['format']}"
    write_slide(
        path, SlideSpec(size_px=(640, 576), magnification=5.0, tissue=0.6, **changes), seed=3
    )
    slow, fast = both(path)
    with slow, fast:
        assert fast.reader == "jpeg_tiles"
        assert dict(fast.properties) == dict(slow.properties)
        is_whole = [float(d).is_integer() for d in openslide.OpenSlide(path).level_downsamples]
        assert is_whole[0]
        for level in np.flatnonzero(is_whole).tolist():
            np.testing.assert_array_equal(whole_level(fast, level), whole_level(slow, level))


@pytest.mark.parametrize("name", ["CMU-1-Small-Region.svs"])
def test_native_pixels_of_a_real_slide_are_openslides(real_data, name):
    slow, fast = both(real_data / "slides" / name)
    with slow, fast:
        assert fast.reader == "jpeg_tiles"
        assert dict(fast.properties) == dict(slow.properties)
        np.testing.assert_array_equal(whole_level(fast, 0), whole_level(slow, 0))
        for factor, most in ((2, 0.2), (2.8, 0.2), (4, 0.2), (8, 0.2), (19, 0.2)):
            box = (-9, -5, int(2300 / factor), int(3000 / factor), fast.mpp * factor)
            change = np.abs(fast.read(*box).astype(int) - slow.read(*box))
            assert change.mean() < most, factor


def test_real_files_of_other_kinds_are_left_to_openslide(real_data):
    for path in sorted((real_data / "slides").iterdir()):
        is_taken = path.name in ("CMU-1-Small-Region.svs", "small.svs")
        assert JpegTilesSlide.can_open(path) == is_taken, path.name


@pytest.mark.parametrize("form", [Form(), Form(colours="rgb", subsampling="444")], ids=str)
@pytest.mark.parametrize("factor", [2, 2.76, 3.99])
def test_between_levels_it_is_close_to_halved_pixels(tmp_path, form, factor):
    path = write_jpeg_tiff(tmp_path / "a.tif", [soft_picture(1024, 768)], form)
    slow, fast = both(path)
    with slow, fast:
        box = (0, 0, int(1024 / factor), int(768 / factor), 0.25 * factor)
        change = np.abs(fast.read(*box).astype(int) - slow.read(*box))
    assert 0 < change.mean() < 1.5


@pytest.mark.parametrize("factor", [8, 8.5, 16, 40])
def test_an_eighth_is_the_mean_of_its_block(tmp_path, factor):
    picture = noise_picture(1024, 768) // 2 + 64
    path = write_jpeg_tiff(tmp_path / "a.tif", [picture], Form(subsampling="444"))
    slow, fast = both(path)
    with slow, fast:
        box = (0, 0, int(1024 / factor), int(768 / factor), 0.25 * factor)
        change = np.abs(fast.read(*box).astype(int) - slow.read(*box))
    assert change.max() <= 3


def test_the_filling_of_edge_tiles_never_shows(tmp_path):
    """A white picture in tiles filled up with black: no gray line along the slide's edge."""
    path = write_jpeg_tiff(tmp_path / "a.tif", [np.full((333, 457, 3), 255, np.uint8)])
    with open_slide(path) as slide:
        assert slide.reader == "jpeg_tiles"
        for factor in (2, 3, 4, 8, 16):
            pixels = slide.read(-20, -20, 500 // factor, 400 // factor, slide.mpp * factor)
            assert pixels.min() >= 250, factor  # decoding rings a little beside the black


def test_edges_between_levels_are_halved_pixels(tmp_path):
    path = write_jpeg_tiff(tmp_path / "a.tif", [soft_picture(457, 333)])
    slow, fast = both(path)
    with slow, fast:
        for factor, last in ((2, 36), (4, 18), (8, 9)):  # columns from 384 = 3 x 128 on
            box = (0, 0, -(-457 // factor), -(-333 // factor), 0.25 * factor)
            ours, theirs = fast.read(*box), slow.read(*box)
            np.testing.assert_array_equal(ours[:, -last:], theirs[:, -last:])


@pytest.mark.parametrize("factor", [1, 2, 2.3, 4, 8, 11, 16])
@pytest.mark.parametrize("form", [Form(), Form(tile=(240, 240))], ids=str)
def test_pixels_do_not_depend_on_the_read_around_them(tmp_path, form, factor):
    path = write_jpeg_tiff(tmp_path / "a.tif", [soft_picture(*SIZE)], form)
    mpp = 0.25 * factor
    with open_slide(path) as slide, open_slide(path, cache_bytes=0) as other:
        whole = slide.read(-17.3, 8.1, 60, 50, mpp)
        part = other.read(-17.3 + 21 * factor, 8.1 + 13 * factor, 20, 30, mpp)
        np.testing.assert_array_equal(part, whole[13:43, 21:41])


def test_missing_tiles_are_white_as_with_openslide(tmp_path):
    missing = [(0, 1, 2), (0, 5, 4), (1, 0, 0)]
    path = write_jpeg_tiff(tmp_path / "a.tif", levels(), missing=missing)
    slow, fast = both(path)
    with slow, fast:
        assert fast.reader == "jpeg_tiles"
        assert (fast.read(128, 256, 128, 128, 0.25) == 255).all()
        assert (fast.read(128, 256, 64, 64, 0.5) == 255).all()
        assert (fast.read(640, 512, 64, 24, 0.25) == 255).all()
        for level in range(2):
            np.testing.assert_array_equal(whole_level(fast, level), whole_level(slow, level))


def test_missing_tiles_of_an_aperio_pyramid_are_painted_by_openslide(tmp_path):
    form = Form(is_aperio=True)
    path = write_jpeg_tiff(tmp_path / "a.svs", levels(), form, missing=[(1, 0, 0)])
    with open_slide(path) as slide:
        assert slide.reader == "openslide"
    single = write_jpeg_tiff(tmp_path / "b.svs", levels()[:1], form, missing=[(0, 0, 0)])
    slow, fast = both(single)
    with slow, fast:
        assert fast.reader == "jpeg_tiles"
        np.testing.assert_array_equal(whole_level(fast, 0), whole_level(slow, 0))


def spoilt(path: Path, column: int = 2, row: int = 1) -> Path:
    """The file with half of a tile overwritten."""
    offset, size = place_of_tile(path, 0, column, row)
    with path.open("r+b") as stream:
        stream.seek(offset + size // 2)
        stream.write(b"\0" * (size // 2))
    return path


@pytest.mark.parametrize("factor", [1, 1.3, 2, 3])
def test_a_damaged_tile_is_an_error_that_names_slide_level_and_box(plain_file, factor):
    spoilt(plain_file)
    with open_slide(plain_file) as slide:
        assert slide.reader == "jpeg_tiles"
        with pytest.raises(
            SlideReadError,
            match=r"'plain\.tif', level 0: the box \(x 256, y 128, 128 x 128 px\) cannot be",
        ) as caught:
            slide.read(200, 100, 100, 100, 0.25 * factor)
        assert "\n" not in str(caught.value)
        slide.read(0, 0, 32, 32, 0.25 * factor)  # elsewhere it goes on


def test_damage_is_refused_where_openslide_refuses_it(plain_file):
    """And where it leaves bytes over at the end of a tile, which OpenSlide does not look at."""
    rng = np.random.default_rng(4)
    offset, size = place_of_tile(plain_file, 0, 2, 1)
    sound = plain_file.read_bytes()
    num_refused = 0
    for number in range(60):
        content = bytearray(sound)
        at = offset + int(rng.integers(2 if number % 3 else size // 2, size))
        content[at : at + 3] = rng.integers(0, 256, 3, dtype=np.uint8).tobytes()
        plain_file.write_bytes(content)
        found = []
        for slide in both(plain_file):
            with slide:
                try:
                    found.append(slide.read(256, 128, 128, 128, 0.25))
                except SlideReadError:
                    found.append(None)
        theirs, ours = found
        if ours is not None and theirs is not None:
            np.testing.assert_array_equal(ours, theirs)
        else:
            assert ours is None, (number, at - offset)
        num_refused += ours is None
    assert 10 < num_refused < 60


def test_a_writer_whose_tiles_have_bytes_left_over_is_left_to_openslide(tmp_path, monkeypatch):
    def with_rest(*given) -> bytes:
        return encoded(*given)[:-2] + b"\x12\x34" * 20 + b"\xff\xd9"

    monkeypatch.setattr("jpeg_files.encoded", with_rest)
    with open_slide(write_jpeg_tiff(tmp_path / "a.tif", levels())) as slide:
        assert slide.reader == "openslide"
        assert np.abs(whole_level(slide, 0).astype(int) - levels()[0]).mean() < 10


@pytest.mark.parametrize("size", [(64, 64), (256, 128)])
def test_a_tile_of_another_size_or_without_colour_is_refused(plain_file, size):
    for tile in (
        encoded(soft_picture(*size), "ycbcr", "420", 20),
        simplejpeg.encode_jpeg(np.full((128, 128, 1), 99, np.uint8), 20, "GRAY", "Gray"),
    ):
        offset, room = place_of_tile(plain_file, 0, 2, 1)
        assert len(tile) <= room
        with plain_file.open("r+b") as stream:
            stream.seek(offset)
            stream.write(tile.ljust(room, b"\0"))
        for slide in both(plain_file):
            with slide, pytest.raises(SlideReadError):
                slide.read(256, 128, 128, 128, 0.25)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_file_is_refused_where_openslide_refuses_it(plain_file, share):
    content = plain_file.read_bytes()
    plain_file.write_bytes(content[: int(share * len(content))])
    messages = []
    for reader in ("openslide", "auto"):
        with (
            pytest.raises(SlideError) as caught,
            open_slide(plain_file, mpp=0.25, reader=reader) as slide,
        ):
            slide.read(0, 0, 704, 536, 0.25)
        messages.append(str(caught.value))
    assert all("plain.tif" in message and "\n" not in message for message in messages)


def progressive(path: Path) -> Path:
    """A file whose tiles are progressive JPEG, which OpenSlide reads all the same."""
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(soft_picture(128, 128)).save(stream, "JPEG", progressive=True)
    options = {"photometric": "ycbcr", "compression": "jpeg", "subsampling": (2, 2)}
    tiles = iter([stream.getvalue()])
    tifffile.imwrite(
        path,
        tiles,
        shape=(128, 128, 3),
        dtype=np.uint8,
        tile=(128, 128),
        resolution=(4e4, 4e4),
        resolutionunit=3,
        metadata=None,
        **options,
    )
    return path


def written(path: Path, pixels: np.ndarray, **options) -> Path:
    options = {"compression": "jpeg", "tile": (128, 128), **options}
    tifffile.imwrite(path, pixels, resolution=(4e4, 4e4), resolutionunit=3, **options)
    return path


OTHERS = {
    "lossless": lambda path: write_tiff(path, [noise_picture(200, 100)]),
    "progressive": progressive,
    "gray": lambda path: written(path, soft_picture(200, 100)[..., 0]),
    "strips": lambda path: written(path, soft_picture(200, 100), tile=None, rowsperstrip=16),
    "small tiles": lambda path: written(path, soft_picture(200, 100), tile=(32, 32)),
    "4:1:1": lambda path: written(path, soft_picture(256, 256), subsampling=(4, 1)),
    "turned": lambda path: written(path, soft_picture(200, 100), extratags=[(274, 3, 1, 6, True)]),
    "two pictures of one size": lambda path: write_jpeg_tiff(
        path, [soft_picture(400, 300), soft_picture(100, 75), soft_picture(100, 75, seed=1)]
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_another_kind_are_left_to_others(tmp_path, kind):
    path = OTHERS[kind](tmp_path / "a.tif")
    assert not JpegTilesSlide.can_open(path)
    with open_slide(path) as slide:
        assert slide.reader != "jpeg_tiles"
        assert slide.read(0, 0, 50, 50, 0.25).shape == (50, 50, 3)
    with pytest.raises(SlideError, match=r"JPEG tiles|kind OpenSlide does not read") as caught:
        open_slide(path, reader="jpeg_tiles")
    assert "\n" not in str(caught.value)


def test_levels_in_subifds_are_left_to_others(tmp_path):
    path = tmp_path / "a.ome.tif"
    options = {"tile": (128, 128), "compression": "jpeg", "photometric": "ycbcr"}
    with tifffile.TiffWriter(path) as writer:
        writer.write(soft_picture(512, 512), subifds=1, **options)
        writer.write(soft_picture(256, 256), subfiletype=1, **options)
    assert not JpegTilesSlide.can_open(path)
    with open_slide(path, mpp=0.25) as slide:
        assert len(slide.describe().levels) == 2


def test_another_reader_stays_with_slides_it_is_compared_with(plain_file):
    expected = {
        (): "jpeg_tiles",
        ("openslide",): "openslide",
        ("image",): "jpeg_tiles",
        ("jpeg_tiles", "openslide"): "jpeg_tiles",
    }
    for like, reader in expected.items():
        with open_slide(plain_file, like=like) as slide:
            assert slide.reader == reader


def test_each_tile_is_decoded_once_for_a_box_between_levels(tmp_path):
    path = write_jpeg_tiff(tmp_path / "a.tif", [soft_picture(1024, 1024)])
    with open_slide(path) as slide:
        slide.read(256, 128, 128, 128, 0.5)
        spent = slide.read_statistics()
        places = [place_of_tile(path, 0, column, row) for column in (2, 3) for row in (1, 2)]
        assert spent.blocks_decoded == 4
        assert spent.pixels_decoded == spent.pixels_read == 4 * 128**2
        assert spent.compressed_bytes == sum(size for _, size in places)
        slide.read(300, 200, 50, 50, 0.5)
        assert slide.read_statistics().blocks_decoded == 4


def test_readers_in_threads_while_the_slide_is_closed(plain_file):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.is_dir() else 0
    for _ in range(5):
        slide = open_slide(plain_file, cache_bytes=0)
        truth = slide.read(100, 100, 200, 200, 0.25)

        def read(_: int, slide=slide, truth=truth) -> bool:
            try:
                return bool((slide.read(100, 100, 200, 200, 0.25) == truth).all())
            except SlideError as error:
                return "closed" in str(error)

        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(read, number) for number in range(40)]
            answers[5].result()
            slide.close()
            assert all(answer.result() for answer in answers)
    if descriptors.is_dir():
        assert len(list(descriptors.iterdir())) <= before


def test_a_file_without_pread_is_read_under_a_lock(plain_file, monkeypatch):
    with open_slide(plain_file) as slide:
        expected = whole_level(slide, 0)
    monkeypatch.delattr(os, "pread", raising=False)
    with open_slide(plain_file, cache_bytes=0) as slide, ThreadPoolExecutor(4) as pool:
        for pixels in pool.map(lambda _: whole_level(slide, 0), range(8)):
            np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("halvings", [0, 1, 2, 3])
@pytest.mark.parametrize("subsampling", ["444", "422", "420"])
def test_tiles_are_decoded_at_whole_fractions(halvings, subsampling):
    picture = np.full((48, 240, 3), (200, 90, 30), np.uint8)
    decoder = TileDecoder((240, 48), None, is_ycbcr=True)
    pixels = decoder.decode(encoded(picture, "ycbcr", subsampling), halvings)
    assert pixels.shape == (48 >> halvings, 240 >> halvings, 3)
    assert np.abs(pixels.astype(int) - (200, 90, 30)).max() <= 2


def test_the_tiff_decides_on_colours_against_the_stream():
    picture = soft_picture(64, 64)
    stream = encoded(picture, "rgb", "444", 98)
    right = TileDecoder((64, 64), None, is_ycbcr=False).decode(stream)
    wrong = TileDecoder((64, 64), None, is_ycbcr=True).decode(stream)
    assert np.abs(right.astype(int) - picture).mean() < 4
    assert np.abs(wrong.astype(int) - picture).mean() > 40


@pytest.mark.parametrize(
    "stream", [b"", b"\xff\xd8", b"\xff\xd8\xff\xd9", b"II*\0abcd", b"\xff\xd8\xff\xc0\0\x11\x08"]
)
def test_what_is_no_stream_is_a_value_error(stream):
    with pytest.raises(ValueError, match=r"JPEG"):
        frame_of(stream)
    with pytest.raises(ValueError, match=r"JPEG"):
        TileDecoder((64, 64), None, is_ycbcr=True).decode(stream)
