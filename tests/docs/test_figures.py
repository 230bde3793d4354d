"""The README's figures are what the benches measured: read off their own JSON, none forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from pages import ROOT

import figures
from zoommil.benches import (
    extract,
    limits,
    mil_sets,
    predict,
    probe,
    step,
    training,
    zoom_pays_page,
)
from zoommil.benches.accept import PLAN
from zoommil.benches.budget import Point
from zoommil.benches.large_slide import LargeTimes
from zoommil.benches.predict_runs import Sample, Setup, TaskTimes, Timings
from zoommil.benches.readers import Speed
from zoommil.benches.results import BenchResult
from zoommil.benches.zoom_toy import ToyRow, ToyRun


def timings(name: str, seconds: float, patches: int) -> Timings:
    return Timings(name, (Sample(seconds, patches, patches * 10**9, {"read": seconds}),))


def task(name: str, precision: str, threads: int, zoom: float, everything: float) -> TaskTimes:
    paths = (timings("ZoomMIL", zoom, 300), timings("ZoomMIL-Eff", zoom / 2, 200))
    paths += (timings(predict.BY_PREDICTOR, everything, 4000),)
    paths += (timings(predict.ALONE, everything, 4000),)
    return TaskTimes(name, Setup(precision, threads), "torch", precision, 100.0, paths)


def contrast(first: str, second: str, value: float) -> zoom_pays_page.Contrast:
    return zoom_pays_page.Contrast(
        first, second, value, value - 0.1, value + 0.1, "above 0", value > 0
    )


def section(title: str, second: str) -> zoom_pays_page.Section:
    rows = tuple(
        zoom_pays_page.MethodRow(name, (0.8,), (0.8,), 100.0, share, 10)
        for name, share in (("ZoomMIL", 0.12), (second, 1.0))
    )
    return zoom_pays_page.Section(title, 60, rows, (contrast("ZoomMIL", second, 0.153),))


def results() -> Iterator[BenchResult]:
    """One result of every bench, as its own page is written, of made-up measurements."""
    times = [
        task("BRIGHT", "fp32", 1, 8.0, 100.0),
        task("BRIGHT", "bf16", 2, 2.0, 20.0),
        task("CRC", "bf16", 2, 2.0, 30.0),
    ]
    large = LargeTimes(100_000, Setup("auto", 2), Sample(31.0, 900, 1, {"open": 2.5}), 100.0, 3.14)
    yield predict.page_of(times, [large], "zoommil bench predict")
    yield predict.page_of(times[:1], [], "zoommil bench predict --threads 1", "predict-1thread")
    peaks = [limits.Peak("bf16", threads, 900.0, 1000.0) for threads in (1, 2)]
    alone = [limits.Alone("openvino", "bf16", threads, 58.4 * threads) for threads in (1, 2)]
    yield limits._page(peaks, alone, times[1:], "resnet18", None)
    speeds = {"plain loop": 20.0, "encoder alone fp32": 50.0, "native fp32": 45.0}
    speeds |= {"encoder alone bf16": 100.0, "native bf16": 95.0}
    yield extract._result(speeds, 500.0, 512)
    row = {"role": "prediction", "difference": -0.021}
    yield BenchResult("flops", "Operations", "zoommil bench flops", [], data={"rows": [row]})
    size = step.StepSize(60, 12, (2, 4))
    costs = [step.StepCost(size, name, s, 1, (0.1,)) for name, s in (("dense", 9.0), ("lean", 2.0))]
    yield step._result(costs, 1)
    cost = training.TrainingCost("zoommil", "memory", 1.0, 7.0, 2.0, 1.0, 2.0, 10**9)
    yield training._result([cost], training.TrainingSize(), 1)
    scores = [mil_sets.MilScore("musk1", name, (score,), 0.81) for name, score in
              (("abmil", 0.87), ("meanmil", 0.82))]  # fmt: skip
    yield mil_sets._result(scores, 5, 10)
    rows = [ToyRow(name, 0.0, (ToyRun(accuracy, 0.9),)) for name, accuracy in
            (("Diff, preset default", 0.97), ("Random K", 0.61))]  # fmt: skip
    data = {"rows": [asdict(row) for row in rows]}
    yield BenchResult("zoom_toy", "Toy", "zoommil bench zoom", [], data=data)
    found = tuple(probe.ProbeFigures(m, a, 9, 0.9, 9) for m, a in ((1.25, 0.35), (10.0, 0.91)))
    yield probe._page([probe.ProbeResult("grading", ("a", "b", "c"), 60, found, 0.3)], "lite0")
    sections = [section("Whole slides, grading", "ABMIL, lowest")]
    sections += [section("Composed bags, grading", "ABMIL, highest")]
    spec = {"magnifications": (1.25, 10.0), "patch_px": 128, "encoder": "lite0", "side_px": 6144}
    yield zoom_pays_page.page(sections, spec, ())
    data = {"size": [100_000, 90_000], "seconds": 9.5, "growth_bytes": 4e8}
    yield BenchResult("heatmap", "Heatmap", "zoommil bench heatmap", [], data=data)
    data = {"pointing_highest": 0.71, "chance_highest": 0.08}
    yield BenchResult("localise", "Localise", "zoommil bench localise", [], data=data)
    agreement = [{"precision": "int8", "predictions_changed": 1, "num_slides": 60}]
    rates = [{"encoder": "resnet50", "threads": 2, "precision": p, "patches_per_second": r}
             for p, r in (("bf16", 100.0), ("int8", 180.0))]  # fmt: skip
    data = {"agreement": agreement, "speed": rates}
    yield BenchResult("precision", "Precision", "zoommil bench precision", [], data=data)
    points = [Point("the model itself", 0.0, 100.0, 9.0, 0.1, 0.9, 0.9)]
    points += [
        Point("budget", value, value, value, 0.1, value / 100, 0.5) for value in (50.0, 80.0)
    ]
    data = {"points": [asdict(point) for point in points]}
    yield BenchResult("budget", "Budget", "zoommil bench budget", [], data=data)
    data = {"made": {"seconds": 200.0, "peak_gb": 1.0}, "opened": {"seconds": 3.2, "peak_gb": 0.5}}
    yield BenchResult("generate", "Generate", "zoommil bench generate", [], data=data)
    speed = Speed("native", 2, 1000.0, 3500.0)
    data = {"speeds": [{**vars(speed), "ratio": speed.ratio}]}
    yield BenchResult("readers", "Readers", "zoommil bench readers", [], data=data)


EXPECTED = {
    "BRIGHT's sizes, bf16": "ZoomMIL **10.0 times** (2.0 s instead of 20.0 s, 300 of 4000 patches)",
    "the same, fp32 on one core": "ZoomMIL-Eff **25.0 times** (4.0 s instead of 100.0 s",
    "CRC's sizes": "ZoomMIL **15.0 times**",
    "slides an hour on one core, BRIGHT": "ZoomMIL 450 (BRIGHT, fp32)",
    "a slide of 100 000": "31 s (2.5 s before the first patch), 3.1 GB",
    "a prediction reaches": "133% to 200%",
    "what this processor can compute": "openvino bf16 55%",
    "plain OpenSlide + PyTorch loop": "fp32 **2.2 times** (45 patches a second instead of 20)",
    "extraction reaches": "bf16 95%",
    "reading JPEG tiles": "native 3.5 times",
    "opening, mask and grid": "3.2 s, 0.50 GB",
    "operations of the paper": "1 rows within 2.1%",
    "drawing a heatmap": "9.5 s, 0.40 GB (100000 x 90000 pixels)",
    "highest attention lies": "0.71, a patch at random 0.08",
    "| int8 |": "1 of 60 answers change; resnet50 1.8 times the speed of bf16",
    "accuracy without a limit": "0.90 from 100 patches a slide unlimited; budget 0.50 from 50",
    "a training step": "**4.5 to 4.5 times**",
    "waiting for bags": "zoommil (memory) 10%",
    "only a learnt selection": "learnt 0.97; random 0.61",
    "synthetic slides, points": "ABMIL, lowest +15.3 (+5.3 to +25.3; 12% and 100% of the patches)",
    "bags composed": "ZoomMIL − ABMIL, highest +15.3",
    "gives away of the class": "0.35 at 1.25x, 0.91 at 10x (chance 0.33)",
    "classic MIL sets": "musk1 0.87 by abmil, the SVM 0.81",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of results as ``bench accept`` leaves it."""
    folder = tmp_path_factory.mktemp("results")
    for result in results():
        result.write(folder)
    return folder


def test_figures_are_those_of_the_json(written):
    table = figures.table(written).splitlines()
    for what, value in EXPECTED.items():
        row = next(line for line in table if what in line)
        assert value in row, row
    assert not any("CAMELYON16" in line for line in table)  # was not measured


def test_every_bench_of_the_plan_has_a_figure(written):
    assert {bench.result for bench in PLAN} == {figure.bench for figure in figures.FIGURES}
    assert {path.stem for path in written.glob("*.json")} == {bench.result for bench in PLAN}
    listed = figures.pages(written)
    assert all(f"(results/{bench.result}.md)" in listed for bench in PLAN)


def test_nothing_measured_says_so(tmp_path):
    assert "make accept" in figures.table(tmp_path)
    assert "make accept" in figures.pages(tmp_path)


def test_commands_beside_the_readmes_figures_are_those_that_measured_them():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"\| \[`(.+?)`\]\(docs/results/([\w-]+)\.md\) \|$", text, re.MULTILINE)
    measured = list((ROOT / "docs" / "results").glob("*.json"))
    assert bool(rows) == bool(measured)
    for command, name in rows:
        data = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
        assert data["command"] == command
