"""Write the measured figures of the README from docs/results/*.json; ``--check`` only compares.

    python scripts/figures.py        (or: make generated)

A figure whose bench has not been run is left out: what stands in the README was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results"
BEGIN, END = "<!-- figures:", "<!-- /figures -->"
Data = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A row of the table: what it is, the bench that measures it, and how it is read."""

    what: str
    bench: str
    value: Callable[[Data], str]


def _quicker(task: str, precision: str) -> Callable[[Data], str]:
    def value(data: Data) -> str:
        rows = [
            row for row in data["speedups"] if row["task"] == task and row["precision"] == precision
        ]
        best = max(rows, key=lambda row: row["times_quicker"])
        return (
            f"{best['times_quicker']:.1f} times ({best['seconds']:.1f} s instead of "
            f"{best['exhaustive_seconds']:.1f} s; {best['patches']:.0f} of "
            f"{best['exhaustive_patches']:.0f} patches)"
        )

    return value


def _extraction_gain(data: Data) -> str:
    speeds = data["patches_per_second"]
    return f"{speeds['native bf16'] / speeds['plain loop']:.1f} times"


def _encoder_share(data: Data) -> str:
    speeds = data["patches_per_second"]
    return f"{speeds['native bf16'] / speeds['encoder alone bf16']:.0%}"


def _opening(data: Data) -> str:
    opened = data["opened"]
    return f"{opened['seconds']:.1f} s, {opened['peak_gb']:.2f} GB"


def _training_step(data: Data) -> str:
    forms = {}
    for cost in data["costs"]:
        size = cost["size"]
        forms.setdefault(json.dumps(size), {})[cost["form"]] = cost["seconds"]
    gains = [one["dense"] / one["lean"] for one in forms.values() if {"dense", "lean"} <= {*one}]
    return f"{min(gains):.1f} to {max(gains):.1f} times"


FIGURES = (
    Figure(
        "a slide from its pixels, zooming, over encoding everything: BRIGHT's sizes, bf16",
        "predict",
        _quicker("BRIGHT", "bf16"),
    ),
    Figure("the same, CAMELYON16's sizes", "predict", _quicker("CAMELYON16", "bf16")),
    Figure("the same, CRC's sizes", "predict", _quicker("CRC", "bf16")),
    Figure(
        "extraction, ResNet-50, 2 cores, over a plain OpenSlide + PyTorch loop",
        "extract",
        _extraction_gain,
    ),
    Figure("of the encoder alone, reading included", "extract", _encoder_share),
    Figure("opening, mask and grid of a 100 000 x 100 000 slide", "generate", _opening),
    Figure(
        "a training step over the published implementation's way, same numbers",
        "step",
        _training_step,
    ),
)


def table() -> str:
    """The rows that were measured."""
    rows = []
    for figure in FIGURES:
        path = RESULTS / f"{figure.bench}.json"
        if not path.exists():
            continue
        data = json.loads(path.read_text(encoding="utf-8"))
        page = f"[`{data['command']}`](docs/results/{figure.bench}.md)"
        rows.append(f"| {figure.what} | {figure.value(data)} | {page} |")
    if not rows:
        return "Nothing yet in this copy: `make accept` measures it here.\n"
    return "\n".join(["| what | figure | command |", "|---|---|---|", *rows]) + "\n"


def filled(text: str) -> str:
    """The README with the table between its marks."""
    start = text.index("\n", text.index(BEGIN)) + 1
    return text[:start] + table() + text[text.index(END) :]


def main() -> int:
    """Write the README, or with ``--check`` say whether it drifted."""
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        if filled(text) != text:
            sys.stderr.write("README.md: the figures drifted from docs/results; make generated\n")
        return int(filled(text) != text)
    README.write_text(filled(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
