"""Slides, patch pyramids and predictions draw themselves: as HTML, and on Matplotlib's axes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report_pages import Page

from zoommil.errors import PredictionError
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.inference.cost import Measured
from zoommil.tissue import find_tissue

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture
def pyramid(slide) -> PatchPyramid:
    """Two steps of the slide."""
    spec = GridSpec(magnifications=(1.25, 5.0), patch_px=64)
    return PatchPyramid.build(slide, find_tissue(slide), spec)


@pytest.fixture
def found(prediction, slide_path) -> object:
    """The prediction of a slide that still is where it was."""
    return replace(prediction, measured=Measured(files={"slide": str(slide_path)}))


@pytest.fixture(autouse=True)
def _figures_are_closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def images(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]{0,24})', html)


def test_a_slide_shows_itself_and_what_it_is(slide):
    html = slide._repr_html_()
    page = Page(html)
    assert images(html) == ["data:image/jpeg;base64,/"]
    assert "lesions" in page.text
    assert "2048 x 1800 px" in page.text
    assert "2 µm per pixel" in page.text


def test_a_closed_slide_says_that_it_cannot_be_shown(slide_path):
    from zoommil import open_slide

    with open_slide(slide_path) as slide:
        pass
    html = slide._repr_html_()
    assert images(html) == []
    assert "closed" in Page(html).text


def test_axes_are_level_0_pixels(slide, pyramid, prediction):
    axes = slide.plot(longest_px=200)
    x, y, width, height = slide.bounds
    (image,) = axes.images
    assert list(image.get_extent()) == [x, x + width, y + height, y]
    assert max(image.get_array().shape[:2]) == 200
    assert axes.yaxis_inverted()
    assert pyramid.plot(axes, steps=[1]) is axes
    drawn = [path.get_extents() for path in axes.collections[0].get_paths()]
    corners = np.array([[box.x0, box.y0, box.width, box.height] for box in drawn])
    step = pyramid.steps[1]
    np.testing.assert_allclose(corners, step.boxes[step.valid])
    assert prediction.plot(axes) is axes
    assert "high_grade 90%" in axes.get_title()


def test_attention_is_the_colour_of_a_patch(prediction):
    axes = prediction.plot()
    last = axes.collections[-2]  # the last one has nothing that was zoomed into
    boxes = [path.get_extents() for path in last.get_paths()]
    step = prediction.steps[-1]
    best = boxes[int(np.argmax(last.get_array()))]
    wanted = step.boxes[int(np.argmax(step.attention))]
    assert [best.x0, best.y0, best.width, best.height] == wanted.tolist()


def test_a_plot_is_over_the_slide_where_it_still_lies(slide, prediction, found, slide_path):
    assert not prediction.plot().images
    assert len(found.plot().images) == 1
    assert len(prediction.plot(slide=slide).images) == 1
    about = found.provenance["slide"] | {"fingerprint": "another slide"}
    assert not replace(found, provenance={"slide": about}).plot().images


def test_a_pyramid_shows_its_patches(pyramid):
    html = pyramid._repr_html_()
    text = Page(html).text
    assert html.count("<path") == 2
    for step in pyramid.steps:
        assert f"{step.magnification:g}x {int(step.valid.sum())} patches" in text


def test_a_prediction_shows_where_it_looked(prediction, found):
    html = found._repr_html_()
    text = Page(html).text
    assert images(html) == ["data:image/jpeg;base64,/"]
    assert "lesions: high_grade" in text
    assert "high_grade 0.900" in text
    assert f"{len(prediction.steps[0].rows)} patches seen, 4 zoomed into" in text
    assert images(prediction._repr_html_()) == []


def test_names_are_only_text(prediction):
    hostile = replace(prediction, slide_id=HOSTILE, label=HOSTILE, warnings=(HOSTILE,))
    hostile = replace(hostile, probabilities={HOSTILE: 1.0})
    page = Page(hostile._repr_html_())
    assert "script" not in page.names
    assert page.text.count("alert(1)") == 4


def test_without_places_there_is_a_table_and_no_plot(prediction):
    steps = tuple(replace(step, boxes=None) for step in prediction.steps)
    nowhere = replace(prediction, steps=steps)
    assert "<svg" not in nowhere._repr_html_()
    with pytest.raises(PredictionError, match="does not say where its patches lie"):
        nowhere.plot()
