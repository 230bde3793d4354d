"""Row 13, document: everything a report says comes in; one HTML text goes out.

The page asks nothing of any server: style and pictures are inside, there is no script, and its
content policy forbids everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zoommil import __version__
from zoommil.grid.showing import STEP_COLOURS
from zoommil.reports import wording
from zoommil.reports.costs import CostSection
from zoommil.reports.localisation import LocalisationSummary
from zoommil.reports.model_section import ModelSection
from zoommil.reports.quality import Quality
from zoommil.reports.slide_section import SlideSection


@dataclass(frozen=True)
class Page:
    """Everything the template writes.

    Attributes:
        title, headline, sentence: at the top.
        is_single: of one slide: no table of answers, no figures of quality.
        missing: for parts that cannot be written, by anchor, why.
    """

    title: str
    headline: str
    sentence: str
    is_single: bool
    classes: tuple[str, ...]
    figures: tuple[wording.Figure, ...]
    patch_grid: str
    patch_caption: str
    costs: CostSection
    quality: Quality | None
    localisation: tuple[LocalisationSummary, ...]
    sections: tuple[SlideSection, ...]
    answers_note: str
    slides_note: str
    model: ModelSection | None
    missing: Mapping[str, str]
    artefact_hash: str
    has_truth: bool
    limits: tuple[str, ...] = wording.LIMITS
    step_colours: tuple[str, ...] = STEP_COLOURS

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Anchors and names of the page's parts."""
        of_many = [
            ("quality", "How often it is right"),
            ("answers", "Every answer"),
        ]
        return [
            *([] if self.is_single else of_many),
            ("slides", "Where it looked"),
            ("localisation", "Does it look in the right place?"),
            ("cost", "What it took"),
            ("model", "How it was trained"),
            ("limits", "What it must not be used for"),
        ]


def render(page: Page) -> str:
    """The page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("zoommil.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loader = environment.loader
    assert loader is not None
    style, _, _ = loader.get_source(environment, "report.css")
    template = environment.get_template("report.html.j2")
    return template.render(page=page, css=Markup(style), version=__version__)
