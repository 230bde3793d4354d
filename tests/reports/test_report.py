"""The report: one page that stands alone, says what it knows and what it does not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report_pages import Page, part

from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.errors import PredictionError
from zoommil.reports.page import write_report, write_slide_reports
from zoommil.reports.sources import load_predictions
from zoommil.reports.summary import summarise

PARTS = ["quality", "answers", "slides", "localisation", "cost", "model", "limits"]
HOSTILE = "\"><script>alert('1')</script><img src=x onerror=alert(2)>&amp; {{7*7}}"


@pytest.fixture
def full(answers, cohort, trained, slide_path, tmp_path) -> str:
    """The source of a page with every part."""
    path = write_report(
        tmp_path / "full.html",
        answers,
        cohort=cohort,
        artefact=trained,
        rivals={"another": [replace(one, label="normal") for one in answers]},
        truth=str(slide_path.parent),
    )
    return path.read_text(encoding="utf-8")


def test_the_page_stands_alone(full):
    page = Page(full)
    assert not page.names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for link in page.links:
        assert link.startswith(("data:image/jpeg;base64,", "#")), link[:60]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|http-equiv", "", full)
    assert not re.search(r"url\(|@import|&lt;svg|&lt;path", full)
    assert "default-src 'none'" in full
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_every_part_is_there_and_says_what_it_is_for(full, answers, trained):
    found = [part(full, anchor) for anchor in PARTS]
    assert not any("Not known" in text or "Not measured" in text for text in found)
    quality, table, slides, places, cost, model, limits = found
    for words in ("Confusion matrix", "accuracy 0.667", "95% intervals", "recall", "area 0.75"):
        assert words in quality
    assert full.count('class="chart"') == 3  # reliability, ROC, loss by epoch
    assert all(one.slide_id in table for one in answers)
    assert "most attention at" in slides
    assert "pointing game" in places
    assert "every patch of the highest magnification" in cost
    assert f"temperature {trained.temperature:.3g}" in model
    assert "3 epochs" in model
    assert "not a medical device" in limits


def test_answers_are_those_of_the_predictions(full, answers, cohort):
    rows = Page(full).table("slide", "answer", "right when this sure")
    for row, one in zip(rows, answers, strict=True):
        assert row[0] == one.slide_id
        assert row[1] == cohort.slide(one.slide_id).label
        assert row[2] == f"{one.label} {'✗' if one.slide_id == 'c' else '✓'}"
        assert row[3:5] == [f"{value:.3f}" for value in one.probabilities.values()]
        assert row[-1] == f"{one.cost.patches} of {one.exhaustive_cost.patches}"
    # "b" is 0.8 sure, the two others 0.9: of the others as sure one in two was right, or so.
    assert [row[5].split()[:3] for row in rows] == [
        ["1", "of", "2"], ["1", "of", "2"], ["2", "of", "2"]
    ]  # fmt: skip


def test_the_confusion_matrix_counts_the_answers(full):
    rows = Page(full).table("normal", "high_grade", "")
    assert rows == [["normal", "150%", "150%"], ["high_grade", "00%", "1100%"]]


def test_what_is_missing_is_said(answers, tmp_path):
    text = write_report(tmp_path / "bare.html", answers).read_text(encoding="utf-8")
    Page(text)
    assert "no labels were given" in part(text, "quality")
    assert "--cohort" in part(text, "quality")
    assert "--truth" in part(text, "localisation")
    assert "--artefact" in part(text, "model")
    assert part(text, "slides").count("Not drawn: where the slide") == len(answers)
    assert "right when this sure" not in text
    assert "seconds –" not in part(text, "cost")
    assert "3 slides answered from" in text


def test_labels_of_other_classes_are_not_counted(answers, tmp_path):
    cohort = Cohort((SlideRow("b", None, "b", "benign"),), ("benign",), "cohort.csv")
    text = write_report(tmp_path / "a.html", answers, cohort=cohort).read_text(encoding="utf-8")
    assert "none of these slides has a label that is one of the model's" in part(text, "quality")


@pytest.mark.parametrize("single", [False, True])
def test_hostile_names_are_only_text(answers, tmp_path, single):
    classes = {HOSTILE: 0.1, "high_grade": 0.9}
    name = HOSTILE.replace("/", "|")
    one = replace(answers[0], slide_id=name, probabilities=classes, warnings=(HOSTILE,))
    cohort = Cohort((SlideRow(name, None, HOSTILE, HOSTILE),), tuple(classes), "cohort.csv")
    given = {"cohort": cohort, "name": HOSTILE, "title": HOSTILE, "rivals": {HOSTILE: [one]}}
    if single:
        (path,) = write_slide_reports(tmp_path, [one], **given)
    else:
        path = write_report(tmp_path / "hostile.html", [one], **given)
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.names & {"script"}
    assert all(link.startswith(("data:image/jpeg", "#")) for link in page.links)
    assert page.text.count("alert('1')") >= 6
    assert "49" not in page.text.replace("0.49", "")
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_each_slide_can_have_a_page(answers, cohort, trained, slide_path, tmp_path):
    paths = write_slide_reports(
        tmp_path, answers, cohort=cohort, artefact=trained, truth=str(slide_path.parent)
    )
    assert [path.name for path in paths] == [f"{one.slide_id}.html" for one in answers]
    text = paths[0].read_text(encoding="utf-8")
    page = Page(text)
    assert "high_grade, 90%" in page.text
    assert "Its label says the same." in page.text
    assert "1 of 2 slides; 95% interval" in page.text  # the two others, as sure or nearly
    assert 'id="quality"' not in text
    assert 'id="answers"' not in text
    assert "pointing game" in part(text, "localisation")
    assert "Its label says normal." in paths[2].read_text(encoding="utf-8")
    (only,) = write_slide_reports(tmp_path / "one", answers, only=["b"])
    assert only.name == "b.html"


def test_few_of_many_slides_are_drawn_the_wrong_ones_first(answers, cohort, tmp_path):
    text = write_report(
        tmp_path / "a.html", answers, cohort=cohort, most_drawn=1
    ).read_text(encoding="utf-8")  # fmt: skip
    assert "0 of 3 slides are drawn" in part(text, "slides")
    assert part(text, "slides").count("Not drawn") == 1
    assert "'c'" in part(text, "slides")  # the wrong one, whose slide is not there


def test_nothing_to_report_is_refused(tmp_path):
    with pytest.raises(PredictionError, match="no predictions"):
        write_report(tmp_path / "a.html", [])


def test_the_headline_claims_no_more_than_the_numbers(answers):
    truth = {"lesions": "high_grade", "b": "normal", "c": "normal"}
    agreeing = [replace(one) for one in answers]
    poorer = [replace(one, label="normal") for one in answers]
    assert summarise("a", answers, truth).headline.startswith("2 of 3 slides right from ")
    assert summarise("a", answers, truth, {"b": agreeing}).headline.startswith("The same answers")
    assert summarise("a", answers, truth, {"b": poorer}).headline.startswith("As many slides right")
    fewer = [replace(one, label="other") for one in answers]
    assert summarise("a", answers, truth, {"b": fewer}).headline.startswith("2 of 3 slides right")


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", ".hidden", "a\0b", ""])
def test_predictions_whose_slide_is_no_file_name_are_refused(answers, tmp_path, name):
    path = tmp_path / "predictions.jsonl"
    path.write_text(replace(answers[0], slide_id=name).to_json() + "\n")
    with pytest.raises(PredictionError, match="cannot be a file name"):
        load_predictions(path)
