"""Row 13, page: predictions, slides and model come in; one self-contained HTML file goes out.

A report is of many slides, or of one; a part that cannot be written says why and what adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoommil.artefact import Artefact
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.errors import PredictionError, ZoomMILError
from zoommil.files import write_text
from zoommil.inference.prediction import Prediction
from zoommil.reports import wording
from zoommil.reports.costs import cost_section
from zoommil.reports.document import Page, render
from zoommil.reports.localisation import LocalisationSummary, localise
from zoommil.reports.localisation import summarise as summarise_places
from zoommil.reports.model_section import model_section
from zoommil.reports.patch_grid import draw_patch_grid
from zoommil.reports.quality import quality_of
from zoommil.reports.slide_section import (
    Peers,
    SlidePictures,
    SlideSection,
    draw_slide,
    peers_of,
    section_of,
)
from zoommil.reports.sources import open_predicted
from zoommil.reports.summary import Summary, counted, evaluation_of, labels_of, summarise
from zoommil.reports.truth import Region, read_regions, truth_path_of

MOST_DRAWN = 24


@dataclass(frozen=True)
class Given:
    """What a report is made from beside predictions, as :func:`write_report` explains it."""

    cohort: Cohort | None
    artefact: Artefact | None
    rivals: dict[str, Sequence[Prediction]]
    truth: str | None
    name: str | None
    title: str | None
    most_drawn: int = MOST_DRAWN

    @property
    def rows(self) -> dict[str, SlideRow]:
        """The cohort's slides by id."""
        return {} if self.cohort is None else {row.slide_id: row for row in self.cohort.slides}

    @property
    def labels(self) -> dict[str, str]:
        """The true class of every slide that has one."""
        return labels_of(self.cohort)

    @property
    def model_name(self) -> str:
        """What sentences call the model."""
        return self.name or wording.model_name(self.artefact)

    def of_slide(self, slide_id: str) -> Given:
        """The same, of the other models only those that answered this slide, and only that."""
        rivals = {
            name: [one for one in answers if one.slide_id == slide_id]
            for name, answers in self.rivals.items()
        }
        return replace(self, rivals={name: one for name, one in rivals.items() if one})


