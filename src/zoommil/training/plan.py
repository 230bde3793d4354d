"""Row 11, plan: a run's data section and a cohort come in; who is learnt from, chosen by, reported.

Whatever can be known to be wrong before the first bag is read is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.bags.split import PARTS, Split, check_split, splits_of_cohort
from zoommil.bags.split_files import read_splits
from zoommil.bags.splits import make_split, with_validation
from zoommil.errors import CohortError, SplitError, TrainingError
from zoommil.training.data import BagSource, Example
from zoommil.training.specs import DataSpec

AnySplit = Split | Mapping[str, Sequence[str]] | Path | str
_NAMED = 5


@dataclass(frozen=True)
class Plan:
    """The slides of each part of a split with their class indices."""

    classes: tuple[str, ...]
    train: tuple[Example, ...]
    val: tuple[Example, ...]
    test: tuple[Example, ...]

    @property
    def examples(self) -> tuple[Example, ...]:
        """All of them."""
        return self.train + self.val + self.test

    @property
    def num_slides(self) -> dict[str, int]:
        """How many slides each part has."""
        return {part: len(getattr(self, part)) for part in PARTS}


def make_plan(data: DataSpec, cohort: Cohort, split: AnySplit | None = None) -> Plan:
    """The plan of a run on a cohort; only slides of the split need a label.

    Args:
        data: classes, split file or fractions.
        cohort: the slides.
        split: instead of what ``data`` says.

    Raises:
        CohortError: a slide of the split has no label, or all have the same.
        SplitError: a part is empty, lacks a class, or shares a case with another.
    """
    chosen = find_split(data, cohort, split)
    rows = cohort.subset([name for ids in chosen.parts.values() for name in ids])
    rows.require_labels()
    classes = data.classes or rows.classes or class_names(rows.slides)
    for part in ("train", "val"):
        if not chosen.parts[part]:
            raise SplitError(f"the part {part!r} of split {chosen.name} is empty; give it slides.")
    by_id = {row.slide_id: row for row in rows.slides}
    parts = {
        part: examples_of([by_id[name] for name in ids], classes)
        for part, ids in chosen.parts.items()
    }
    labelled = replace(rows, classes=tuple(classes))
    check_split(chosen, labelled, require_classes=not data.allow_absent_classes)
    return Plan(tuple(classes), **parts)


def find_split(data: DataSpec, cohort: Cohort, split: AnySplit | None = None) -> Split:
    """The split to use: the given one, the run's file, the cohort's columns, or a drawn one.

    A split without a validation part gets one, cut out of its training part by case.
    """
    found = _given_split(data, cohort, data.split or None if split is None else split)
    if found is None:
        train = 1.0 - data.val_fraction - data.test_fraction
        return make_split(
            cohort,
            fractions=(train, data.val_fraction, data.test_fraction),
            seed=data.split_seed,
            keep_sites=data.keep_sites,
        )
    check_split(found, cohort, require_classes=False)
    if found.val:
        return found
    return with_validation(found, cohort, val_fraction=data.val_fraction, seed=data.split_seed)


def _given_split(data: DataSpec, cohort: Cohort, split: AnySplit | None) -> Split | None:
    if isinstance(split, Split):
        return split
    if isinstance(split, Mapping):
        train, val, test = (tuple(split.get(part, ())) for part in PARTS)
        return Split(train, val, test)
    if split is not None:
        splits = read_splits(split, cohort, require_classes=not data.allow_absent_classes)
    elif any("split" in row.extra or "fold_0" in row.extra for row in cohort.slides):
        splits = splits_of_cohort(cohort)
    else:
        return None
    if data.fold >= len(splits):
        raise SplitError(
            f"data.fold is {data.fold}, but there are {len(splits)} splits, numbered from 0."
        )
    return splits[data.fold]


def class_names(rows: Sequence[SlideRow]) -> tuple[str, ...]:
    """The labels of these slides in order: by value where all are whole numbers."""
    labels = {row.label for row in rows if row.label is not None}
    is_numeric = all(label.lstrip("-").isdigit() for label in labels)
    return tuple(sorted(labels, key=int if is_numeric else None))


def examples_of(rows: Sequence[SlideRow], classes: Sequence[str]) -> tuple[Example, ...]:
    """The slides with class indices.

    Raises:
        CohortError: a slide without a label, or with one that is not among the classes.
    """
    bare = [row.slide_id for row in rows if row.label is None]
    if bare:
        raise CohortError(
            f"{len(bare)} of {len(rows)} slides have no label: {named(bare)}. "
            "Fill the column 'label' of the cohort, or leave these slides out."
        )
    index = {name: number for number, name in enumerate(classes)}
    strange = sorted({str(row.label) for row in rows} - set(index))
    if strange:
        raise CohortError(
            f"the cohort has labels {named(strange)}, which are not among the classes "
            f"{', '.join(classes)}. Correct the labels, or data.classes of the run."
        )
    return tuple(Example(row.slide_id, row.case_id, index[str(row.label)]) for row in rows)


def refuse_missing_bags(
    source: BagSource, examples: Sequence[Example], cohort: str = "COHORT.csv"
) -> None:
    """Nothing, or a TrainingError that names the slides without a bag and what makes them."""
    missing = source.missing([example.slide_id for example in examples])
    if missing:
        command = f"zoommil extract {cohort or 'COHORT.csv'} -o {source.folder or 'BAGS'}"
        raise TrainingError(
            f"{len(missing)} of {len(examples)} slides have no bag: {named(missing)}. "
            f"Make them with '{command}', or drop these slides from the cohort."
        )


def named(names: Sequence[str]) -> str:
    """Some names in quotes, the rest as a number."""
    shown = ", ".join(repr(name) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
