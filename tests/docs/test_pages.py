"""Every code block of the documentation runs; what cannot is marked, with its reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pages import LANGUAGES, ROOT, all_pages, blocks_of, given_of, text_outside_blocks

RUNNERS = [page for page in all_pages() if any(not b.not_run for b in blocks_of(page))]
NOT_RUN = {
    "installs packages",
    "downloads",
    "four trainings, the same as the one above",
    "measurements take minutes to hours",
    "the demo and the tests themselves",
    "serves until Ctrl-C",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNERS, ids=name_of)
def test_the_blocks_of_a_page_run_in_order(page, store, tmp_path, request):
    store.give(given_of(page), tmp_path)
    bring_the_public_slide(page, tmp_path, request)
    runner = Path(__file__).parent / "pages.py"
    ended = subprocess.run(
        [sys.executable, str(runner), str(page)],
        cwd=tmp_path,
        env=store.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"[-6000:]


def bring_the_public_slide(page: Path, folder: Path, request) -> None:
    """The slide that the tutorial has its readers download."""
    name = "CMU-1-Small-Region.svs"
    if name in page.read_text(encoding="utf-8"):
        data: Path = request.getfixturevalue("real_data")
        (folder / name).symlink_to(data / "slides" / name)


@pytest.mark.parametrize("page", all_pages(), ids=name_of)
def test_blocks_are_of_known_languages(page):
    """Nothing escapes by being of another language or without one."""
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{name_of(page)}:{block.line}"
    text = page.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks_of(page))
    outside = text_outside_blocks(page).splitlines()
    indented = [line for line in outside if line.startswith("    zoommil ")]
    assert not indented, "a block of code without a fence"


def test_blocks_that_are_not_run_are_few_and_have_known_reasons():
    blocks = [block for page in all_pages() for block in blocks_of(page) if block.not_run]
    assert {block.not_run for block in blocks} <= NOT_RUN
    assert len(blocks) <= 10


def test_a_failing_block_fails(tmp_path):
    for block in ("bash\nfalse\ntrue", "python\nassert False", "toml\na = ="):
        page = tmp_path / "page.md"
        page.write_text(f"```{block}\n```\n")
        runner = Path(__file__).parent / "pages.py"
        words = [sys.executable, str(runner), str(page)]
        assert subprocess.run(words, capture_output=True, check=False).returncode != 0
