"""Row 13, wording: what a report found comes in; its notes, captions and large figures go out.

Every sentence follows from the numbers of this run: nothing is claimed that they do not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zoommil.artefact import Artefact
from zoommil.inference.prediction import Prediction
from zoommil.reports.localisation import wilson_interval
from zoommil.reports.slide_section import SlideSection
from zoommil.reports.summary import Summary, counted, number, percent

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

_KNOWN_NAMES = {"zoommil": "ZoomMIL", "abmil": "ABMIL", "transmil": "TransMIL"}


@dataclass(frozen=True)
class Figure:
    """One of the large numbers: what it is, its value, and what stands beside it."""

    name: str
    value: str
    beside: str


def model_name(artefact: Artefact | None) -> str:
    """What sentences call the model."""
    name = "the model" if artefact is None else str(artefact.settings.get("name", "the model"))
    return _KNOWN_NAMES.get(name, name)


def figures_of(summary: Summary) -> list[Figure]:
    """The large numbers of many slides."""
    figures = _cost_figures(summary)
    first = summary.first
    if first.right is not None:
        low, high = wilson_interval(first.right, first.num_labelled)
        beside = f"{first.right / first.num_labelled:.0%}, 95% interval {low:.0%}–{high:.0%}"
        value = f"{first.right} of {first.num_labelled}"
        figures.insert(0, Figure("Slides right", value, beside))
    return figures


def figures_of_slide(
    section: SlideSection, summary: Summary, artefact: Artefact | None
) -> list[Figure]:
    """The large numbers of one slide: how sure, how often such answers were right, what it took."""
    is_calibrated = artefact is not None and artefact.temperature != 1.0
    beside = "calibrated" if is_calibrated else "as the model gives it"
    figures = [Figure(f"Probability of {section.label}", f"{section.confidence:.3f}", beside)]
    if section.peers is not None:
        peers = section.peers
        beside = f"95% interval {peers.low:.0%}–{peers.high:.0%}"
        figures.append(
            Figure("Right when this sure", f"{peers.right} of {peers.num}", f"slides; {beside}")
        )
    return figures + _cost_figures(summary)


def _cost_figures(summary: Summary) -> list[Figure]:
    first = summary.first
    patches = f"{number(first.patches)} of {number(summary.exhaustive_patches)} a slide"
    figures = [Figure("Patches encoded", percent(summary.patch_share), patches)]
    if summary.flop_ratio is not None:
        work = f"{number(first.gflops)} instead of {number(summary.exhaustive_gflops)} GFLOP"
        figures.append(Figure("Less computation", f"{summary.flop_ratio:.1f}×", work))
    if first.seconds is not None:
        costly = max(summary.rivals, key=lambda one: one.gflops, default=None)
        beside = "from the slide's pixels"
        if costly is not None and costly.seconds is not None:
            beside = f"{costly.seconds:.2f} s for {costly.name}"
        figures.append(Figure("Seconds a slide", f"{first.seconds:.2f}", beside))
    return figures


def grid_caption(summary: Summary) -> str:
    """What the picture of small squares shows."""
    read, every = number(summary.first.patches), number(summary.exhaustive_patches)
    which = "This slide" if summary.first.num_slides == 1 else "A mean slide"
    return (
        f"{which}: {every} patches of tissue at the highest magnification; {read} patches, of "
        "all magnifications together, were read and encoded."
    )


def answers_note(artefact: Artefact | None, has_truth: bool) -> str:
    """How to read the table of answers."""
    parts = ["Probabilities of each class."]
    if artefact is not None and artefact.temperature != 1.0:
        parts = [
            f"Calibrated probabilities: temperature {artefact.temperature:.3g}, fitted on "
            "validation slides."
        ]
    elif artefact is not None:
        parts = ["Probabilities of each class; calibration left them as the model gives them."]
    if has_truth:
        parts.append(
            "“Right when this sure”: of the other labelled slides whose answer is as sure (within "
            "0.1), how many were answered right, with the 95% interval of that share."
        )
    return " ".join(parts)


def slides_note(sections: Sequence[SlideSection]) -> str:
    """How to read the pictures, and which slides have some."""
    num = sum(one.pictures is not None for one in sections)
    text = (
        "First where it zoomed in, then its attention, the finer step over the coarser; below, the "
        "patches that weighed most at the last step, with their attention."
    )
    if num < len(sections) and len(sections) > 1:
        text += (
            f" {num} of {len(sections)} slides are drawn: wrong answers first, then the least sure."
        )
    return text


def slide_headline(section: SlideSection) -> str:
    """The first line of one slide's report."""
    return f"{section.label}, {section.confidence:.0%}"


def slide_sentence(section: SlideSection, name: str, prediction: Prediction) -> str:
    """What one slide was answered, and from what."""
    share = section.patches / section.exhaustive_patches if section.exhaustive_patches else 1.0
    verdict = {
        None: "Its true class is not known here.",
        True: "Its label says the same.",
        False: f"Its label says {section.truth}.",
    }[section.is_right]
    seen = counted(len(prediction.steps), "magnification")
    return (
        f"{name} answers {section.label} for slide {section.slide_id}, with probability "
        f"{section.confidence:.3f}, from {seen} and {percent(share)} of the patches that the "
        f"highest one alone has. {verdict}"
    )


def why_no_quality(has_cohort: bool, has_labels: bool) -> str:
    """Why there are no figures of how often it is right."""
    if has_labels:
        return (
            "Not known: none of these slides has a label that is one of the model's classes. "
            "Compare the label column with the classes above."
        )
    if has_cohort:
        return "Not known: the table has no label for any of these slides."
    return "Not known: no labels were given. A table with a label column (--cohort) adds this part."


def why_no_places(truth: str | None) -> str:
    """Why it is not said whether attention lies where annotated areas are."""
    if truth is None:
        return "Not measured: no annotated areas were given. GeoJSON files (--truth) add this part."
    return "Not measured: none of these slides has an annotated area whose place is known."


NO_MODEL = (
    "Not known: the model's folder was not at hand when this page was made. Naming it (--artefact) "
    "adds this part."
)
