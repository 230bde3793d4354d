"""Row 7, bags: rows with any tool's column names go in, rows with the canonical ones come out."""

from __future__ import annotations

from zoommil.bags.tables import Table
from zoommil.errors import CohortError

CANONICAL = ("case_id", "slide_id", "label", "path", "mpp", "mask_path", "site")

# In order of preference; a later one that is also present stays an ordinary extra column.
SYNONYMS = {
    "case_id": ("case_id", "case", "patient_id", "patient"),
    "slide_id": ("slide_id", "slide", "sample_id"),
    "label": ("label", "type"),
    "path": ("path", "wsi", "image_path", "filename", "file_name", "wsi_path", "slide_path"),
    "mpp": ("mpp", "spacing_at_level_0"),
    "mask_path": ("mask_path",),
    "site": ("site",),
}


def canonical_rows(table: Table, label_column: str | None) -> list[tuple[dict[str, str], int]]:
    """(row, line) of a table, known columns under their canonical names, others unchanged.

    Raises:
        CohortError: no column says which slide or case a row is, or the label column is missing.
    """
    names = _names(table.columns)
    if label_column is not None:
        if label_column not in table.columns:
            raise CohortError(
                f"{str(table.path)!r} has no column {label_column!r} for the label; "
                f"found {', '.join(table.columns)}."
            )
        names = {column: name for column, name in names.items() if name != "label"}
        names[label_column] = "label"
    if not {"slide_id", "path", "case_id"} & set(names.values()):
        raise CohortError(
            f"{str(table.path)!r} has no column that says which slide a row is; found "
            f"{', '.join(table.columns)}. Expected slide_id or path (also "
            f"{', '.join((*SYNONYMS['slide_id'][1:], *SYNONYMS['path'][1:]))})."
        )
    rows = []
    for row, line in zip(table.rows, table.lines, strict=True):
        extra = {name: cell for name, cell in row.items() if name and name not in CANONICAL}
        known = {names[name]: cell for name, cell in row.items() if name in names}
        rows.append(({**{n: c for n, c in extra.items() if n not in names}, **known}, line))
    return rows


def _names(columns: tuple[str, ...]) -> dict[str, str]:
    """Canonical name of every known column."""
    found = {}
    for canonical, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            match = next((column for column in columns if column.lower() == synonym), None)
            if match is not None:
                found[match] = canonical
                break
    return found
