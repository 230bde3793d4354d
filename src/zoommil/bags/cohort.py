"""Row 7, bags: a table, folder, glob or slide goes in, a :class:`Cohort` of slides comes out."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from zoommil.bags.columns import CANONICAL, canonical_rows
from zoommil.bags.slide_files import (
    FEATURE_SUFFIXES,
    SlideFolder,
    files_of_folder,
    files_of_glob,
    slide_id_of,
    without_suffix,
)
from zoommil.bags.tables import Table, is_table, read_table, write_table
from zoommil.errors import CohortError
from zoommil.registry import unknown_name
from zoommil.units import PLAUSIBLE_MPP, is_plausible_mpp

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlideRow:
    """One slide of a cohort.

    Attributes:
        slide_id: file name without its extension, or as the table says.
        path: the slide file, None when the table names none.
        case_id: the patient; the slide itself when the table does not say.
        label: the class, None when unknown.
        mpp: microns per pixel of level 0 as the table says, None to take the file's own.
        mask_path: a tissue mask for it.
        site: where it comes from, kept together by splits that are asked to.
        extra: every other column of the table.
    """

    slide_id: str
    path: Path | None
    case_id: str
    label: str | None = None
    mpp: float | int | None = None
    mask_path: Path | None = None
    site: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cohort:
    """Slides with unique ids, in the order of their table.

    Attributes:
        slides: the slides.
        classes: class names in the order of the model's outputs; empty without labels.
        source: what it was read from, for messages.
    """

    slides: tuple[SlideRow, ...]
    classes: tuple[str, ...] = ()
    source: str = ""

    @property
    def slide_ids(self) -> tuple[str, ...]:
        """Ids of all slides."""
        return tuple(slide.slide_id for slide in self.slides)

    @property
    def cases(self) -> dict[str, tuple[SlideRow, ...]]:
        """The slides of every case, in order of first appearance."""
        found: dict[str, list[SlideRow]] = {}
        for slide in self.slides:
            found.setdefault(slide.case_id, []).append(slide)
        return {case: tuple(slides) for case, slides in found.items()}

    def slide(self, slide_id: str) -> SlideRow:
        """The slide of that id. Raises UnknownNameError with the nearest known one."""
        for slide in self.slides:
            if slide.slide_id == slide_id:
                return slide
        raise unknown_name("slide", slide_id, self.slide_ids)

    def subset(self, slide_ids: Iterable[str]) -> Cohort:
        """The cohort of these slides only, in its own order, with the same classes."""
        wanted = set(slide_ids)
        missing = sorted(wanted - set(self.slide_ids))
        if missing:
            raise unknown_name("slide", missing[0], self.slide_ids)
        return replace(self, slides=tuple(s for s in self.slides if s.slide_id in wanted))

    def class_index(self, slide: SlideRow) -> int:
        """The index of a slide's label among the classes. Raises CohortError without a label."""
        if slide.label is None:
            raise CohortError(
                f"slide {slide.slide_id!r} of {self.source} has no label. Fill the column 'label'."
            )
        return self.classes.index(slide.label)

    def require_labels(self) -> None:
        """Check that it can be learnt from.

        Raises:
            CohortError: slides without a label, named; or fewer than two classes.
        """
        missing = [slide.slide_id for slide in self.slides if slide.label is None]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise CohortError(
                f"{self.source}: no label for slides {', '.join(missing[:3])}{more}. "
                "Fill the column 'label', or leave these slides out."
            )
        if len({slide.label for slide in self.slides}) < 2:
            raise CohortError(
                f"{self.source}: all {len(self.slides)} slides are of class "
                f"{self.slides[0].label!r}; at least two classes are needed."
            )


def read_cohort(
    source: Path | str,
    *,
    slides: Path | str | None = None,
    slide_table: Path | str | None = None,
    label_column: str | None = None,
    classes: Sequence[str] | None = None,
    mpp: float | int | None = None,
) -> Cohort:
    """The slides of a table (CSV, TSV, Parquet, XLSX), a folder, a glob or one slide file.

    Args:
        source: the table, folder, glob or slide.
        slides: folder where slides are looked for, at any depth, by name.
        slide_table: table of case and file name, when ``source`` is a clinical table by case.
        label_column: the column that holds the class, when it is not called ``label``.
        classes: class names in order; the sorted labels otherwise (whole numbers by value).
        mpp: microns per pixel of slides whose row says none.

    Raises:
        CohortError: what is missing, doubled or invalid, by row and name.
    """
    path = Path(source).expanduser()
    folder = None if slides is None else SlideFolder(slides)
    if path.is_file() and is_table(path):
        table = read_table(path)
        rows = canonical_rows(table, label_column)
        if slide_table is not None:
            rows, table = _merge(rows, table, read_table(slide_table))
        found = [_slide_of(row, line, table, folder, mpp) for row, line in rows]
    else:
        files = _files_of(path, str(source))
        found = [SlideRow(slide_id_of(file), file, slide_id_of(file), mpp=mpp) for file in files]
        rows = [({}, index) for index in range(1, len(files) + 1)]
    _check_unique(found, [line for _, line in rows], str(source))
    return Cohort(tuple(found), _classes_of(found, classes, str(source)), str(source))


def write_cohort(cohort: Cohort, path: Path | str) -> None:
    """Write a cohort as a CSV with the canonical columns, every other column after them."""
    extra = list(dict.fromkeys(name for slide in cohort.slides for name in slide.extra))
    used = [
        name
        for name in CANONICAL
        if name in ("case_id", "slide_id", "label")
        or any(getattr(slide, name) is not None for slide in cohort.slides)
    ]
    rows = [
        {**slide.extra, **{name: getattr(slide, name) for name in used}} for slide in cohort.slides
    ]
    write_table(path, [*used, *extra], rows)


