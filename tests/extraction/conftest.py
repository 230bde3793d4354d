"""A small synthetic cohort, made once per test run, and its bags."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import ARGUMENTS, NUM_SLIDES, bags_in, run
from zoommil.synthetic.slide import SlideSpec, write_slide


@pytest.fixture(scope="session")
def slide_folder(tmp_path_factory) -> Path:
    """Four slides of 2048 px at 10x."""
    folder = tmp_path_factory.mktemp("slides")
    for number in range(NUM_SLIDES):
        spec = SlideSpec(size_px=(2048, 2048), downsamples=(1, 4), tissue=0.4)
        write_slide(folder / f"s{number}.svs", spec, seed=number)
    return folder


@pytest.fixture(scope="session")
def finished(slide_folder, tmp_path_factory) -> dict[str, bytes]:
    """The bags of an uninterrupted run with the default options."""
    out = tmp_path_factory.mktemp("finished")
    done = run("extract", slide_folder, "-o", out, *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    bags = bags_in(out)
    assert len(bags) == NUM_SLIDES
    return bags
