"""Write the measured figures of the README from docs/results/*.json; ``--check`` only compares.

    python scripts/figures.py        (or: make generated)

Also the list of pages in docs/results.md, and the table that int8 is offered with. A figure whose
bench has not been run, or not in that form, is left out: what stands there was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
README, INDEX = ROOT / "README.md", ROOT / "docs" / "results.md"
INT8 = ROOT / "docs" / "howto" / "int8.md"
BEGIN, END = "<!-- figures:", "<!-- /figures -->"
NOTHING = "Nothing yet in this copy: `make accept` measures it here."
Data = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A row of the table: what it is, the bench that measures it, and how it is read.

    Attributes:
        bench: the name of the result's files.
        value: what stands in the table; empty where the result does not have it.
    """

    what: str
    bench: str
    value: Callable[[Data], str]


def _quicker(task: str, precision: str) -> Callable[[Data], str]:
    """Every way to zoom against encoding everything, on the most cores measured."""

    def value(data: Data) -> str:
        rows = _rows(data["speedups"], task=task, precision=precision)
        most = max((row["threads"] for row in rows), default=0)
        return "; ".join(
            f"{row['way']} **{row['times_quicker']:.1f} times** ({row['seconds']:.1f} s instead of "
            f"{row['exhaustive_seconds']:.1f} s, {row['patches']} of {row['exhaustive_patches']} "
            "patches)"
            for row in _rows(rows, threads=most)
        )

    return value


def _per_hour(data: Data) -> str:
    rows = data["slides_per_hour"]
    best = {(row["task"], row["way"]): row for row in sorted(rows, key=_rate)}
    return "; ".join(
        f"{row['way']} {row['slides_per_hour']:.0f} ({row['task']}, {row['precision']})"
        for row in best.values()
    )


def _rate(row: Data) -> float:
    return row["slides_per_hour"]


def _large_slide(data: Data) -> str:
    return "; ".join(
        f"{row['sample']['seconds']:.0f} s ({row['before']:.1f} s before the first patch), "
        f"{row['peak_gb']:.1f} GB"
        for row in data["large"]
    )


def _extraction_gain(data: Data) -> str:
    speeds = data["patches_per_second"]
    plain = speeds["plain loop"]
    return "; ".join(
        f"{precision} **{speeds[f'native {precision}'] / plain:.1f} times** "
        f"({speeds[f'native {precision}']:.0f} patches a second instead of {plain:.0f})"
        for precision in _precisions(speeds)
    )


def _encoder_share(data: Data) -> str:
    speeds = data["patches_per_second"]
    return "; ".join(
        f"{precision} {speeds[f'native {precision}'] / speeds[f'encoder alone {precision}']:.0%}"
        for precision in _precisions(speeds)
    )


def _precisions(speeds: Data) -> list[str]:
    return [one for one in ("fp32", "bf16") if f"native {one}" in speeds]


def _reader(data: Data) -> str:
    rows = _rows(data["speeds"], threads=2)
    return "; ".join(f"{row['where']} {row['ratio']:.1f} times" for row in rows)


def _reach(data: Data) -> str:
    shares = [row["share_of_encoder"] for row in data["predict"]]
    return f"{min(shares):.0%} to {max(shares):.0%}" if shares else ""


def _peak(data: Data) -> str:
    rows = data["encoder_alone"]
    most = max((row["threads"] for row in rows), default=0)
    return "; ".join(
        f"{row['runtime']} {row['precision']} {row['share_of_peak']:.0%}"
        for row in _rows(rows, threads=most)
    )


def _int8(data: Data) -> str:
    """What int8 changes of answers, and how much quicker it is on the most threads."""
    row = _rows(data["agreement"], precision="int8")[0]
    parts = [f"{row['predictions_changed']} of {row['num_slides']} answers change"]
    most = max(one["threads"] for one in data["speed"])
    for name in dict.fromkeys(one["encoder"] for one in data["speed"]):
        rates = {
            one["precision"]: one["patches_per_second"]
            for one in _rows(data["speed"], encoder=name, threads=most)
        }
        parts.append(f"{name} {rates['int8'] / rates['bf16']:.1f} times the speed of bf16")
    return "; ".join(parts)


