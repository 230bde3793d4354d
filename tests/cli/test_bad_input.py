"""Wrong input to commands: one line that says what to do, an exit code, nothing half-written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import ARGUMENTS


def assert_refused(ended, *words: str) -> None:
    """One line of error with these words, no traceback, exit code 1."""
    assert ended.code == 1, ended
    lines = ended.errors.strip().splitlines()
    assert len(lines) == 1, ended.errors
    for word in words:
        assert word in lines[0]


@pytest.fixture
def plain_image(tmp_path) -> Path:
    """A PNG: no resolution of its own."""
    path = tmp_path / "plain.png"
    Image.fromarray(np.full((600, 600, 3), 200, np.uint8)).save(path)
    return path


def test_info_on_a_folder(zoommil, tmp_path):
    assert_refused(zoommil("info", tmp_path), "SlideError", "folder")


def test_info_on_a_missing_file(zoommil, tmp_path):
    assert_refused(zoommil("info", tmp_path / "a.svs"), "SlideError", "does not exist")


def test_info_on_a_text_file_named_svs(zoommil, tmp_path):
    (tmp_path / "a.svs").write_text("hello")
    assert_refused(zoommil("info", tmp_path / "a.svs"), "SlideError", "'a.svs'")


def test_info_on_a_truncated_file(zoommil, tmp_path, small_slide):
    broken = tmp_path / "cut.svs"
    broken.write_bytes(small_slide.read_bytes()[:20_000])
    assert_refused(zoommil("info", broken), "SlideError", "'cut.svs'")


def test_info_without_a_resolution(zoommil, plain_image):
    assert_refused(zoommil("info", plain_image), "ResolutionError", "--mpp", "'mpp' column")


@pytest.mark.parametrize("mpp", ["0", "352.8", "1e9"])
def test_info_with_an_absurd_resolution(zoommil, plain_image, mpp):
    assert_refused(zoommil("info", plain_image, "--mpp", mpp), "mpp")


def test_a_negative_resolution_is_wrong_usage(zoommil, plain_image):
    ended = zoommil("info", plain_image, "--mpp", "-1")
    assert ended.code == 2
    assert "--mpp" in ended.errors


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--magnifications", "1.25,3"], "2.4x apart"),
        (["--magnifications", "10,2.5"], "ascend"),
        (["--magnifications", "ten"], "commas"),
        (["--patch-px", "0"], "patch_px 0"),
        (["--patch-px", "-3"], "patch_px -3"),
        (["--overlap", "128"], "overlap"),
        (["--tissue-threshold", "7"], "between 0 and 1"),
        (["--encoder", "resnet5"], "Did you mean 'resnet50'"),
        (["--tissue", "otso"], "Did you mean 'otsu'"),
        (["--engine", "locol"], "Did you mean 'local'"),
        (["--workers", "0"], "at least 1"),
        (["--dtype", "float8"], "dtype"),
    ],
)
def test_extract_with_a_wrong_option(zoommil, tmp_path, small_slide, options, word):
    out = tmp_path / "out"
    ended = zoommil("extract", small_slide, "-o", out, *ARGUMENTS, *options)
    assert_refused(ended, word)
    assert not list(out.glob("*.h5"))


def test_extract_beyond_the_scan(zoommil, tmp_path, small_slide):
    ended = zoommil("extract", small_slide, "-o", tmp_path, *ARGUMENTS, "--magnifications", "10,40")
    assert ended.code == 1
    assert "one failed: ResolutionError" in ended.errors
    assert b"one," in (tmp_path / "failures.csv").read_bytes()
    assert not list(tmp_path.glob("*.h5"))


def test_a_table_without_its_columns(zoommil, tmp_path):
    (tmp_path / "c.csv").write_text("a,b\n1,2\n")
    assert_refused(zoommil("extract", tmp_path / "c.csv", "-o", tmp_path / "out"), "slide_id")


def test_a_table_with_a_slide_twice(zoommil, tmp_path, small_slide):
    (tmp_path / "c.csv").write_text(f"slide_id,path\none,{small_slide}\none,{small_slide}\n")
    assert_refused(zoommil("extract", tmp_path / "c.csv", "-o", tmp_path / "out"), "'one'")


def test_h4_two_slides_of_one_name(zoommil, tmp_path, small_slide):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        shutil.copy(small_slide, tmp_path / folder / "1.svs")
    ended = zoommil("extract", tmp_path, "-o", tmp_path / "out", *ARGUMENTS)
    assert_refused(ended, "'1'")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_slides(zoommil, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_refused(zoommil("extract", tmp_path / "empty", "-o", tmp_path / "out"), "no slides")


def test_an_output_folder_that_cannot_be_written(zoommil, tmp_path, small_slide):
    (tmp_path / "file").write_text("")
    ended = zoommil("extract", small_slide, "-o", tmp_path / "file" / "bags", *ARGUMENTS)
    assert_refused(ended, "OutputError", "cannot write")


def test_tissue_into_a_folder_that_cannot_be_written(zoommil, tmp_path, small_slide):
    (tmp_path / "file").write_text("")
    ended = zoommil("tissue", small_slide, "-o", tmp_path / "file" / "masks")
    assert_refused(ended, "OutputError", "cannot write")


@pytest.mark.parametrize("command", ["tissue", "extract"])
def test_a_table_of_slides_without_files(zoommil, tmp_path, command):
    (tmp_path / "c.csv").write_text("case_id,slide_id,label\nc1,s1,a\nc2,s2,b\n")
    ended = zoommil(command, tmp_path / "c.csv", "-o", tmp_path / "out")
    assert_refused(ended, "CohortError", "none of the 2 slides", "'path' column", "--slides")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["verify", "heatmap", "report"])
def test_predictions_that_are_not_there(zoommil, tmp_path, command):
    ended = zoommil(command, tmp_path, *([] if command == "verify" else ["-o", tmp_path / "x"]))
    assert_refused(ended, "PredictionError", "predictions.jsonl", "No such file", "predict --out")


def test_weights_that_are_not_there(zoommil, tmp_path, small_slide):
    arguments = ["--encoder", "resnet18", "--weights", "nowhere.safetensors"]
    ended = zoommil("extract", small_slide, "-o", tmp_path / "out", *arguments)
    assert_refused(ended, "WeightsError", "nowhere.safetensors")
