"""``zoommil doctor`` as a user sees it: text, JSON, exit codes."""

from __future__ import annotations

import json

import pytest

from zoommil.diagnosis import Finding


def test_json_is_one_line_with_every_finding(zoommil):
    ended = zoommil("doctor", "--quick", "--json")
    found = json.loads(ended.output)
    assert found["is_well"] is True
    assert ended.code == 0
    assert {"version", "packages", "memory", "threads"} <= {f["name"] for f in found["findings"]}
    assert ended.output.count("\n") == 1


@pytest.mark.parametrize("status", ["ok", "note", "problem"])
def test_a_problem_has_its_remedy_below_and_exit_code_1(zoommil, monkeypatch, status):
    finding = Finding("disk", status, "0.1 GB free", "free some space")
    monkeypatch.setattr("zoommil.diagnosis.diagnose", lambda *a, **k: iter([finding]))
    ended = zoommil("doctor")
    assert ended.code == (1 if status == "problem" else 0)
    assert "disk: 0.1 GB free" in ended.output
    assert ("free some space" in ended.output) == (status != "ok")


def test_an_unknown_encoder(zoommil):
    ended = zoommil("doctor", "--quick", "--encoder", "resnet5")
    assert ended.code == 1
    assert "Did you mean 'resnet50'" in ended.errors