def _under_limits(data: Data) -> str:
    """The model as it is, then the tightest limit of each kind."""
    points = data["points"]
    own = _rows(points, way="the model itself")
    if not own:
        return ""
    parts = [f"{own[0]['accuracy']:.2f} from {own[0]['patches']:.0f} patches a slide unlimited"]
    for way in dict.fromkeys(one["way"] for one in points if one not in own):
        cheapest = min(_rows(points, way=way), key=lambda one: one["gflops"])
        parts.append(f"{way} {cheapest['accuracy']:.2f} from {cheapest['patches']:.0f}")
    return "; ".join(parts)


def _made(data: Data) -> str:
    return f"{data['made']['seconds']:.0f} s, {data['made']['peak_gb']:.1f} GB"


def _opened(data: Data) -> str:
    return f"{data['opened']['seconds']:.1f} s, {data['opened']['peak_gb']:.2f} GB"


def _training_step(data: Data) -> str:
    forms: dict[str, Data] = {}
    for cost in data["costs"]:
        forms.setdefault(json.dumps(cost["size"]), {})[cost["form"]] = cost["seconds"]
    gains = [one["dense"] / one["lean"] for one in forms.values() if {"dense", "lean"} <= {*one}]
    return f"**{min(gains):.1f} to {max(gains):.1f} times**" if gains else ""


def _waiting(data: Data) -> str:
    parts = []
    for cost in data["costs"]:
        total = cost["training"] + cost["validating"] + cost["waiting"]
        parts.append(f"{cost['recipe']} ({cost['memory']}) {cost['waiting'] / total:.0%}")
    return "; ".join(parts)


def _toy(data: Data) -> str:
    wanted = {"Diff, preset default": "learnt", "NonDiff, GA'": "not learnt", "Random K": "random"}
    parts = []
    for name, word in wanted.items():
        runs = [run for row in _rows(data["rows"], name=name) for run in row["runs"]]
        if runs:
            parts.append(f"{word} {fmean(run['accuracy'] for run in runs):.2f}")
    return "; ".join(parts)


def _mil_sets(data: Data) -> str:
    best: dict[str, Data] = {}
    for score in sorted(data["scores"], key=lambda score: fmean(score["accuracies"])):
        best[score["data_set"]] = score
    return "; ".join(
        f"{name} {fmean(score['accuracies']):.2f} by {score['method']}, the SVM "
        f"{score['baseline']:.2f}"
        for name, score in sorted(best.items())
    )


def _probe(data: Data) -> str:
    parts = []
    for result in data["results"][:1]:
        chance = 1 / len(result["classes"])
        steps = (
            f"{row['class_accuracy']:.2f} at {row['magnification']:g}x" for row in result["figures"]
        )
        parts.append(f"{', '.join(steps)} (chance {chance:.2f})")
    return "; ".join(parts)


def _drawing(data: Data) -> str:
    width, height = data["size"]
    return (
        f"{data['seconds']:.1f} s, {data['growth_bytes'] / 1e9:.2f} GB ({width} x {height} pixels)"
    )


def _pointing(data: Data) -> str:
    pointing, chance = data["pointing_highest"], data["chance_highest"]
    return f"{pointing:.2f}, a patch at random {chance:.2f}"


def _operations(data: Data) -> str:
    rows = _rows(data["rows"], role="prediction")
    furthest = max((abs(row["difference"]) for row in rows), default=None)
    return "" if furthest is None else f"{len(rows)} rows within {furthest:.1%}"


def _differences(kind: str) -> Callable[[Data], str]:
    """Points of weighted F1 between methods, on the cohort that zooming is for."""

    def value(data: Data) -> str:
        sections = [one for one in data["sections"] if one["title"].startswith(kind)]
        if not sections:
            return ""
        section = sections[0]
        shares = {row["method"]: row["share"] for row in section["rows"]}
        return "; ".join(
            f"{one['first']} − {one['second']} {100 * one['value']:+.1f} "
            f"({100 * one['low']:+.1f} to {100 * one['high']:+.1f}; {shares[one['first']]:.0%} and "
            f"{shares[one['second']]:.0%} of the patches)"
            for one in section["contrasts"]
        )

    return value


def _rows(rows: list[Data], **wanted: Any) -> list[Data]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


