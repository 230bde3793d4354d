"""Bench predict in its short form: exact patch counts, both paths, a page that says what it is."""

from __future__ import annotations

import json

import pytest

from zoommil.benches import predict
from zoommil.benches.large_slide import measure_large
from zoommil.benches.paper_tasks import BRIGHT, Task, Way
from zoommil.benches.predict_runs import ALONE, BY_PREDICTOR, Setup
from zoommil.benches.task_slides import TaskSlide, prepare_task
from zoommil.errors import ConfigError

ZOOMS = (Way("ZoomMIL", (1.25, 2.5), 2), Way("ZoomMIL-Eff", (1.25, 2.5), 1))
TINY = Task("tiny", 3, 4, 2.5, ZOOMS)
SLIDE = TaskSlide((2048, 1536), 0.5)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def times(work):
    return predict.run_task(TINY, work, Setup("fp32", 1), 1, "resnet18", SLIDE)


def test_the_slide_has_exactly_the_task_s_patches(work):
    from zoommil import PatchPyramid, find_tissue, open_slide

    prepared = prepare_task(TINY, work / "tasks", SLIDE)
    with open_slide(prepared.path) as slide:
        for way in (*TINY.zooms, TINY.exhaustive):
            pyramid = PatchPyramid.build(slide, find_tissue(slide), prepared.grid(way))
            assert pyramid.num_patches == (TINY.num_lowest, TINY.num_highest) == (4, 16)


def test_a_slide_with_too_little_tissue_is_refused(work):
    greedy = Task("tiny", 3, 1000, 5.0, TINY.zooms)
    with pytest.raises(ConfigError, match="cannot have exactly 1000 patches"):
        prepare_task(greedy, work / "tasks", SLIDE)


def test_every_path_is_timed_by_turns(times):
    counts = {path.name: len(path.samples) for path in times.paths}
    assert counts == {"ZoomMIL": 3, "ZoomMIL-Eff": 3, BY_PREDICTOR: 1, ALONE: 1}
    patches = {path.name: path.median.patches for path in times.paths}
    assert patches == {"ZoomMIL": 4 + 8, "ZoomMIL-Eff": 4 + 4, BY_PREDICTOR: 16, ALONE: 16}
    for path in times.paths:
        middle = sorted(sample.seconds for sample in path.samples)[(len(path.samples) - 1) // 2]
        assert path.median.seconds == middle
        if path.name != ALONE:
            assert {"open", "mask", "grid", "read", "encode", "head"} <= set(path.median.stages)
    assert times.raw > 0


def test_the_page(times, work, tmp_path):
    large = measure_large(work, Setup("fp32", 1), side_px=2048, encoder_name="resnet18")
    assert large.sample.patches / large.raw == large.encoding
    assert 0 < large.before < large.sample.seconds
    page = predict.page_of([times], [large], "zoommil bench predict").write(tmp_path).read_text()
    assert "| tiny | fp32, 1 thread" in page
    assert "## One thread" in page
    value = json.loads((tmp_path / "predict.json").read_text())
    by_way = {one["way"]: one for one in value["speedups"]}
    eff = by_way["ZoomMIL-Eff"]
    assert eff["times_quicker"] == eff["exhaustive_seconds"] / eff["seconds"]
    assert eff["times_fewer_flops"] == pytest.approx(16 / 8, rel=0.01)
    assert value["large"][0]["side_px"] == 2048


def test_targets_hold_for_the_paper_s_geometry_only():
    assert {key[0] for key in predict.TARGETS} == {BRIGHT.name}
    for (_, precision, threads), targets in predict.TARGETS.items():
        assert Setup(precision, threads) in predict.SETUPS["bright"]
        assert set(targets) == {way.name for way in BRIGHT.zooms}


def test_threads_and_tasks(tmp_path):
    assert predict.setups_of("bright", None) == predict.SETUPS["bright"]
    assert [one.threads for one in predict.setups_of("camelyon", 1)] == [1]
    assert predict.command_of(predict.CHOICES, None, 1) == "zoommil bench predict"
    assert predict.command_of(("crc",), 1, 2).endswith("--task crc --threads 1 --rounds 2")
    assert predict.name_of(predict.CHOICES, None) == "predict"
    assert predict.name_of(("bright",), 1) == "predict-bright-1thread"
    assert predict.name_of(predict.CHOICES, 2) == "predict-2threads"
    with pytest.raises(ConfigError, match="expected bright, crc, camelyon, large"):
        predict.bench_predict(tmp_path, tasks=["nothing"])
