"""Row 16, bench accept: which benches make the full figures, and which of them are still to be run.

Every bench is a command of its own, run in a process of its own. A result that was made by the same
command and the same code is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoommil.benches.results import code_version
from zoommil.registry import unknown_name

Runner = Callable[[list[str]], int]
"""Runs the words after ``zoommil``; its exit code."""


@dataclass(frozen=True)
class Bench:
    """A bench of the plan.

    Attributes:
        name: what ``--only`` calls it.
        words: after ``zoommil bench``, with full settings.
        result: the name of its files.
        minutes: it takes about so long on two cores, its slides still to be made.
        keeps_work: whether it takes ``--work``.
    """

    name: str
    words: tuple[str, ...]
    result: str
    minutes: float
    keeps_work: bool = True

    @property
    def command(self) -> str:
        """What the result says it was made by."""
        return " ".join(("zoommil bench", *self.words))


PLAN = (
    Bench("flops", ("flops",), "flops", 0.2, keeps_work=False),
    Bench("generate", ("generate",), "generate", 2),
    Bench("heatmap", ("heatmap",), "heatmap", 3),
    Bench("extract", ("extract",), "extract", 3),
    Bench("readers", ("readers",), "readers", 4),
    Bench("limits", ("limits",), "limits", 4),
    Bench("predict", ("predict",), "predict", 20),
    Bench("predict-1thread", ("predict", "--threads", "1"), "predict-1thread", 60),
    Bench("step", ("step",), "step", 5, keeps_work=False),
    Bench("training", ("training",), "training", 10),
    Bench("zoom", ("zoom",), "zoom_toy", 30, keeps_work=False),
    Bench("mil-sets", ("mil-sets",), "mil_sets", 30),
    Bench("probe", ("probe",), "probe", 20),
    Bench("pays", ("pays",), "zoom_pays", 120),
    Bench("localise", ("localise",), "localise", 5),
    Bench("precision", ("precision",), "precision", 10),
    Bench("budget", ("budget",), "budget", 2),
)
"""Quick ones first; the last ones use what pays trained."""


@dataclass(frozen=True)
class Outcome:
    """How a bench of the plan ended: "made", "kept" or "failed"."""

    bench: Bench
    state: str


def chosen(only: str | None, plan: Sequence[Bench] = PLAN) -> tuple[Bench, ...]:
    """The benches named, comma-separated, in the plan's order; all without a name.

    Raises:
        UnknownNameError: a name that no bench has.
    """
    if only is None:
        return tuple(plan)
    names = [name.strip() for name in only.split(",")]
    known = [bench.name for bench in plan]
    for name in names:
        if name not in known:
            raise unknown_name("bench", name, known)
    return tuple(bench for bench in plan if bench.name in names)


def is_made(bench: Bench, out: Path) -> bool:
    """Whether ``out`` has the bench's page and numbers, by this command and this code."""
    path = out / f"{bench.result}.json"
    if not (path.exists() and path.with_suffix(".md").exists()):
        return False
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        return False
    return (value.get("command"), value.get("code")) == (bench.command, code_version())


def accept(
    benches: Sequence[Bench], out: Path, work: Path, run: Runner, *, again: bool = False
) -> Iterator[Outcome]:
    """Each bench with how it ended, as it ends; a failing one does not stop the others."""
    for bench in benches:
        if not again and is_made(bench, out):
            yield Outcome(bench, "kept")
            continue
        words = ["bench", *bench.words, "--out", str(out)]
        words += ["--work", str(work)] if bench.keeps_work else []
        has_ended_well = run(words) == 0 and is_made(bench, out)
        yield Outcome(bench, "made" if has_ended_well else "failed")
