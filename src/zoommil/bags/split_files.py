"""Row 7, bags: any tool's split files go in, checked splits come out; CLAM's are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from zoommil.bags.cohort import Cohort
from zoommil.bags.slide_files import without_suffix
from zoommil.bags.split import PARTS, Split, check_split, split_of_values
from zoommil.bags.tables import Table, read_table, write_table
from zoommil.errors import SplitError


def read_splits(
    path: Path | str, cohort: Cohort, *, require_classes: bool = True
) -> tuple[Split, ...]:
    """The splits in a file or folder of CLAM, STAMP, Patho-Bench, TransMIL or ZoomMIL's authors.

    Args:
        path: ``splits_k.csv``, ``splits_k_bool.csv``, ``splits.json``, a TSV or CSV with ``fold_i``
            columns, a CSV with train, val and test columns, or a folder of ``splits_k.csv``.
        cohort: the slides they are about.
        require_classes: refuse a part that lacks a class.

    Raises:
        SplitError: a file of no known form, unknown slides, a leak, a missing class.
    """
    path = Path(path)
    if path.is_dir():
        splits = [_read_table(file, cohort, _number(file)) for file in _files(path)]
    elif path.suffix.lower() == ".json":
        splits = _read_stamp(path, cohort)
    else:
        table = read_table(path)
        folds = [name for name in table.columns if re.fullmatch(r"fold_\d+", name)]
        if folds:
            splits = [_read_fold(table, name, cohort) for name in folds]
        else:
            splits = [_read_table(path, cohort, _number(path))]
    for split in splits:
        check_split(split, cohort, require_classes=require_classes)
    return tuple(splits)


def write_splits(splits: Sequence[Split], cohort: Cohort, folder: Path | str) -> list[Path]:
    """Write CLAM's ``splits_k.csv`` and ``splits_k_bool.csv``; gives the former's paths."""
    written = []
    for split in splits:
        check_split(split, cohort, require_classes=False)
        path = Path(folder) / f"splits_{split.name}.csv"
        longest = max(len(ids) for ids in split.parts.values())
        rows: list[dict[str, Any]] = [
            {"": row} | {part: ids[row] for part, ids in split.parts.items() if row < len(ids)}
            for row in range(longest)
        ]
        write_table(path, ["", *PARTS], rows)
        flags = [
            {"": slide_id} | {part: slide_id in ids for part, ids in split.parts.items()}
            for slide_id in (*split.train, *split.val, *split.test)
        ]
        write_table(path.with_name(f"splits_{split.name}_bool.csv"), ["", *PARTS], flags)
        written.append(path)
    return written


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("splits_*.csv") if re.fullmatch(r"splits_\d+", path.stem)]
    if not found:
        raise SplitError(f"folder {str(folder)!r} has no splits_0.csv. Run zoommil split.")
    return sorted(found, key=lambda path: int(_number(path)))


def _number(path: Path) -> str:
    """The fold's number in a file name, ``0`` when there is none."""
    numbers = re.findall(r"\d+", path.stem)
    return numbers[-1] if numbers else "0"


def _read_table(path: Path, cohort: Cohort, name: str) -> Split:
    """Columns train, val and test of ids (ragged), or of True and False by slide."""
    table = read_table(path)
    if not {"train", "test"} <= set(table.columns):
        raise SplitError(
            f"{str(path)!r} is no split file: found columns {', '.join(table.columns)}; expected "
            "train, val, test or fold_0."
        )
    cells = {row[part].lower() for row in table.rows for part in PARTS if part in row}
    resolve = _resolver(cohort, path)
    if cells <= {"true", "false"}:
        key = table.columns[0]
        values = {}
        for row in table.rows:
            chosen = [part for part in PARTS if row.get(part, "").lower() == "true"]
            if len(chosen) > 1:
                raise SplitError(f"{str(path)!r}: slide {row[key]!r} is in {' and '.join(chosen)}.")
            values[resolve(row[key])] = chosen[0] if chosen else ""
        return split_of_values(values, name)
    ids = [
        tuple(resolve(row[part]) for row in table.rows if row.get(part, "").lower() not in _EMPTY)
        for part in PARTS
    ]
    return Split(*ids, name=name)


_EMPTY = ("", "nan")


def _read_fold(table: Table, column: str, cohort: Cohort) -> Split:
    """One ``fold_i`` column of Patho-Bench: train, val or test by slide or by case."""
    resolve = _resolver(cohort, table.path)
    by_slide = next((c for c in table.columns if c.lower() in ("slide_id", "slide")), None)
    by_case = next((c for c in table.columns if c.lower() in ("case_id", "case", "patient")), None)
    values: dict[str, str] = {}
    for row in table.rows:
        if by_slide is not None:
            values[resolve(row[by_slide])] = row[column]
        elif by_case is not None:
            values |= dict.fromkeys(_slides_of([row[by_case]], cohort, table.path), row[column])
        else:
            raise SplitError(f"{str(table.path)!r} has fold columns but no slide_id or case_id.")
    return split_of_values(values, column.removeprefix("fold_"))


def _read_stamp(path: Path, cohort: Cohort) -> list[Split]:
    """STAMP's patients per fold; it has no validation part (see ``with_validation``)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        folds = [
            [[str(case) for case in fold.get(f"{part}_patients", [])] for part in PARTS]
            for fold in content["splits"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SplitError(
            f"{str(path)!r} is not STAMP's splits.json ({error}); expected "
            '{"splits": [{"train_patients": [...], "test_patients": [...]}]}.'
        ) from error
    return [
        Split(*(_slides_of(cases, cohort, path) for cases in fold), name=str(index))
        for index, fold in enumerate(folds)
    ]


def _slides_of(cases: Iterable[str], cohort: Cohort, path: Path) -> tuple[str, ...]:
    known = cohort.cases
    ids: list[str] = []
    for case in cases:
        if case not in known:
            raise SplitError(
                f"{str(path)!r}: case {case!r} is not in {cohort.source}. "
                "Use the cohort the split was made for."
            )
        ids.extend(slide.slide_id for slide in known[case])
    return tuple(ids)


def _resolver(cohort: Cohort, path: Path) -> Callable[[str], str]:
    """How an id in a split file is known in the cohort.

    Other tools leave extensions on, and tables with blanks turn ``123`` into ``123.0``.
    """
    known = set(cohort.slide_ids)

    def resolve(text: str) -> str:
        for candidate in (text, without_suffix(text), text.removesuffix(".0")):
            if candidate in known:
                return candidate
        raise SplitError(
            f"{str(path)!r}: slide {text!r} is not in {cohort.source}. "
            "Use the cohort the split was made for."
        )

    return resolve