POINTS = "points of weighted F1, with the paired 95% interval"
FIGURES = (
    Figure(
        "a slide from its pixels, zooming over encoding everything: BRIGHT's sizes, bf16",
        "predict",
        _quicker("BRIGHT", "bf16"),
    ),
    Figure("the same, fp32 on one core", "predict", _quicker("BRIGHT", "fp32")),
    Figure("the same, CAMELYON16's sizes, bf16", "predict", _quicker("CAMELYON16", "bf16")),
    Figure("the same, CRC's sizes, bf16", "predict", _quicker("CRC", "bf16")),
    Figure("slides an hour on one core, BRIGHT's sizes", "predict", _per_hour),
    Figure("slides an hour on one core, all sizes", "predict-1thread", _per_hour),
    Figure("a slide of 100 000 x 100 000 pixels, from its pixels", "predict", _large_slide),
    Figure("of the encoder's own speed, a prediction reaches", "limits", _reach),
    Figure("of what this processor can compute, the encoder reaches", "limits", _peak),
    Figure("int8", "precision", _int8),
    Figure(
        "accuracy without a limit, and under the tightest of each kind", "budget", _under_limits
    ),
    Figure(
        "extraction, ResNet-50, over a plain OpenSlide + PyTorch loop", "extract", _extraction_gain
    ),
    Figure("of the encoder's own speed, extraction reaches", "extract", _encoder_share),
    Figure("reading JPEG tiles, over OpenSlide, two threads", "readers", _reader),
    Figure("opening, mask and grid of a 100 000 x 100 000 slide", "generate", _opened),
    Figure("making that slide", "generate", _made),
    Figure("drawing a heatmap of a very large slide", "heatmap", _drawing),
    Figure("highest attention lies on a lesion, synthetic slides", "localise", _pointing),
    Figure(
        "a training step, over the published implementation's way of computing the same",
        "step",
        _training_step,
    ),
    Figure("of training, waiting for bags", "training", _waiting),
    Figure(
        "operations of the paper's zooming models, counted here and published",
        "flops",
        _operations,
    ),
    Figure("accuracy where only a learnt selection can succeed, by selection", "zoom_toy", _toy),
    Figure(f"synthetic slides, {POINTS}", "zoom_pays", _differences("Whole slides")),
    Figure(f"bags composed of them, {POINTS}", "zoom_pays", _differences("Composed bags")),
    Figure("what a magnification of these slides gives away of the class", "probe", _probe),
    Figure("classic MIL sets, accuracy, best method here", "mil_sets", _mil_sets),
)


def table(results: Path = RESULTS) -> str:
    """The rows that were measured."""
    rows = []
    for figure in FIGURES:
        path = results / f"{figure.bench}.json"
        if not path.exists():
            continue
        data = json.loads(path.read_text(encoding="utf-8"))
        value = figure.value(data)
        page = f"[`{data['command']}`](docs/results/{figure.bench}.md)"
        rows += [f"| {figure.what} | {value} | {page} |"] if value else []
    if not rows:
        return f"{NOTHING}\n"
    return "\n".join(["| what | figure | command |", "|---|---|---|", *rows]) + "\n"


def pages(results: Path = RESULTS) -> str:
    """The pages that were written, each with its title and command."""
    rows = []
    for path in sorted(results.glob("*.json")):
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        title = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        rows.append(f"| [{title}](results/{path.stem}.md) | `{command}` |")
    if not rows:
        return f"{NOTHING}\n"
    return "\n".join(["| page | command |", "|---|---|", *rows]) + "\n"


def precision_tables(results: Path = RESULTS) -> str:
    """The tables of the precision bench, under headings of a page's parts."""
    path = results / "precision.md"
    if not path.exists():
        return f"{NOTHING}\n"
    text = path.read_text(encoding="utf-8")
    return text[text.index("\n## ") + 1 :].replace("## ", "### ")


def filled(text: str, between: str) -> str:
    """A page with something between its marks."""
    start = text.index("\n", text.index(BEGIN)) + 1
    return text[:start] + between + text[text.index(END) :]


def written(results: Path = RESULTS) -> Iterator[tuple[Path, str]]:
    """Pages and how they should be."""
    yield README, filled(README.read_text(encoding="utf-8"), table(results))
    yield INDEX, filled(INDEX.read_text(encoding="utf-8"), pages(results))
    yield INT8, filled(INT8.read_text(encoding="utf-8"), precision_tables(results))


def main() -> int:
    """Write the pages, or with ``--check`` say whether one drifted."""
    drifted = {page: text for page, text in written() if page.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv:
        for page in drifted:
            sys.stderr.write(f"{page.name} drifted from docs/results; make generated\n")
        return int(bool(drifted))
    for page, text in drifted.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
