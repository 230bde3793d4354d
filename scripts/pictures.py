"""Draw the diagrams of the documentation: docs/images/zoom.svg and docs/images/nesting.svg.

python scripts/pictures.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "images"
INK, PAPER, TISSUE, CHOSEN, FAINT = "#334155", "#ffffff", "#f0b8d4", "#0f766e", "#cbd5e1"
TEXT = "font-family='system-ui, sans-serif' font-size='15'"

Box = tuple[float, float, float]  # x, y, side


def svg(width: int, height: int, parts: list[str]) -> str:
    """A picture on white, readable in light and dark pages."""
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>"
    paper = f"<rect width='{width}' height='{height}' rx='8' fill='{PAPER}'/>"
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


def square(box: Box, *, fill: str = "none", stroke: str = FAINT, width: float = 1) -> str:
    """One patch."""
    x, y, side = box
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{side:g}' height='{side:g}' fill='{fill}' "
        f"stroke='{stroke}' stroke-width='{width:g}'/>"
    )


def words(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = INK) -> str:
    """A line of text."""
    return f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' fill='{colour}' {TEXT}>{text}</text>"


def children(box: Box, ratio: int) -> list[Box]:
    """The patches inside a patch, in the order of their rows (columns first)."""
    x, y, side = box
    small = side / ratio
    return [(x + j * small, y + i * small, small) for j in range(ratio) for i in range(ratio)]


def blob(x: float, y: float, scale: float) -> str:
    """A piece of tissue."""
    path = (
        "M30,95 C10,50 55,10 105,22 C150,5 200,40 190,95 "
        "C200,150 150,190 105,180 C50,195 20,150 30,95Z"
    )
    return f"<path d='{path}' transform='translate({x},{y}) scale({scale})' fill='{TISSUE}'/>"


def zoom() -> str:
    """Three steps side by side; only what is drawn was read."""
    chosen_first, chosen_second = (5, 10), (1, 6)
    parts: list[str] = []
    titles = ("1.25x: all tissue", "2.5x: children of the chosen", "10x: children of the chosen")
    for panel, title in enumerate(titles):
        left = 20 + panel * 260
        parts += [blob(left, 40, 1.05), words(left + 110, 285, title)]
        first = children((left + 10, 50, 200), 4)
        if panel == 0:
            parts += [square(box) for box in first]
            parts += [square(first[i], stroke=CHOSEN, width=3) for i in chosen_first]
            continue
        second = [child for i in chosen_first for child in children(first[i], 2)]
        if panel == 1:
            parts += [square(box, fill="#ffffff88") for box in second]
            parts += [square(second[i], stroke=CHOSEN, width=3) for i in chosen_second]
            continue
        third = [child for i in chosen_second for child in children(second[i], 4)]
        parts += [square(box, fill="#ffffff88", stroke=INK, width=0.5) for box in third]
    parts.append(words(400, 24, "read, score, choose, zoom: what is not drawn is never read"))
    return svg(800, 300, parts)


def nesting() -> str:
    """One patch, its children and theirs, with their rows."""
    parts: list[str] = []
    root: Box = (20, 40, 200)
    parts += [square(root, stroke=INK, width=2), words(120, 145, "i")]
    parts.append(words(120, 265, "1.25x: row i"))
    second = children((270, 40, 200), 2)
    for slot, box in enumerate(second):
        parts += [square(box, stroke=INK, width=1.5)]
        parts.append(words(box[0] + 50, box[1] + 55, f"4i+{slot}" if slot else "4i"))
    parts.append(words(370, 265, "2.5x: rows 4i .. 4i+3"))
    for parent in children((520, 40, 200), 2):
        parts += [square(box, stroke=FAINT) for box in children(parent, 4)]
        parts.append(square(parent, stroke=INK, width=1.5))
    parts.append(words(620, 265, "10x: rows 64i .. 64i+63"))
    parts.append(words(370, 24, "children are contiguous rows, at every ratio"))
    return svg(740, 280, parts)


def pictures() -> Iterator[tuple[str, str]]:
    """File names and what is in them."""
    yield "zoom.svg", zoom()
    yield "nesting.svg", nesting()


def main() -> int:
    """Write the pictures, or with ``--check`` name those that drifted."""
    drifted = {name: text for name, text in pictures() if _is_other(FOLDER / name, text)}
    if "--check" in sys.argv:
        if drifted:
            sys.stderr.write(f"docs/images: {', '.join(drifted)} drifted; make generated\n")
        return bool(drifted)
    for name, text in drifted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


def _is_other(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    sys.exit(main())
