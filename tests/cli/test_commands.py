"""Commands as a user sees them: help, info, tissue."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from PIL import Image

from zoommil import __version__


def command_names() -> list[str]:
    from typer.main import get_command

    from zoommil.cli.app import app

    return sorted(get_command(app).commands)


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help_with_an_example(zoommil, name):
    ended = zoommil(name, "--help")
    assert ended.code == 0
    assert "Example" in ended.output


def test_help_comes_at_once_and_without_torch():
    code = (
        "import sys; sys.argv = ['zoommil', '--help']\n"
        "from zoommil.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'openvino', 'cv2', 'scipy', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert time.monotonic() - start < 3.0  # 0.4 s on a quiet machine


def test_version(zoommil):
    assert zoommil("--version").output == f"zoommil {__version__}\n"


def test_info_as_text_and_json(zoommil, small_slide):
    text = zoommil("info", small_slide, "--magnifications", "2.5,10")
    assert "one: 1024 x 1024" in text.output
    assert "1 um per pixel" in text.output
    found = json.loads(zoommil("info", small_slide, "--magnifications", "2.5,10", "--json").output)
    assert [step["patches"] for step in found["grid"]] == [1, 16]
    assert found["mpp"] == 1.0


def test_tissue_makes_a_sheet_masks_and_outlines(zoommil, small_slide, tmp_path):
    ended = zoommil("tissue", small_slide, "-o", tmp_path, "--magnifications", "2.5,10")
    assert ended.code == 0, ended.errors
    with Image.open(tmp_path / "contact_sheet.png") as sheet:
        assert sheet.size[0] > 400
    outlines = json.loads((tmp_path / "contours_geojson" / "one.geojson").read_text())
    assert outlines["type"] == "FeatureCollection"
    assert (tmp_path / "masks" / "one.png").exists()


def test_an_unexpected_error_is_one_line_unless_debugging(zoommil, monkeypatch, small_slide):
    monkeypatch.setattr("zoommil.cli.options.grid_spec", lambda *a, **k: 1 / 0)
    ended = zoommil("info", small_slide)
    assert ended.code == 70
    assert "--debug" in ended.errors
    with pytest.raises(ZeroDivisionError):
        zoommil("--debug", "info", small_slide)
