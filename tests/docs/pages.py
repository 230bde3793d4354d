"""Pages of the documentation as lists of code blocks, and how these are run.

Blocks of a page run in order in one folder: ``bash`` in a shell, ``python`` in one interpreter, and
``toml`` must parse. ``text`` is output and layouts. A block that cannot run says why in a comment
right above it, ``<!-- not run: downloads -->``; ``<!-- given: slides bags -->`` anywhere on a page
names what is in the folder before the first block (``conftest.py`` makes it).

    python tests/docs/pages.py PAGE      runs a page's blocks in the current folder
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LANGUAGES = ("bash", "python", "toml", "text")

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: ([^>]+) -->\s*$")
_GIVEN = re.compile(r"<!-- given: ([\w ]+) -->")


@dataclass(frozen=True)
class Block:
    """One block of code: its language, its text, its line, and why it is not run."""

    language: str
    text: str
    line: int
    not_run: str = ""


def all_pages() -> list[Path]:
    """The README and every page of the site but those that benches write."""
    written = ROOT / "docs" / "results"
    pages = (path for path in (ROOT / "docs").rglob("*.md") if written not in path.parents)
    return [ROOT / "README.md", *sorted(pages)]


def blocks_of(page: Path) -> list[Block]:
    """The page's code blocks in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        reason = _NOT_RUN.search(text[: fence.start()])
        indent = len(fence[1])
        body = "\n".join(line[indent:] for line in fence[3].splitlines())
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(fence[2], body, line, reason[1].strip() if reason else ""))
    return found


def text_outside_blocks(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def given_of(page: Path) -> tuple[str, ...]:
    """What is in the folder before the page's first block."""
    found = _GIVEN.findall(page.read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(name for names in found for name in names.split()))


def run_page(page: Path) -> None:
    """Run the page's blocks in the current folder."""
    names: dict[str, object] = {"__name__": "mine"}
    sys.modules["mine"] = type(sys)("mine")  # what a page's code calls its own module
    sys.modules["mine"].__dict__.update(names)
    for block in blocks_of(page):
        if block.not_run or block.language == "text":
            continue
        where = f"{page.name}:{block.line}"
        sys.stderr.write(f"{where} {block.language}\n")
        if block.language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], check=True)
        elif block.language == "toml":
            tomllib.loads(block.text)
        else:
            exec(compile(block.text, where, "exec"), sys.modules["mine"].__dict__)


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    run_page(Path(sys.argv[1]))