def _files_of(path: Path, source: str) -> list[Path]:
    if path.is_dir():
        return files_of_folder(path)
    if path.is_file():
        return [path]
    if any(character in source for character in "*?["):
        return files_of_glob(str(path))
    raise CohortError(
        f"{source!r} does not exist. Expected a table of slides, a folder, a glob or a slide."
    )


def _merge(
    clinical: list[tuple[dict[str, str], int]], clinical_table: Table, slide_table: Table
) -> tuple[list[tuple[dict[str, str], int]], Table]:
    """Rows of the slide table with the columns of their case in the clinical table."""
    by_case: dict[str, tuple[dict[str, str], int]] = {}
    for row, line in clinical:
        case = row.get("case_id", "")
        if case in by_case:
            raise CohortError(
                f"{str(clinical_table.path)!r}: rows {by_case[case][1]} and {line} are both of "
                f"case {case!r}; a clinical table has one row per case."
            )
        by_case[case] = (row, line)
    merged = []
    for row, line in canonical_rows(slide_table, None):
        case = row.get("case_id", "")
        if case not in by_case:
            logger.warning("case %r of %s has no clinical row", case, slide_table.path)
        merged.append(({**by_case.get(case, ({}, 0))[0], **row}, line))
    without_slides = sorted(set(by_case) - {row.get("case_id", "") for row, _ in merged})
    if without_slides:
        logger.warning("%d cases have no slide, as %s", len(without_slides), without_slides[0])
    return merged, slide_table


def _slide_of(
    row: dict[str, str],
    line: int,
    table: Table,
    folder: SlideFolder | None,
    mpp: float | int | None,
) -> SlideRow:
    where = f"{str(table.path)!r}, row {line}"
    name = row.get("path", "")
    slide_id = without_suffix(row.get("slide_id", "")) or slide_id_of(name)
    if not slide_id:
        raise CohortError(
            f"{where} names no slide: its id and its path are empty. "
            "Fill them, or pass the table of slides as well if this one is by case."
        )
    if any(character in slide_id for character in "/\\\0") or slide_id.startswith("."):
        raise CohortError(f"{where}: slide id {slide_id!r} cannot be a file name. Rename it.")
    mask = row.get("mask_path", "")
    return SlideRow(
        slide_id=slide_id,
        path=_resolve(name, row.get("slide_id", ""), table.path.parent, folder),
        case_id=row.get("case_id", "") or slide_id,
        label=row.get("label") or None,
        mpp=_mpp_of(row.get("mpp", ""), where, slide_id) or mpp,
        mask_path=_resolve(mask, "", table.path.parent, None),
        site=row.get("site") or None,
        extra={name: value for name, value in row.items() if name not in CANONICAL},
    )


def _resolve(name: str, slide_id: str, beside: Path, folder: SlideFolder | None) -> Path | None:
    """Where a slide is: relative to the table, else in the slides folder, else as written.

    A path that leads nowhere is kept: extraction then reports that slide by its own name.
    """
    if not name or Path(name).suffix.lower() in FEATURE_SUFFIXES:
        wanted = slide_id_of(name) if name else slide_id
        return folder.find(wanted) if folder is not None and wanted else None
    path = Path(name.replace("\\", "/")).expanduser()
    resolved = path if path.is_absolute() else beside / path
    if folder is not None and not resolved.exists():
        return folder.find(str(path)) or resolved
    return resolved


def _mpp_of(text: str, where: str, slide_id: str) -> float | None:
    if text.lower() in ("", "nan", "na", "none", "null"):
        return None
    try:
        mpp = float(text)
    except ValueError:
        mpp = math.nan
    if not is_plausible_mpp(mpp):
        low, high = PLAUSIBLE_MPP
        raise CohortError(
            f"{where}: mpp {text!r} of slide {slide_id!r} is not a resolution; expected microns "
            f"per pixel from {low:g} to {high:g}, or an empty cell to take the file's own."
        )
    return mpp


def _check_unique(slides: Sequence[SlideRow], lines: Sequence[int], source: str) -> None:
    """Refuse two slides of one id: their outputs would overwrite each other."""
    seen: dict[str, tuple[SlideRow, int]] = {}
    for slide, line in zip(slides, lines, strict=True):
        if slide.slide_id not in seen:
            seen[slide.slide_id] = (slide, line)
            continue
        first, first_line = seen[slide.slide_id]
        if first.path == slide.path:
            raise CohortError(
                f"{source}: rows {first_line} and {line} are the same slide {slide.slide_id!r}. "
                "Remove one."
            )
        raise CohortError(
            f"{source}: {str(first.path)!r} and {str(slide.path)!r} would both have the id "
            f"{slide.slide_id!r}. Rename one, or give ids in a column 'slide_id'."
        )


def _classes_of(
    slides: Sequence[SlideRow], classes: Sequence[str] | None, source: str
) -> tuple[str, ...]:
    labels = {slide.label for slide in slides if slide.label is not None}
    if classes is None:
        numeric = all(label.lstrip("-").isdigit() for label in labels)
        return tuple(sorted(labels, key=int if numeric else None))
    for slide in slides:
        if slide.label is not None and slide.label not in classes:
            raise CohortError(
                f"{source}: slide {slide.slide_id!r} has label {slide.label!r}, which is not among "
                f"the classes {', '.join(classes)}."
            )
    return tuple(classes)
