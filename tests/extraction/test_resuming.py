"""Extraction that is killed, shared or repeated: the same files as in one quiet run."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest

from commands import ARGUMENTS, NUM_SLIDES, bags_in, interrupt, room_for, run, run_here, start


def kill_and_resume(slide_folder, out, finished, num_kills: int, seed: int) -> None:
    """Kill extract at random moments, then let it finish: the same bytes, nothing left over."""
    clock = random.Random(seed)
    for _ in range(num_kills):
        process = start("extract", slide_folder, "-o", out, *ARGUMENTS)
        time.sleep(clock.uniform(0.0, 8.0))
        process.send_signal(clock.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT]))
        process.communicate(timeout=60)
        for name, content in bags_in(out).items():
            assert content == finished[name], "a final file was half-written"
    done = run("extract", slide_folder, "-o", out, *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert bags_in(out) == finished
    assert not list(out.glob(".*.tmp"))


def test_killed_three_times_and_resumed(slide_folder, tmp_path, finished):
    kill_and_resume(slide_folder, tmp_path, finished, num_kills=3, seed=0)


@pytest.mark.slow
def test_killed_twenty_times_and_resumed(slide_folder, tmp_path, finished):
    for attempt in range(4):
        kill_and_resume(slide_folder, tmp_path / str(attempt), finished, num_kills=5, seed=attempt)


def test_two_runs_share_a_folder(slide_folder, tmp_path, finished):
    processes = [start("extract", slide_folder, "-o", tmp_path, *ARGUMENTS) for _ in range(2)]
    reports = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        reports += [json.loads(line) for line in output.splitlines()]
    made = [report["slide_id"] for report in reports if report["status"] == "made"]
    assert sorted(made) == [f"s{number}" for number in range(NUM_SLIDES)]
    assert bags_in(tmp_path) == finished


@pytest.mark.parametrize(
    "options", [["--workers", "2"], ["--batch-size", "1"], ["--batch-size", "50"]]
)
def test_h10_files_do_not_depend_on_workers_or_batches(slide_folder, tmp_path, finished, options):
    done = run("extract", slide_folder, "-o", tmp_path, *ARGUMENTS, *options)
    assert done.returncode == 0, done.stderr
    assert bags_in(tmp_path) == finished


def test_h3_a_changed_threshold_makes_new_bags(slide_folder, tmp_path):
    slide = slide_folder / "s0.svs"
    statuses = []
    for threshold in ("0.1", "0.1", "0.9", "0.9"):
        done = run("extract", slide, "-o", tmp_path, *ARGUMENTS, "--tissue-threshold", threshold)
        statuses.append(json.loads(done.stdout)["status"])
    assert statuses == ["made", "kept", "made", "kept"]


def test_h5_a_truncated_bag_is_made_again(slide_folder, tmp_path, finished):
    (tmp_path / "s0.h5").write_bytes(finished["s0.h5"][:-4000])
    done = run("extract", slide_folder / "s0.svs", "-o", tmp_path, *ARGUMENTS)
    assert json.loads(done.stdout)["status"] == "made"
    assert (tmp_path / "s0.h5").read_bytes() == finished["s0.h5"]


def test_h16_a_failed_slide_is_reported_under_its_own_name(slide_folder, tmp_path):
    folder = tmp_path / "slides"
    folder.mkdir()
    for name in ("s0.svs", "s1.svs"):
        os.link(slide_folder / name, folder / name)
    (folder / "bad.svs").write_text("not a slide")
    done = run("extract", folder, "-o", tmp_path / "out", *ARGUMENTS)
    assert done.returncode == 1
    failures = (tmp_path / "out" / "failures.csv").read_text().splitlines()
    assert len(failures) == 2
    assert failures[1].startswith("bad,")
    assert sorted(bags_in(tmp_path / "out")) == ["s0.h5", "s1.h5"]
    assert "Traceback" not in done.stderr


def test_interrupted_with_two_workers_and_resumed(slide_folder, tmp_path, finished):
    words = ["extract", slide_folder, "-o", tmp_path, *ARGUMENTS, "--workers", "2"]
    process = start(*words)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    interrupt(process, signal.SIGTERM)
    assert not list(tmp_path.glob(".*.tmp"))
    done = run(*words)
    assert done.returncode == 0, done.stderr
    statuses = {
        line["slide_id"]: line["status"] for line in map(json.loads, done.stdout.split("\n")[:-1])
    }
    assert statuses[first["slide_id"]] == "kept"
    assert bags_in(tmp_path) == finished


def test_a_full_disk_ends_the_run_at_once_and_loses_nothing(
    slide_folder, tmp_path, finished, capsys, monkeypatch
):
    words = ["extract", slide_folder, "-o", tmp_path, *ARGUMENTS]
    (tmp_path / "s0.h5").write_bytes(finished["s0.h5"])
    with room_for(50_000):
        ended = run_here(capsys, monkeypatch, *words)
    assert ended.code == 1
    (line,) = ended.errors.splitlines()
    assert line.startswith("DiskFullError: cannot write")
    assert line.endswith("free space, then run the same command again.")
    assert json.loads(ended.output)["status"] == "kept"  # of the others not one was tried in vain
    assert bags_in(tmp_path) == {"s0.h5": finished["s0.h5"]}
    assert not list(tmp_path.glob(".*.tmp"))
