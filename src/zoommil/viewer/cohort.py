"""Row 15, cohort: what may be shown and how to order it come in; the rows of the table go out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal
from urllib.parse import urlencode

from zoommil.viewer.library import Entry

Show = Literal["all", "agrees", "differs", "unlabelled", "not predicted"]
SHOWS: dict[str, str] = {
    "all": "All slides",
    "agrees": "Prediction agrees with label",
    "differs": "Prediction differs from label",
    "unlabelled": "Predicted, no label known",
    "not predicted": "Not predicted yet",
}
COLUMNS = ("slide", "case", "predicted", "probability", "label", "patches", "saving", "seconds")
LONGEST_TEXT = 100


@dataclass(frozen=True)
class Order:
    """How the cohort is ordered and what of it is shown.

    Attributes:
        sort: one of ``COLUMNS``; "" for the predictions' own order.
        is_down: from the largest to the smallest.
        text: that must occur in the slide's name, case, label or prediction.
        show: one of ``SHOWS``.
        predicted: only slides predicted as this class; "" for any.
    """

    sort: str = ""
    is_down: bool = False
    text: str = ""
    show: str = "all"
    predicted: str = ""

    @classmethod
    def of(cls, values: dict[str, str], classes: Sequence[str]) -> Order:
        """The order an address asks for; what nobody knows counts as not said."""
        sort, show = values.get("sort", ""), values.get("show", "all")
        predicted = values.get("predicted", "")
        return cls(
            sort=sort if sort in COLUMNS else "",
            is_down=values.get("down") == "1",
            text=values.get("text", "")[:LONGEST_TEXT],
            show=show if show in SHOWS else "all",
            predicted=predicted if predicted in classes else "",
        )

    def query(self) -> str:
        """As the end of an address, "" when nothing is unusual."""
        values = {
            "sort": self.sort,
            "down": "1" if self.is_down else "",
            "text": self.text,
            "show": "" if self.show == "all" else self.show,
            "predicted": self.predicted,
        }
        said = {name: value for name, value in values.items() if value}
        return f"?{urlencode(said)}" if said else ""

    def applied(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries that are shown, in their order; what is not known comes last."""
        found = [entry for entry in entries if self._shows(entry)]
        if not self.sort:
            return found
        known = [entry for entry in found if value_of(entry, self.sort) is not None]
        unknown = [entry for entry in found if value_of(entry, self.sort) is None]
        known.sort(key=lambda entry: _comparable(value_of(entry, self.sort)), reverse=self.is_down)
        return known + unknown

    def _shows(self, entry: Entry) -> bool:
        if self.predicted and (entry.summary is None or entry.summary.label != self.predicted):
            return False
        if self.show != "all" and state_of(entry) != self.show:
            return False
        words = (entry.slide_id, entry.case_id or "", entry.label or "")
        words += (entry.summary.label,) if entry.summary else ()
        return self.text.casefold() in "\n".join(words).casefold()


def state_of(entry: Entry) -> Show:
    """How an entry's prediction and label stand to each other."""
    if entry.summary is None:
        return "not predicted"
    if entry.label is None:
        return "unlabelled"
    return "agrees" if entry.summary.label == entry.label else "differs"


def value_of(entry: Entry, column: str) -> str | float | None:
    """What a column is sorted by; None where it is not known."""
    summary = entry.summary
    if column == "slide":
        return entry.slide_id
    if column == "case":
        return entry.case_id
    if column == "label":
        return entry.label
    if summary is None:
        return None
    values: dict[str, str | float | None] = {
        "predicted": summary.label,
        "probability": summary.probabilities[summary.label],
        "patches": summary.patches,
        "saving": summary.exhaustive_flops / summary.flops if summary.flops else None,
        "seconds": summary.seconds,
    }
    return values[column]


def table_row(entry: Entry, query: str) -> dict[str, Any]:
    """One row of the table as the page shows it."""
    summary = entry.summary
    saving = value_of(entry, "saving")
    return {
        "key": entry.key,
        "href": f"/slide/{entry.key}{query}",
        "has_file": entry.path is not None,
        "slide": entry.slide_id,
        "case": entry.case_id or "–",
        "predicted": summary.label if summary else "",
        "probability": summary.probabilities[summary.label] if summary else None,
        "label": entry.label or "–",
        "state": state_of(entry),
        "patches": f"{summary.patches:,}" if summary else "–",
        "of": f"of {summary.exhaustive_patches:,}" if summary else "",
        "saving": f"{saving:.1f}×" if isinstance(saving, float) else "–",
        "seconds": f"{summary.seconds:.1f} s" if summary and summary.seconds else "–",
    }


def figures_of(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """What the cohort comes to, as values and what they are; only what is known."""
    states = [state_of(entry) for entry in entries]
    agree, differ = states.count("agrees"), states.count("differs")
    summaries = [entry.summary for entry in entries if entry.summary is not None]
    flops = sum(summary.flops for summary in summaries)
    patches = sum(summary.exhaustive_patches for summary in summaries)
    seconds = [summary.seconds for summary in summaries if summary.seconds]
    found = [(f"{len(summaries):,} of {len(entries):,}", "slides predicted")]
    if agree + differ:
        found.append((f"{agree:,} of {agree + differ:,}", "agree with their label"))
    if patches:
        read = sum(summary.patches for summary in summaries) / patches
        found.append((f"{100 * read:.0f}%", "of all patches encoded"))
    if flops:
        saving = sum(summary.exhaustive_flops for summary in summaries) / flops
        found.append((f"{saving:.1f}×", "fewer operations"))
    if seconds:
        found.append((f"{median(seconds):.1f} s", "a slide, the median"))
    return found


def _comparable(value: str | float | None) -> Any:
    return value.casefold() if isinstance(value, str) else value
