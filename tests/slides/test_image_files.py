"""Plain images as slides: PNG, JPEG, every kind of TIFF, arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from PIL import Image
from slide_files import cell_picture, halving_pyramid, noise_picture

from zoommil import open_slide
from zoommil.errors import SlideError

PICTURE = noise_picture(301, 203)
TRANSPOSE = Image.Transpose
UPRIGHT = {  # how a stored picture becomes upright, by orientation tag
    1: None,
    2: TRANSPOSE.FLIP_LEFT_RIGHT,
    3: TRANSPOSE.ROTATE_180,
    4: TRANSPOSE.FLIP_TOP_BOTTOM,
    5: TRANSPOSE.TRANSPOSE,
    6: TRANSPOSE.ROTATE_270,
    7: TRANSPOSE.TRANSVERSE,
    8: TRANSPOSE.ROTATE_90,
}


def read_all(source, **options) -> np.ndarray:
    with open_slide(source, mpp=0.5, **options) as slide:
        return slide.read(0, 0, *slide.size, 0.5)


def test_png_and_jpeg(tmp_path):
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_all(tmp_path / "a.png"), PICTURE)
    smooth = cell_picture(301, 203, 40)
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=98, subsampling=0)
    assert np.abs(read_all(tmp_path / "a.jpg").astype(int) - smooth).mean() < 3


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "I;16", "1"])
def test_png_modes(tmp_path, mode):
    gray = PICTURE[..., 0]
    if mode == "I;16":
        Image.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "a.png")
        truth = np.repeat(gray[..., None], 3, 2)
    else:
        image = Image.fromarray(PICTURE).convert(mode)
        image.save(tmp_path / "a.png")
        truth = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_all(tmp_path / "a.png"), truth)


def test_transparent_is_white_not_black(tmp_path):
    rgba = np.dstack([PICTURE, np.full(PICTURE.shape[:2], 255, np.uint8)])
    rgba[:50, :60, 3] = 0
    rgba[60:90, :60] = (0, 0, 0, 128)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    tifffile.imwrite(
        tmp_path / "tiles.tif", rgba, photometric="rgb", extrasamples=["unassalpha"], tile=(64, 64)
    )
    tifffile.imwrite(tmp_path / "strips.tif", rgba, photometric="rgb", extrasamples=["unassalpha"])
    for source in (tmp_path / "a.png", tmp_path / "tiles.tif", tmp_path / "strips.tif", rgba):
        pixels = read_all(source)
        assert (pixels[:50, :60] == 255).all()
        assert np.abs(pixels[60:90, :60].astype(int) - 127).max() <= 1
        np.testing.assert_array_equal(pixels[:, 60:], PICTURE[:, 60:])


def test_associated_alpha_is_not_multiplied_twice(tmp_path):
    rgba = np.zeros((64, 64, 4), np.uint8)
    rgba[...] = (100, 0, 50, 128)
    tifffile.imwrite(tmp_path / "a.tif", rgba, photometric="rgb", extrasamples=["assocalpha"])
    assert (read_all(tmp_path / "a.tif") == (227, 127, 177)).all()


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("tile", [None, (64, 48), (256, 256)])
def test_orientation_is_applied(tmp_path, orientation, tile):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, PICTURE, photometric="rgb", tile=tile, compression="deflate",
        extratags=[(274, 3, 1, orientation, True)],
    )  # fmt: skip
    how = UPRIGHT[orientation]
    image = Image.fromarray(PICTURE)
    truth = np.asarray(image if how is None else image.transpose(how))
    np.testing.assert_array_equal(read_all(path), truth)
    with open_slide(path, mpp=0.5) as slide:
        part = slide.read(33, 41, 70, 60, 0.5)
    np.testing.assert_array_equal(part, truth[41:101, 33:103])


def test_exif_orientation_of_jpeg_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(cell_picture(120, 60, 20)).save(tmp_path / "a.jpg", exif=exif, quality=95)
    with open_slide(tmp_path / "a.jpg", mpp=0.5) as slide:
        assert slide.size == (60, 120)


@pytest.mark.parametrize("compression", [None, "lzw", "deflate", "zstd", "packbits"])
@pytest.mark.parametrize("layout", [{"tile": (64, 64)}, {"rowsperstrip": 7}, {"rowsperstrip": 203}])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_tiff_layouts(tmp_path, compression, layout, planar):
    path = tmp_path / "a.tif"
    pixels = PICTURE if planar == "contig" else np.moveaxis(PICTURE, 2, 0)
    tifffile.imwrite(
        path, pixels, photometric="rgb", planarconfig=planar, compression=compression, **layout
    )
    np.testing.assert_array_equal(read_all(path, reader="image"), PICTURE)
    with open_slide(path, mpp=0.5, reader="image") as slide:
        np.testing.assert_array_equal(slide.read(100, 90, 90, 80, 0.5), PICTURE[90:170, 100:190])


@pytest.mark.parametrize("kind", ["gray", "inverted", "16 bits", "palette", "bilevel"])
def test_tiff_colours(tmp_path, kind):
    path, gray = tmp_path / "a.tif", PICTURE[..., 0]
    truth = np.repeat(gray[..., None], 3, 2)
    if kind == "gray":
        tifffile.imwrite(path, gray, photometric="minisblack")
    elif kind == "inverted":
        tifffile.imwrite(path, 255 - gray, photometric="miniswhite")
    elif kind == "16 bits":
        tifffile.imwrite(
            path, PICTURE.astype(np.uint16) * 256 + 9, photometric="rgb", compression="lzw"
        )
        truth = PICTURE
    elif kind == "bilevel":
        tifffile.imwrite(path, gray > 127, photometric="minisblack")
        truth = (truth > 127).astype(np.uint8) * 255
    else:
        colours = np.random.default_rng(1).integers(0, 65536, (3, 256), dtype=np.uint16)
        tifffile.imwrite(path, gray, photometric="palette", colormap=colours)
        truth = (colours[:, gray] >> 8).astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(read_all(path, reader="image"), truth)


def test_jpeg_tiff_in_rgb_and_ycbcr(tmp_path):
    smooth = cell_picture(301, 203, 40)
    for name, arguments in {"rgb": {"outcolorspace": "rgb"}, "ycbcr": {}}.items():
        tifffile.imwrite(
            tmp_path / f"{name}.tif", smooth, photometric="rgb", tile=(64, 64),
            compression="jpeg", compressionargs={"level": 97, **arguments},
        )  # fmt: skip
        pixels = read_all(tmp_path / f"{name}.tif", reader="image")
        assert np.abs(pixels.astype(int) - smooth).mean() < 3, name


def test_levels_in_subifds_are_found(tmp_path):
    """As OME-TIFF has them; OpenSlide would see one level only."""
    path = tmp_path / "a.ome.tif"
    levels = halving_pyramid(noise_picture(600, 400), 3)
    with tifffile.TiffWriter(path, ome=True) as writer:
        options = {"tile": (64, 64), "photometric": "rgb", "compression": "deflate"}
        metadata = {
            "axes": "YXS",
            "PhysicalSizeX": 0.25,
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": 0.25,
            "PhysicalSizeYUnit": "µm",
        }
        writer.write(levels[0], subifds=2, metadata=metadata, **options)
        for level in levels[1:]:
            writer.write(level, subfiletype=1, **options)
    with open_slide(path) as slide:
        assert [level.downsample for level in slide.describe().levels] == [1, 2, 4]
        assert slide.mpp_source == "ome.PhysicalSizeX"
        np.testing.assert_array_equal(slide.read(0, 0, 150, 100, 1.0), levels[2])


def test_only_touched_tiles_of_a_large_plain_tiff_are_decoded(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, noise_picture(2048, 2048), photometric="rgb", tile=(256, 256), compression="deflate"
    )
    with open_slide(path, mpp=0.5, reader="image") as slide:
        slide.read(300, 300, 200, 200, 0.5)
        statistics = slide.read_statistics()
    assert statistics.blocks_decoded == 1
    assert statistics.compressed_bytes is not None
    assert statistics.compressed_bytes < 1.1 * 256 * 256 * 3


def test_an_uncompressed_picture_in_one_piece_is_not_read_whole(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, noise_picture(1500, 1000), photometric="rgb", rowsperstrip=1000)
    with open_slide(path, mpp=0.5) as slide:
        np.testing.assert_array_equal(
            slide.read(900, 700, 50, 60, 0.5), noise_picture(1500, 1000)[700:760, 900:950]
        )
        assert slide.read_statistics().pixels_decoded <= 4 * 256 * 256


def test_what_can_only_be_decoded_whole_is_refused_when_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("zoommil.slides.image_array.MAX_WHOLE_BYTES", 100_000)
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    tifffile.imwrite(
        tmp_path / "a.tif", PICTURE, photometric="rgb", rowsperstrip=203, compression="lzw"
    )
    for name in ("a.png", "a.tif"):
        with pytest.raises(SlideError, match="Convert it to a tiled pyramidal TIFF"):
            open_slide(tmp_path / name, mpp=0.5)


def test_arrays(tmp_path):
    np.testing.assert_array_equal(read_all(PICTURE), PICTURE)
    gray = read_all(PICTURE[..., 0].copy())
    np.testing.assert_array_equal(gray, np.repeat(PICTURE[..., :1], 3, 2))
    with open_slide(PICTURE, mpp=0.5) as slide:
        assert slide.path is None
        assert slide.slide_id == "array"


@pytest.mark.parametrize("shape", [(5, 5, 2), (0, 5, 3)])
def test_arrays_that_are_no_pictures_are_refused(shape):
    with pytest.raises(SlideError, match="array of shape"):
        open_slide(np.zeros(shape, np.uint8), mpp=0.5)


def test_float_tiff_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((50, 50), np.float32))
    with pytest.raises(SlideError, match="expected 8 or 16 bits"):
        open_slide(tmp_path / "a.tif", mpp=0.5)
