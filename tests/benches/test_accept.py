"""Bench accept: what is made is kept, what fails stops no other, the plan has every bench."""

from __future__ import annotations

import json

import pytest
from typer.main import get_command

import commands
from zoommil.benches import results
from zoommil.benches.accept import PLAN, accept, chosen, is_made
from zoommil.cli.app import app
from zoommil.errors import UnknownNameError

FLOPS = chosen("flops")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What accept wrote and said the first and the second time."""
    out = tmp_path_factory.mktemp("accept") / "results"
    words = ["bench", "accept", "--only", "flops", "--out", out, "--work", out.parent / "work"]
    return out, commands.run(*words), commands.run(*words)


def test_every_bench_is_in_the_plan_with_full_settings():
    benches = get_command(app).commands["bench"].commands  # pyright: ignore
    planned = {bench.words[0] for bench in PLAN}
    assert planned == set(benches) - {"accept"}
    for bench in PLAN:
        options = {option.name for option in benches[bench.words[0]].params}
        assert "out" in options
        assert bench.keeps_work == ("work" in options)
        assert set(bench.words[1:]) <= {"--threads", "1"}


def test_results_have_names_of_their_own():
    assert len({bench.name for bench in PLAN}) == len(PLAN)
    assert len({bench.result for bench in PLAN}) == len(PLAN)


def test_a_result_is_made_once(made):
    out, first, second = made
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "flops: made" in first.stdout
    assert "flops: kept" in second.stdout
    assert "made already" in second.stdout
    value = json.loads((out / "flops.json").read_text())
    assert value["command"] == "zoommil bench flops"
    assert value["code"] == results.code_version()


@pytest.mark.parametrize("change", [{"code": "another"}, {"command": "zoommil bench flops --fast"}])
def test_other_code_or_settings_are_no_result(made, tmp_path, change):
    value = json.loads((made[0] / "flops.json").read_text())
    (tmp_path / "flops.md").write_text("# page")
    (tmp_path / "flops.json").write_text(json.dumps(value))
    assert is_made(FLOPS[0], tmp_path)
    (tmp_path / "flops.json").write_text(json.dumps({**value, **change}))
    assert not is_made(FLOPS[0], tmp_path)
    (tmp_path / "flops.json").write_text('{"command": "zoom')
    assert not is_made(FLOPS[0], tmp_path)


def test_again_makes_it_again(made, tmp_path):
    ran = []
    run = lambda words: ran.append(words) or 0  # noqa: E731
    assert [one.state for one in accept(FLOPS, made[0], tmp_path, run)] == ["kept"]
    assert [one.state for one in accept(FLOPS, made[0], tmp_path, run, again=True)] == ["made"]
    assert ran == [["bench", "flops", "--out", str(made[0])]]


def test_a_bench_that_fails_is_named(made, monkeypatch, tmp_path):
    monkeypatch.setenv("ZOOMMIL_DATA", str(tmp_path / "nothing"))
    words = ["bench", "accept", "--only", "mil-sets,flops", "--out", made[0]]
    ended = commands.run(*words, cwd=tmp_path)
    assert ended.returncode == 1
    assert "flops: kept\nmil-sets: failed\n" in ended.stdout
    assert ended.stderr.splitlines()[-1].startswith("failed: mil-sets.")
    assert "CohortError: " in ended.stderr  # of the bench itself


def test_a_bench_that_fails_does_not_stop_the_others(tmp_path):
    benches, ran = chosen("flops,step,zoom"), []
    run = lambda words: ran.append(words[1]) or 1  # noqa: E731
    states = [one.state for one in accept(benches, tmp_path, tmp_path, run)]
    assert (states, ran) == (["failed"] * 3, ["flops", "step", "zoom"])


def test_a_bench_that_ends_well_and_writes_nothing_failed(tmp_path):
    assert [one.state for one in accept(FLOPS, tmp_path, tmp_path, lambda words: 0)] == ["failed"]


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownNameError, match=r"unknown bench 'flop'\. Did you mean 'flops'"):
        chosen("flop,predict")
