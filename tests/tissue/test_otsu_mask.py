"""The default mask on drawn slides."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.tissue.otsu import contrast_threshold, glass_colour, otsu_mask
from zoommil.tissue.spec import OtsuSettings, TissueSpec

PINK, PURPLE, PALE = (200, 110, 170), (110, 70, 140), (235, 222, 231)
PENS = {
    "blue": (40, 60, 190),
    "green": (30, 140, 60),
    "black": (20, 20, 25),
    "red": (205, 25, 45),
    "cyan": (30, 150, 190),
    "light blue": (120, 150, 220),
}


def mask_of(image, **settings):
    return otsu_mask(image, 8.0, TissueSpec(otsu=OtsuSettings(**settings)))


def test_all_pieces_are_found_and_little_else(drawing):
    picture = drawing()
    pieces = [
        picture.piece((90, 90), (60, 40), PINK),
        picture.piece((260, 80), (50, 30), PURPLE),
        picture.piece((300, 230), (60, 40), (215, 150, 190)),
    ]
    mask, warnings = mask_of(picture.image())
    for piece in pieces:
        assert mask[piece].all()
    assert mask.sum() < 1.35 * sum(piece.sum() for piece in pieces)
    assert warnings == ()


def test_pale_tissue_is_kept_beside_dark(drawing):
    picture = drawing()
    picture.piece((90, 90), (60, 40), PURPLE)
    pale = picture.piece((280, 200), (60, 40), PALE, texture=4)
    mask, _ = mask_of(picture.image())
    assert mask[pale].mean() > 0.98


def test_pale_tissue_is_kept_alone(drawing):
    picture = drawing()
    pale = picture.piece((280, 200), (60, 40), PALE, texture=4)
    mask, _ = mask_of(picture.image())
    assert mask[pale].mean() > 0.98
    assert mask.sum() < 1.4 * pale.sum()


@pytest.mark.parametrize("level", [255, 243, 225])
def test_glass_of_any_grey_is_background(drawing, level):
    picture = drawing(glass=level)
    piece = picture.piece((100, 100), (60, 40), PINK)
    mask, _ = mask_of(picture.image())
    assert mask[piece].all()
    assert mask.sum() < 1.4 * piece.sum()


def test_tinted_glass_beside_unscanned_white_is_background(drawing):
    picture = drawing(glass=(238, 236, 232))
    piece = picture.piece((100, 100), (60, 40), PINK)
    picture.pixels[:, 250:] = 255
    mask, _ = mask_of(picture.image())
    assert mask[piece].all()
    assert mask.sum() < 1.4 * piece.sum()


@pytest.mark.parametrize("noise", [0.0, 2.0, 5.0])
def test_a_white_slide_has_no_tissue(drawing, noise):
    for level in (255, 243, 230):
        mask, _ = mask_of(drawing(glass=level, noise=noise).image())
        assert not mask.any()


def test_uneven_light_is_not_tissue(drawing):
    picture = drawing()
    picture.pixels -= np.linspace(0, 15, 400, dtype=np.float32)[None, :, None]
    mask, _ = mask_of(picture.image())
    assert not mask.any()


def test_a_slide_full_of_tissue_is_all_tissue(drawing):
    picture = drawing()
    picture.piece((200, 150), (900, 900), PINK)
    mask, _ = mask_of(picture.image())
    assert mask.all()


def test_black_borders_are_background_and_said(drawing):
    picture = drawing()
    piece = picture.piece((200, 150), (60, 40), PINK)
    border = np.ones((300, 400), dtype=bool)
    border[20:-15, 30:-10] = False
    picture.pixels[border] = picture.random.normal(4, 2, (border.sum(), 3))
    mask, warnings = mask_of(picture.image())
    assert not mask[border].any()
    assert mask[piece].all()
    assert mask.sum() < 1.4 * piece.sum()
    assert any("black" in warning for warning in warnings)


@pytest.mark.parametrize("pen", PENS)
def test_pen_marks_are_not_tissue(drawing, pen):
    picture = drawing()
    piece = picture.piece((100, 100), (60, 40), PINK)
    stroke = picture.stroke((220, 60), (360, 250), PENS[pen])
    mask, warnings = mask_of(picture.image())
    assert not mask[stroke].any()
    assert mask[piece].all()
    assert mask.sum() < 1.4 * piece.sum()
    assert warnings


def test_pens_count_when_asked_for(drawing):
    picture = drawing()
    stroke = picture.stroke((220, 60), (360, 250), PENS["blue"])
    mask, _ = mask_of(picture.image(), exclude_ink=False)
    assert mask[stroke].all()


@pytest.mark.parametrize("colour", [PINK, PURPLE, (150, 60, 110), (90, 60, 125), (205, 80, 110)])
def test_stained_tissue_is_never_ink(drawing, colour):
    picture = drawing()
    piece = picture.piece((200, 150), (80, 60), colour)
    mask, warnings = mask_of(picture.image())
    assert mask[piece].all()
    assert warnings == ()


def test_fragments_above_the_least_area_are_kept(drawing):
    picture = drawing()
    picture.piece((90, 90), (60, 40), PURPLE)
    fragment = picture.piece((300, 200), (8, 7), PINK)  # 11 000 um2
    speck = picture.piece((200, 250), (1, 1), PINK)
    mask, _ = mask_of(picture.image())
    assert mask[fragment].all()
    assert not mask[speck].any()
    mask, _ = mask_of(picture.image(), min_area_um2=100_000)
    assert not mask[fragment].any()


def test_small_holes_are_filled_and_large_ones_kept(drawing):
    picture = drawing()
    picture.piece((200, 150), (140, 110), PINK)
    small, large = np.zeros((300, 400), bool), np.zeros((300, 400), bool)
    small[100:115, 150:165] = True
    large[130:200, 180:250] = True
    picture.pixels[small | large] = 243
    mask, _ = mask_of(picture.image())
    assert mask[small].all()
    assert not mask[145:185, 195:235].any()


def test_the_threshold_stays_between_its_bounds():
    settings = OtsuSettings(min_contrast=5, max_contrast=8)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 6, 10_000).astype(np.int16)
    strong = np.concatenate([noise, rng.integers(300, 400, 5000).astype(np.int16)])
    assert contrast_threshold(noise, settings) == 20
    assert 20 <= contrast_threshold(strong, settings) <= 32
    assert contrast_threshold(noise[:0], settings) == 32


def test_glass_is_what_is_bright_and_grey(drawing):
    picture = drawing(glass=(240, 238, 235))
    picture.piece((200, 150), (150, 120), PALE, texture=4)
    image = picture.image()
    glass = glass_colour(image, np.zeros(image.shape[:2], bool)).astype(int)
    assert np.abs(glass - [240, 238, 235]).max() <= 4


def test_real_tiles_are_tissue(real_data):
    """Every tile of stained tissue lies inside its mask when set on glass; fat mostly does."""
    import cv2
    from PIL import Image

    tiles = sorted((real_data / "tiles" / "crc").glob("*.jpg"))
    assert len(tiles) >= 30
    for path in tiles:
        tile = np.asarray(Image.open(path).convert("RGB"))
        small = cv2.resize(tile, (14, 14), interpolation=cv2.INTER_AREA)  # 8 um per pixel
        picture = np.full((120, 160, 3), 243, np.uint8)
        picture[40:82, 60:102] = np.tile(small, (3, 3, 1))
        mask, _ = mask_of(picture)
        assert mask[40:82, 60:102].mean() > (0.85 if path.name.startswith("ADI") else 0.97), path
