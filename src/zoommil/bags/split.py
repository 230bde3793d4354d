"""Row 7, bags: the parts of a split go in; a leak or a missing class is refused, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.errors import SplitError

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """Slide ids of the three parts of one split; ``val`` or ``test`` may be empty.

    Attributes:
        train, val, test: slide ids in the cohort's order.
        name: what tells it from its siblings, as ``0`` for fold 0.
    """

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    name: str = "0"

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The ids of every part by its name."""
        return {part: getattr(self, part) for part in PARTS}


def check_split(split: Split, cohort: Cohort, *, require_classes: bool = True) -> None:
    """Check that a split can be trusted.

    Args:
        split: the parts.
        cohort: the slides it is about.
        require_classes: also refuse a part that lacks a class.

    Raises:
        SplitError: an unknown or doubled slide, an empty train part, a case on two sides (named),
            or a class that a part has no slide of.
    """
    by_id = {slide.slide_id: slide for slide in cohort.slides}
    where: dict[str, tuple[str, str]] = {}
    seen: dict[str, str] = {}
    for part, ids in split.parts.items():
        for slide_id in ids:
            if slide_id not in by_id:
                raise SplitError(
                    f"split {split.name}: slide {slide_id!r} of {part} is not in {cohort.source}. "
                    "Use the cohort it was made for."
                )
            if slide_id in seen:
                raise SplitError(
                    f"split {split.name}: slide {slide_id!r} is in {seen[slide_id]} and again in "
                    f"{part}. Remove one."
                )
            seen[slide_id] = part
            case = by_id[slide_id].case_id
            other, other_slide = where.setdefault(case, (part, slide_id))
            if other != part:
                raise SplitError(
                    f"split {split.name} leaks: case {case!r} is in {other} (slide "
                    f"{other_slide!r}) and in {part} (slide {slide_id!r}). "
                    "Keep its slides together."
                )
    if not split.train:
        raise SplitError(f"split {split.name} has no slides in train.")
    if require_classes and cohort.classes:
        _check_classes(split, cohort, by_id)


def splits_of_cohort(cohort: Cohort) -> tuple[Split, ...]:
    """The splits that a cohort's own columns name: ``split``, or ``fold_0`` to ``fold_k``.

    Raises:
        SplitError: no such column, or a value that is not train, val or test.
    """
    names = list(dict.fromkeys(name for slide in cohort.slides for name in slide.extra))
    columns = [name for name in names if name == "split" or name.startswith("fold_")]
    if not columns:
        raise SplitError(
            f"{cohort.source} has neither a column 'split' nor 'fold_0'. Run zoommil split."
        )
    columns = ["split"] if "split" in columns else sorted(columns, key=_fold_number)
    splits = []
    for column in columns:
        values = {slide.slide_id: slide.extra.get(column, "") for slide in cohort.slides}
        splits.append(split_of_values(values, column.removeprefix("fold_")))
    return tuple(splits)


def split_of_values(values: Mapping[str, str], name: str) -> Split:
    """A split from part names by slide; an empty one leaves the slide out."""
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for slide_id, value in values.items():
        part = {"valid": "val", "validation": "val"}.get(value.lower(), value.lower())
        if part and part not in parts:
            raise SplitError(
                f"split {name}: slide {slide_id!r} is in {value!r}; expected train, val or test."
            )
        if part:
            parts[part].append(slide_id)
    return Split(**{part: tuple(ids) for part, ids in parts.items()}, name=name)


def _fold_number(column: str) -> tuple[int, str]:
    number = column.removeprefix("fold_")
    return (int(number) if number.isdigit() else 1 << 30, column)


def _check_classes(split: Split, cohort: Cohort, by_id: Mapping[str, SlideRow]) -> None:
    for part, ids in split.parts.items():
        found = {by_id[slide_id].label for slide_id in ids}
        missing = [name for name in cohort.classes if name not in found]
        if ids and missing:
            raise SplitError(
                f"split {split.name}: {part} has no slide of class {missing[0]!r}. "
                "Use fewer folds or a larger part, or merge classes."
            )
