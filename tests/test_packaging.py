"""Wheel and sdist: they build, hold every file of the package, and work outside the source tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import zoommil

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command without this checkout on its path; its standard output."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run(
        list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from what is in it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (wheel,) = folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A new environment with the wheel; what it needs is borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(
        run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).strip()
    )
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    run(*pip, "--no-index", built[1], cwd=folder)
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_every_file_of_the_package_is_in_the_wheel(built):
    package = ROOT / "src" / "zoommil"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(built[1]).namelist())
    assert files <= held, files - held
    assert not [name for name in held if name.startswith(("tests", "docs", "scripts"))]


def test_the_sdist_has_what_its_targets_need(built):
    for name in ("Makefile", "constraints.txt", "CHANGELOG.md", "LICENSE", "mkdocs.yml"):
        assert (built[0] / name).is_file(), name
    assert (built[0] / "tests" / Path(__file__).name).is_file()
    assert (built[0] / "docs" / "tutorial.md").is_file()


def test_it_works_outside_the_source_tree(installed, tmp_path):
    command = installed / "bin" / "zoommil"
    assert run(command, "--version", cwd=tmp_path) == f"zoommil {zoommil.__version__}\n"
    found = json.loads(run(command, "doctor", "--quick", "--json", cwd=tmp_path))
    assert found["is_well"], found
    code = (
        "import zoommil\n"
        "from zoommil.training.run import list_recipes, load_recipe\n"
        "print(zoommil.__file__)\n"
        "assert zoommil.list_models() and zoommil.list_encoders()\n"
        "assert all(load_recipe(name) for name in list_recipes())"
    )
    place = run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed)


def test_a_slide_goes_through_outside_the_source_tree(installed, tmp_path):
    code = (
        "from zoommil.synthetic.slide import SlideSpec, write_slide\n"
        "write_slide('a.svs', SlideSpec(size_px=(1024, 1024), downsamples=(1, 4)), seed=3)"
    )
    run(installed / "bin" / "python", "-c", code, cwd=tmp_path)
    words = ["--magnifications", "2.5,10", "--encoder", "resnet18", "--weights", "random:0"]
    run(installed / "bin" / "zoommil", "extract", "a.svs", "-o", "bags", *words, cwd=tmp_path)
    assert (tmp_path / "bags" / "a.h5").is_file()
