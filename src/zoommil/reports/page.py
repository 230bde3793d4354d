"""Row 13, page: predictions, slides and model come in; one self-contained HTML file goes out.

The page asks nothing of any server: style and pictures are inside, there is no script, and its
content policy forbids everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoommil import __version__
from zoommil.artefact import Artefact
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.errors import PredictionError, ZoomMILError
from zoommil.files import write_text
from zoommil.inference.prediction import Prediction
from zoommil.reports.localisation import LocalisationSummary, localise, wilson_interval
from zoommil.reports.localisation import summarise as summarise_places
from zoommil.reports.model_section import ModelSection, model_section
from zoommil.reports.patch_grid import draw_patch_grid
from zoommil.reports.quality import Quality, quality_of
from zoommil.reports.slide_section import SlideSection, draw_slide, peers_of, section_of
from zoommil.reports.sources import open_predicted
from zoommil.reports.summary import (
    Summary,
    counted,
    evaluation_of,
    labels_of,
    number,
    percent,
    summarise,
)
from zoommil.reports.truth import Region, read_regions, truth_path_of
from zoommil.reports.zoom_path import STEP_COLOURS

MOST_DRAWN = 24

LIMITS = (
    "Diagnosis, prognosis, treatment or triage of a patient: it is not a medical device, and no "
    "authority has assessed it.",
    "Slides unlike those it was trained on: another organ, stain, scanner, laboratory or way of "
    "preparing tissue. It gives an answer to those too, and does not say that it should not.",
    "Classes it was not trained on: it always answers with one of its own.",
    "Attention as evidence: it shows what weighed in the answer, which is not the same as why the "
    "answer is right, nor an outline of disease. Nothing follows from a place it did not look at.",
    "Single slides by their probability alone: calibration holds for many slides together, as far "
    "as these intervals reach.",
)


@dataclass(frozen=True)
class Figure:
    """One of the large numbers: what it is, its value, and what stands beside it."""

    name: str
    value: str
    beside: str


@dataclass(frozen=True)
class Page:
    """Everything the template writes besides the summary."""

    title: str
    classes: tuple[str, ...]
    figures: tuple[Figure, ...]
    patch_grid: str
    patch_caption: str
    quality: Quality | None
    localisation: tuple[LocalisationSummary, ...]
    sections: tuple[SlideSection, ...]
    answers_note: str
    slides_note: str
    model: ModelSection | None
    limits: tuple[str, ...]
    artefact_hash: str
    has_truth: bool
    has_regions: bool
    step_colours: tuple[str, ...] = STEP_COLOURS

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Anchors and names of the page's parts."""
        parts = [
            ("quality", "How often it is right", self.quality is not None),
            ("localisation", "Does it look right", bool(self.localisation)),
            ("answers", "Every answer", True),
            ("slides", "Where it looked", True),
            ("model", "How it was trained", self.model is not None),
            ("limits", "What it is not for", True),
        ]
        return [(anchor, name) for anchor, name, is_there in parts if is_there]


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
    """Write the report of some predictions; returns its path.

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
    if not predictions:
        raise PredictionError("there are no predictions to report. Run 'zoommil predict' first.")
    rows = {} if cohort is None else {row.slide_id: row for row in cohort.slides}
    areas = _areas(predictions, rows, truth, "" if cohort is None else cohort.source)
    model_name = name or _name_of(artefact)
    summary = summarise(model_name, predictions, labels_of(cohort), rivals)
    sections = _sections(predictions, rows, areas, labels_of(cohort), most_drawn, progress)
    page = Page(
        title=title or f"{model_name} on {counted(len(predictions), 'slide')}",
        classes=tuple(predictions[0].probabilities),
        figures=tuple(_figures(summary)),
        patch_grid=draw_patch_grid(summary.first.patches, summary.exhaustive_patches),
        patch_caption=_grid_caption(summary),
        quality=quality_of(evaluation_of(predictions, cohort)),
        localisation=_places(predictions, areas),
        sections=tuple(sections),
        answers_note=_answers_note(artefact, bool(labels_of(cohort))),
        slides_note=_slides_note(sections),
        model=None
        if artefact is None
        else model_section(artefact, [one.slide_id for one in predictions]),
        limits=LIMITS,
        artefact_hash=str(predictions[0].provenance.get("artefact") or "")[:16],
        has_truth=bool(labels_of(cohort)),
        has_regions=any(areas.values()),
    )
    write_text(path, render(page, summary))
    return Path(path)


def render(page: Page, summary: Summary) -> str:
    """The page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("zoommil.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.globals["number"] = number
    loader = environment.loader
    assert loader is not None
    style, _, _ = loader.get_source(environment, "report.css")
    template = environment.get_template("report.html.j2")
    return template.render(page=page, summary=summary, css=Markup(style), version=__version__)


def _areas(
    predictions: Sequence[Prediction],
    rows: Mapping[str, SlideRow],
    truth: str | None,
    source: str,
) -> dict[str, tuple[Region, ...]]:
    """The annotated areas of each slide that has some."""
    if truth is None:
        return {}
    found = {}
    for one in predictions:
        row = rows.get(one.slide_id, SlideRow(one.slide_id, None, one.slide_id))
        path = truth_path_of(row, truth, source)
        if path is not None:
            found[one.slide_id] = read_regions(path)
    return found


def _sections(
    predictions: Sequence[Prediction],
    rows: Mapping[str, SlideRow],
    areas: Mapping[str, Sequence[Region]],
    labels: dict[str, str],
    most_drawn: int,
    progress: Callable[[int], None] | None,
) -> list[SlideSection]:
    """A section per slide, in the predictions' order; slides that cannot be drawn say why."""
    peers = peers_of(predictions, labels)
    drawn = {one.slide_id for one in worth_a_look(predictions, labels)[:most_drawn]}
    sections = []
    for one in predictions:
        pictures, reason = None, None
        if one.slide_id in drawn:
            try:
                with open_predicted(one, rows) as slide:
                    pictures = draw_slide(one, slide, areas.get(one.slide_id, ()))
            except ZoomMILError as error:
                reason = str(error)
        row = rows.get(one.slide_id)
        sections.append(section_of(one, row, peers[one.slide_id], pictures, reason))
        if progress is not None:
            progress(1)
    return sections


def worth_a_look(predictions: Sequence[Prediction], labels: Mapping[str, str]) -> list[Prediction]:
    """The predictions, wrong answers first, then the least sure."""

    def urgency(one: Prediction) -> tuple[bool, float]:
        is_wrong = labels.get(one.slide_id, one.label) != one.label
        return not is_wrong, one.probabilities[one.label]

    return sorted(predictions, key=urgency)


def _places(
    predictions: Sequence[Prediction], areas: Mapping[str, Sequence[Region]]
) -> tuple[LocalisationSummary, ...]:
    found = [localise(one, areas[one.slide_id]) for one in predictions if areas.get(one.slide_id)]
    return summarise_places(found)


def _figures(summary: Summary) -> list[Figure]:
    first = summary.first
    patches = f"{number(first.patches)} of {number(summary.exhaustive_patches)} a slide"
    figures = [Figure("Patches encoded", percent(summary.patch_share), patches)]
    if summary.flop_ratio is not None:
        work = f"{number(first.gflops)} instead of {number(summary.exhaustive_gflops)} GFLOP"
        figures.append(Figure("Less computation", f"{summary.flop_ratio:.1f}×", work))
    if first.right is not None:
        low, high = wilson_interval(first.right, first.num_labelled)
        beside = f"{first.right / first.num_labelled:.0%}, 95% interval {low:.0%}–{high:.0%}"
        value = f"{first.right} of {first.num_labelled}"
        figures.append(Figure("Slides right", value, beside))
    if first.seconds is not None:
        costly = max(summary.rivals, key=lambda one: one.gflops, default=None)
        beside = "from the slide's pixels"
        if costly is not None and costly.seconds is not None:
            beside = f"{costly.seconds:.2f} s for {costly.name}"
        figures.append(Figure("Seconds a slide", f"{first.seconds:.2f}", beside))
    return figures


def _grid_caption(summary: Summary) -> str:
    read, every = number(summary.first.patches), number(summary.exhaustive_patches)
    return (
        f"A mean slide: {every} patches of tissue at the highest magnification; {read} patches, of "
        "all magnifications together, were read and encoded."
    )


def _answers_note(artefact: Artefact | None, has_truth: bool) -> str:
    parts = ["Probabilities of each class."]
    if artefact is not None and artefact.temperature != 1.0:
        parts = [f"Calibrated probabilities (temperature {artefact.temperature:.3g})."]
    elif artefact is not None:
        parts = ["Probabilities of each class; calibration left them as the model gives them."]
    if has_truth:
        parts.append(
            "“As sure as this, right” counts the answers here within 0.1 of the same confidence "
            "that were right, with the 95% interval of that share."
        )
    return " ".join(parts)


def _slides_note(sections: Sequence[SlideSection]) -> str:
    num = sum(one.pictures is not None for one in sections)
    text = (
        "Left, where it zoomed in; right, attention, the finer step over the coarser. Below, the "
        "patches that weighed most at the last step, with their attention."
    )
    if num < len(sections):
        text += f" {num} of {len(sections)} slides are drawn: wrong answers, then the least sure."
    return text


def _name_of(artefact: Artefact | None) -> str:
    known = {"zoommil": "ZoomMIL", "abmil": "ABMIL", "transmil": "TransMIL"}
    name = "the model" if artefact is None else str(artefact.settings.get("name", "the model"))
    return known.get(name, name)
