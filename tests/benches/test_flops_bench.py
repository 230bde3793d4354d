"""Check 16: the paper's operations, counted from the networks as they run."""

from __future__ import annotations

import json

import pytest
import torch

from zoommil.benches.flops import PUBLISHED, bench_flops, patch_macs, rows_of
from zoommil.benches.paper_tasks import BRIGHT, CAMELYON, CRC, TASKS, zoom_counts


def macs_by_hooks(name: str, side: int) -> int:
    """Multiply-accumulates of the convolutions, by a hook on each of them."""
    from zoommil.encoders.building import build_network
    from zoommil.encoders.card import find_card

    total = 0

    def count(conv, inputs, output):
        nonlocal total
        total += output.numel() * conv.weight[0].numel()

    network = build_network(find_card(name))  # weights as drawn
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)
    with torch.inference_mode():
        network(torch.zeros(1, 3, side, side))
    return total


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        ("resnet50", 256, 4_281_335_808),
        ("resnet34", 256, 4_784_652_288),
    ],
)
def test_check_16_one_patch_by_hooks_and_by_the_counter(name, side, expected):
    assert macs_by_hooks(name, side) == patch_macs(name) == expected


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_check_16_every_row_is_the_published_one(task):
    for row in rows_of(task):
        allowed = 0.02 if row.role == "prediction" else 0.005
        assert abs(row.difference) <= allowed, row
        assert row.encoder_macs == row.patches * patch_macs(row.encoder)
        assert 0 < row.model_macs < 0.002 * row.encoder_macs


def test_the_paper_s_patches():
    """The counts of the tables, from N_1 and K alone."""
    counts = {
        (task.name, way.name): sum(zoom_counts(task.num_lowest, way.ratios, way.k))
        for task in TASKS.values()
        for way in task.zooms
    }
    assert counts == {
        ("BRIGHT", "ZoomMIL"): 300,
        ("BRIGHT", "ZoomMIL-Eff"): 92,
        ("CRC", "ZoomMIL"): 327,
        ("CRC", "ZoomMIL-Eff"): 247,
        ("CAMELYON16", "ZoomMIL"): 3484,
    }
    assert [task.num_highest for task in (BRIGHT, CRC, CAMELYON)] == [3840, 3184, 9136]
    assert zoom_counts(3, (2, 4), 12) == (3, 12, 192)


def test_the_page_has_every_row_and_says_what_is_predicted(tmp_path):
    page = bench_flops().write(tmp_path).read_text()
    rows = json.loads((tmp_path / "flops.json").read_text())["rows"]
    assert len(rows) == sum(len(methods) for methods in PUBLISHED.values())
    assert page.count("| **prediction** |") == 5
    assert "only the zoom rows, marked as predictions" in page
    assert all(row["flops"] == 2 * row["macs"] for row in rows)
