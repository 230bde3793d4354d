"""What is made from the code is as the code would make it now; ``make generated`` mends it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pages import ROOT

import zoommil

SCRIPTS = ("reference_pages.py", "pictures.py", "figures.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_drifted(script):
    words = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    for name in zoommil.__all__:
        assert name == "__version__" or re.search(rf"^::: zoommil\.[\w.]+\.{name}$", page, re.M)


def test_every_command_and_option_is_in_the_reference():
    """By their own help, read independently of the script that writes the page."""
    from typer.main import get_command

    from zoommil.cli.app import app

    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for name, command in get_command(app).commands.items():
        for option in command.params:
            assert option.hidden or option.name == "help" or option.opts[0] in page, (name, option)


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_changelog_tells_of_this_version():
    """By a dated section, or as the next one under Unreleased while it is not published."""
    text = (ROOT / "CHANGELOG.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    titles = [part.splitlines()[0] for part in parts]
    assert titles[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", one) for one in titles[1:]]
    assert all(released), titles
    assert zoommil.__version__ in [one[1] for one in released if one] or (
        f" {zoommil.__version__}," in parts[0]
    )
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= CHANGES


def test_every_folder_is_in_the_table_of_the_architecture():
    table = (ROOT / "docs" / "architecture.md").read_text()
    rows = [f"{p.name}/" if p.is_dir() else p.stem for p in (ROOT / "src/zoommil").iterdir()]
    for row in rows:
        assert row.startswith("__") or row == "py" or f"`{row}`" in table, row


def test_every_page_is_in_the_menu():
    """The site's build says so too, but only ``make check`` builds it."""
    menu = (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs")
        assert page.parts[0] == "results" or f" {page.as_posix()}" in menu, page


def test_nothing_is_left_to_fill_in():
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not re.search(r"@[A-Z]{3,}@|TODO|PLACEHOLDER", path.read_text()), path
