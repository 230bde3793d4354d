"""The published mask, its quirks included."""

from __future__ import annotations

import numpy as np
import pytest

from zoommil.tissue import PaperSettings, TissueSpec, find_tissue
from zoommil.tissue.paper import gaussian_tissue_mask, paper_mask, whiten_unsaturated

TINY = PaperSettings(sigma_um=8, kernel_um=8, min_size_px=1)


def white(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 255, np.uint8)


def mask_of(image, *, kernel_px=1, sigma_px=0.01, settings=TINY, **options):
    return gaussian_tissue_mask(
        image, sigma_px=sigma_px, kernel_px=kernel_px, settings=settings, **options
    )


def test_check_19_even_kernels_grow_one_pixel_more_to_one_side():
    image = white(300, 300)
    image[150, 140] = (90, 20, 90)
    settings = PaperSettings(min_size_px=1, background_grey=256)
    rows, columns = np.nonzero(mask_of(image, kernel_px=100, settings=settings))
    assert (rows.min() - 150, rows.max() - 150) == (-49, 50)
    assert (columns.min() - 140, columns.max() - 140) == (-49, 50)


def test_check_19_largest_component_first_and_the_first_bright_one_ends_the_search():
    image = white(100, 300)
    image[20:80, 20:80] = (150, 50, 150)  # large, dark
    image[20:60, 120:150] = (245, 225, 245)  # middle, pale: grey 232 is above 228
    image[20:40, 200:215] = (200, 150, 200)  # small, darker than that: found in the second round
    mask = mask_of(image)
    assert mask[20:80, 20:80].all()
    assert mask[20:40, 200:215].all()
    assert not mask[:, 120:150].any()
    image[20:40, 200:215] = (246, 226, 246)  # now paler than the middle one, never reached
    mask = mask_of(image)
    assert mask[20:80, 20:80].all()
    assert mask.sum() == 60 * 60


def test_check_19_a_small_dark_piece_in_a_wide_dilation_ends_the_search():
    image = white(300, 300)
    image[100:105, 100:105] = (60, 10, 60)
    assert mask_of(image, kernel_px=5).any()
    assert not mask_of(image, kernel_px=100).any()  # the white around it makes its mean bright


def test_check_19_thresholding_swaps_the_weights_of_red_and_blue():
    image = white(100, 100)
    image[10:40, 10:40] = (255, 120, 60)  # swapped luminance 118: darker
    image[60:90, 60:90] = (60, 120, 255)  # swapped luminance 154; by the standard one 117: darker
    settings = PaperSettings(min_size_px=1, background_grey=125)
    mask = mask_of(image, settings=settings)
    # The red square is taken first; the grey for stopping is the standard one, 154: too bright.
    assert not mask.any()
    settings = PaperSettings(min_size_px=1, background_grey=161)
    assert mask_of(image, settings=settings)[10:40, 10:40].all()


def test_components_below_the_least_size_end_the_search():
    image = white(60, 60)
    image[10:13, 10:13] = (150, 50, 150)
    assert mask_of(image, settings=PaperSettings(min_size_px=9)).sum() == 9
    assert not mask_of(image, settings=PaperSettings(min_size_px=10)).any()


def test_pieces_that_touch_at_a_corner_are_two():
    image = white(60, 60)
    image[10:20, 10:20] = (150, 50, 150)
    image[20:26, 20:26] = (150, 50, 150)
    assert not mask_of(image, settings=PaperSettings(min_size_px=50))[20:26, 20:26].any()


def test_a_white_image_gives_an_empty_mask():
    mask, warnings = paper_mask(white(50, 60), 8.0, TissueSpec(method="paper"))
    assert mask.shape == (50, 60)
    assert not mask.any()
    assert warnings == ()


def test_the_caller_keeps_its_image():
    image = white(60, 60)
    image[10:30, 10:30] = (150, 50, 150)
    before = image.copy()
    mask_of(image)
    np.testing.assert_array_equal(image, before)


def test_unsaturated_pixels_become_white():
    image = np.full((20, 20, 3), 200, np.uint8)
    image[5:10, 5:10] = (200, 60, 180)
    result = whiten_unsaturated(image)
    np.testing.assert_array_equal(result[5:10, 5:10], image[5:10, 5:10])
    assert (result[0] == 255).all()


def test_downsampling_is_nearest_both_ways():
    image = white(80, 90)
    image[20:60, 20:60] = (150, 50, 150)
    mask = mask_of(image, downsampling=4)
    assert mask.shape == (80, 90)
    assert 0.9 < mask.sum() / 40**2 < 1.1


@pytest.mark.parametrize(
    ("name", "sigma_px", "kernel_px"),
    [("crc", 10, 7), ("bright", 20, 100), ("camelyon16", 20, 100)],
)
def test_named_settings_are_the_published_ones_at_8_um(name, sigma_px, kernel_px):
    settings = TissueSpec(method="paper", paper=name).paper
    assert settings.sigma_um / 8 == sigma_px
    assert settings.kernel_um / 8 == kernel_px


def test_through_a_slide(drawing):
    from zoommil import open_slide

    picture = drawing()
    piece = picture.piece((150, 150), (70, 50), (200, 110, 170))
    slide = open_slide(picture.image(), mpp=8.0)
    tissue = find_tissue(slide, TissueSpec(method="paper", paper="crc"))
    assert tissue.mask[piece].mean() > 0.99
    assert tissue.mask.sum() < 2 * piece.sum()