def write_report(
    path: Path | str,
    predictions: Sequence[Prediction],
    *,
    cohort: Cohort | None = None,
    artefact: Artefact | None = None,
    rivals: Mapping[str, Sequence[Prediction]] | None = None,
    truth: str | None = None,
    name: str | None = None,
    title: str | None = None,
    most_drawn: int = MOST_DRAWN,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write the report of some predictions as one page; returns its path.

    Args:
        path: of the HTML file.
        predictions: at least one.
        cohort: labels, cases and where the slides lie; without it, where they lay when predicted.
        artefact: the model that answered, to say how it was trained.
        rivals: other models' predictions of the same slides, by name.
        truth: annotated areas: a folder of GeoJSON files by slide, or a column of the cohort.
        name: of the model, in sentences.
        title: of the page.
        most_drawn: slides with pictures; wrong answers come first, then the least sure.
        progress: called with the number of slides done since the last call.

    Raises:
        PredictionError: there are no predictions.
    """
    given = Given(cohort, artefact, dict(rivals or {}), truth, name, title, most_drawn)
    predictions = _some(predictions)
    summary = summarise(given.model_name, predictions, given.labels, given.rivals)
    areas = _areas(predictions, given)
    sections = _sections(predictions, given, areas, progress)
    page = _page(predictions, given, summary, areas, sections, is_single=False)
    write_text(path, render(page))
    return Path(path)


def write_slide_reports(
    folder: Path | str,
    predictions: Sequence[Prediction],
    *,
    only: Sequence[str] | None = None,
    cohort: Cohort | None = None,
    artefact: Artefact | None = None,
    rivals: Mapping[str, Sequence[Prediction]] | None = None,
    truth: str | None = None,
    name: str | None = None,
    title: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Path]:
    """Write one page per slide, ``<slide_id>.html``; returns their paths.

    Args:
        folder: of the pages.
        predictions: of the cohort: how often answers as sure were right is counted over all.
        only: slides to write the page of; None: all.
        cohort, artefact, rivals, truth, name, title, progress: as :func:`write_report` takes them.

    Raises:
        PredictionError: there are no predictions.
    """
    given = Given(cohort, artefact, dict(rivals or {}), truth, name, title)
    peers = peers_of(_some(predictions), given.labels)
    paths = []
    for one in predictions:
        if only is None or one.slide_id in only:
            page = _slide_page(one, given, peers[one.slide_id])
            paths.append(Path(folder) / f"{one.slide_id}.html")
            write_text(paths[-1], render(page))
            if progress is not None:
                progress(1)
    return paths


def _some(predictions: Sequence[Prediction]) -> Sequence[Prediction]:
    if not predictions:
        raise PredictionError("there are no predictions to report. Run 'zoommil predict' first.")
    return predictions


def _slide_page(prediction: Prediction, given: Given, peers: Peers | None) -> Page:
    """The page of one slide."""
    given = given.of_slide(prediction.slide_id)
    areas = _areas([prediction], given)
    here = areas.get(prediction.slide_id, ())
    pictures, reason = _drawn(prediction, given.rows, here)
    row = given.rows.get(prediction.slide_id)
    section = section_of(prediction, row, peers, pictures, reason)
    summary = summarise(given.model_name, [prediction], given.labels, given.rivals)
    return _page([prediction], given, summary, areas, [section], is_single=True)


def _page(
    predictions: Sequence[Prediction],
    given: Given,
    summary: Summary,
    areas: Mapping[str, Sequence[Region]],
    sections: Sequence[SlideSection],
    *,
    is_single: bool,
) -> Page:
    quality = None if is_single else quality_of(evaluation_of(predictions, given.cohort))
    places = _places(predictions, areas)
    model = given.artefact and model_section(given.artefact, [one.slide_id for one in predictions])
    missing = {
        "quality": wording.why_no_quality(given.cohort is not None, bool(given.labels)),
        "localisation": wording.why_no_places(given.truth),
        "model": wording.NO_MODEL,
    }
    there = {"quality": quality, "localisation": places, "model": model}
    headline, sentence = summary.headline, summary.sentence
    figures = wording.figures_of(summary)
    if is_single:
        headline = wording.slide_headline(sections[0])
        sentence = wording.slide_sentence(sections[0], given.model_name, predictions[0])
        figures = wording.figures_of_slide(sections[0], summary, given.artefact)
    what = predictions[0].slide_id if is_single else counted(len(predictions), "slide")
    return Page(
        title=given.title or f"{given.model_name} on {what}",
        headline=headline,
        sentence=sentence,
        is_single=is_single,
        classes=tuple(predictions[0].probabilities),
        figures=tuple(figures),
        patch_grid=draw_patch_grid(summary.first.patches, summary.exhaustive_patches),
        patch_caption=wording.grid_caption(summary),
        costs=cost_section(predictions, summary, list(given.rivals.values())),
        quality=quality,
        localisation=places,
        sections=tuple(sections),
        answers_note=wording.answers_note(given.artefact, bool(given.labels)),
        slides_note=wording.slides_note(sections),
        model=model,
        missing={name: why for name, why in missing.items() if not there[name]},
        artefact_hash=str(predictions[0].provenance.get("artefact") or "")[:16],
        has_truth=bool(given.labels),
    )


def _areas(predictions: Sequence[Prediction], given: Given) -> dict[str, tuple[Region, ...]]:
    """The annotated areas of each slide that has some."""
    if given.truth is None:
        return {}
    found, rows = {}, given.rows
    for one in predictions:
        row = rows.get(one.slide_id, SlideRow(one.slide_id, None, one.slide_id))
        source = "" if given.cohort is None else given.cohort.source
        path = truth_path_of(row, given.truth, source)
        if path is not None:
            found[one.slide_id] = read_regions(path)
    return found


def _sections(
    predictions: Sequence[Prediction],
    given: Given,
    areas: Mapping[str, Sequence[Region]],
    progress: Callable[[int], None] | None,
) -> list[SlideSection]:
    """A section per slide, in the predictions' order; slides that cannot be drawn say why."""
    rows, labels = given.rows, given.labels
    peers = peers_of(predictions, labels)
    drawn = {one.slide_id for one in worth_a_look(predictions, labels)[: given.most_drawn]}
    sections = []
    for one in predictions:
        pictures, reason = None, None
        if one.slide_id in drawn:
            pictures, reason = _drawn(one, rows, areas.get(one.slide_id, ()))
        row = rows.get(one.slide_id)
        sections.append(section_of(one, row, peers[one.slide_id], pictures, reason))
        if progress is not None:
            progress(1)
    return sections


def _drawn(
    prediction: Prediction, rows: Mapping[str, SlideRow], areas: Sequence[Region]
) -> tuple[SlidePictures | None, str | None]:
    """The pictures of a slide, or why there are none."""
    try:
        with open_predicted(prediction, rows) as slide:
            return draw_slide(prediction, slide, areas), None
    except ZoomMILError as error:
        return None, str(error)


def worth_a_look(predictions: Sequence[Prediction], labels: Mapping[str, str]) -> list[Prediction]:
    """The predictions, wrong answers first, then the least sure."""

    def urgency(one: Prediction) -> tuple[bool, float]:
        is_wrong = labels.get(one.slide_id, one.label) != one.label
        return not is_wrong, one.probabilities[one.label]

    return sorted(predictions, key=urgency)


def _places(
    predictions: Sequence[Prediction], areas: Mapping[str, Sequence[Region]]
) -> tuple[LocalisationSummary, ...]:
    """Attention against annotated areas, of the slides whose patches lie somewhere known."""
    found = [
        localise(one, areas[one.slide_id])
        for one in predictions
        if areas.get(one.slide_id) and all(step.boxes is not None for step in one.steps)
    ]
    return summarise_places(found)
