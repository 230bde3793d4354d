"""Bench limits in its short form: shares are of peaks measured beside them."""

from __future__ import annotations

import json

import pytest

from zoommil.benches.limits import bench_limits
from zoommil.benches.paper_tasks import Task, Way
from zoommil.benches.task_slides import TaskSlide

TINY = Task("tiny", 3, 4, 2.5, (Way("ZoomMIL-Eff", (1.25, 2.5), 1),))


def test_limits(tmp_path):
    result = bench_limits(
        tmp_path,
        threads=1,
        encoder_name="resnet18",
        task=TINY,
        slide=TaskSlide((2048, 1536), 0.5),
        num_patches=8,
        matrix_sides=(256, 512),
    )
    page = result.write(tmp_path).read_text()
    value = json.loads((tmp_path / "limits-1thread.json").read_text())
    assert value["command"] == "zoommil bench limits --threads 1"
    peaks = {one["precision"]: one for one in value["peaks"]}
    assert set(peaks) == {"fp32", "bf16"}
    for one in value["encoder_alone"]:
        peak = peaks[one["precision"]]
        best = max(peak["matrix_product"], peak["convolution"])
        gflops = one["patches_per_second"] * value["gflop_per_patch"]
        assert one["share_of_peak"] == pytest.approx(gflops / best)
    assert {one["runtime"] for one in value["encoder_alone"]} >= {"torch"}
    for one in value["predict"]:
        assert 0 < one["share_of_peak"] < one["share_of_encoder"] < 2
    assert page.count("| tiny |") == 2
