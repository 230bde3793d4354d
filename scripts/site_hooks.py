"""Hooks of the documentation site: pages of results into its menu, mathematics into MathML.

Formulas are written as ``$$ ... $$`` and ``$ ... $``, as GitHub shows them too; browsers show
MathML without any script.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_MARK = re.compile("\ue000(\\d+)\ue001")
_INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])")


def on_config(config: Any) -> Any:
    """Add the pages that benches wrote to the menu, under Results."""
    folder = Path(config["docs_dir"]) / "results"
    pages = sorted(f"results/{path.name}" for path in folder.glob("*.md"))
    for entry in config["nav"]:
        if "Results" in entry:
            entry["Results"] += [page for page in pages if page not in entry["Results"]]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with a mark in place of each formula; code is left as it is."""
    formulas: list[str] = []

    def mark(found: re.Match[str], display: str) -> str:
        formulas.append(convert(found[1].strip(), display=display))
        return f"\ue000{len(formulas) - 1}\ue001"

    parts = _CODE.split(markdown)
    for index in range(0, len(parts), 2):
        text = _BLOCK.sub(lambda found: mark(found, "block"), parts[index])
        parts[index] = _INLINE.sub(lambda found: mark(found, "inline"), text)
    page.meta["formulas"] = formulas
    return "".join(parts)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """The rendered page with MathML where the marks are."""
    formulas = page.meta.get("formulas", [])
    return _MARK.sub(lambda found: formulas[int(found[1])], html)
