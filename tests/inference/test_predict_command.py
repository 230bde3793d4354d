"""The predict and verify commands: what they print, and one line for whatever is wrong."""

from __future__ import annotations

import json
import logging
import shutil
import sys

import numpy as np
import pytest

from zoommil.cli.app import main
from zoommil.synthetic.slide import SlideSpec, write_slide


@pytest.fixture
def zoommil(monkeypatch, capsys):
    """``zoommil(*words)`` -> exit code, standard output, standard error; in this process."""
    package = logging.getLogger("zoommil")
    before = (package.handlers[:], package.level, package.propagate)

    def call(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["zoommil", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    yield call
    package.handlers[:], package.level, package.propagate = before


OPTIONS = ("--weights", "random:0", "--device", "cpu")


def test_predict_one_slide_prints_the_whole_prediction(zoommil, artefact, slides, predictor):
    code, out, err = zoommil("predict", artefact.folder, slides[0], *OPTIONS)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found.pop("measured")["seconds"]["total"] > 0
    assert found == json.loads(predictor.predict(slides[0]).to_json())


def test_predict_a_folder_then_verify(zoommil, artefact, slides, tmp_path):
    words = ("predict", artefact.folder, slides[0].parent, "-o", tmp_path, *OPTIONS)
    code, out, err = zoommil(*words, "--geojson", "--budget-patches", 60)
    assert code == 0
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["made"] * 3
    assert "all of the highest magnification" in err
    names = ["cases.csv", "cost.json", "geojson", "predictions.jsonl", "slides.csv"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == names
    assert len(list((tmp_path / "geojson").glob("*.geojson"))) == 3
    code, out, _ = zoommil(*words, "--budget-patches", 60)
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["kept"] * 3
    lines = tmp_path / "predictions.jsonl"
    code, out, err = zoommil("verify", lines, "--weights", "random:0", "--device", "cpu")
    assert (code, err) == (0, "")
    assert [json.loads(line)["is_exact"] for line in out.splitlines()] == [True] * 3
    changed = [json.loads(line) for line in lines.read_text().splitlines()]
    changed[1]["label"] = "high" if changed[1]["label"] != "high" else "low"
    lines.write_text("\n".join(map(json.dumps, changed)) + "\n")
    code, out, err = zoommil("verify", lines, "--weights", "random:0", "--device", "cpu")
    assert code == 1
    assert "1 of 3 predictions were not confirmed" in err
    assert "label: " in json.loads(out.splitlines()[1])["differences"][0]


@pytest.fixture(scope="module")
def coarse(tmp_path_factory):
    """A slide scanned at 5x, for a model that looks at 10x."""
    path = tmp_path_factory.mktemp("coarse") / "coarse.svs"
    write_slide(path, SlideSpec(size_px=(512, 512), magnification=5, downsamples=(1, 4)), seed=0)
    return path


def save_png(path, value: int):
    from PIL import Image

    Image.fromarray(np.full((1024, 1024, 3), value, np.uint8)).save(path)
    return path


def test_bad_input_is_one_line(zoommil, artefact, slides, coarse, tmp_path):
    white = save_png(tmp_path / "white.png", 255)
    old = shutil.copytree(artefact.folder, tmp_path / "old")
    text = (old / "artefact.json").read_text()
    (old / "artefact.json").write_text(text.replace('"format_version": 1', '"format_version": 9'))
    changed = shutil.copytree(artefact.folder, tmp_path / "changed")
    with (changed / "model.safetensors").open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x7f")
    (tmp_path / "file").write_text("")
    model = artefact.folder
    cases = [
        (model, coarse, (), "more than 10% finer"),
        (model, white, (), "has no usable mpp"),
        (model, white, ("--mpp", 1.0), "no tissue that could be found"),
        (old, slides[0], (), "artefact of format 9"),
        (changed, slides[0], (), "is not the file that artefact.json was written with"),
        (tmp_path, slides[0], (), "is not an artefact"),
        (model, slides[0], ("--budget-patches", 0), "give at least"),
        (model, slides[0], ("--budget-gflops", 0), "give at least"),
        (model, slides[0], ("--budget-seconds", 0), "give more than that"),
        (model, slides[0], ("--budget-patches", -1), "budget_patches is -1"),
        (model, slides[0], ("--exit-confidence", 1.5), "exit_confidence is 1.5"),
        (model, slides[0], ("--k", "many"), "expected whole numbers"),
        (model, slides[0], 2 * ("--weights", "random:1"), "not that of the artefact: weights_hash"),
        (model, slides[0], ("--weights", "random:1"), "2 weights were given for 3 magnifications"),
        (model, slides[0], ("-o", tmp_path / "file" / "out"), "cannot write"),
        (model, slides[0], ("--geojson",), "Add --out DIR"),
        (model, tmp_path / "lost.svs", (), "does not exist"),
    ]
    for folder, slide, options, expected in cases:
        code, out, err = zoommil("predict", folder, slide, *OPTIONS, *options)
        lines = [line for line in err.splitlines() if not line.startswith("WARNING")]
        assert code == 1, (expected, err)
        assert expected in lines[0], err
        assert len(lines) == 1, err
        assert out == ""
        assert "Traceback" not in err


def test_two_slides_of_one_name_are_refused(zoommil, artefact, slides, tmp_path):
    other = shutil.copy(slides[1], tmp_path / "s0.svs")
    code, _, err = zoommil("predict", artefact.folder, slides[0], other, *OPTIONS)
    assert code == 1
    assert "would both be called 's0'" in err


def test_evaluate_from_pixels_is_evaluate_from_bags(zoommil, artefact, slides, bags, tmp_path):
    from zoommil.bags.store import write_bag

    lines = ["case_id,slide_id,label,path"]
    for number, (path, bag) in enumerate(zip(slides, bags, strict=True)):
        write_bag(bag, tmp_path / "bags" / f"{path.stem}.h5")
        lines.append(f"c{number},{path.stem},{artefact.classes[number]},{path}")
    table = tmp_path / "cohort.csv"
    table.write_text("\n".join(lines) + "\n")
    words = ("evaluate", artefact.folder, table, "--json", "--device", "cpu")
    code, stored, err = zoommil(*words, "--bags", tmp_path / "bags")
    assert (code, err) == (0, "")
    code, fresh, err = zoommil(*words, "--from-pixels", "--weights", "random:0")
    assert (code, err) == (0, "")
    for name, value in json.loads(stored)["slide"]["metrics"].items():
        assert json.loads(fresh)["slide"]["metrics"][name] == pytest.approx(value, abs=1e-5), name
    code, _, err = zoommil(*words)
    assert code == 1
    assert "either --bags" in err
