"""Row 7, bags: a CSV, TSV, Parquet or XLSX file goes in, rows of strings come out.

Every cell is a string, so that ``007`` stays ``007``; an empty cell is missing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoommil.errors import CohortError, MissingExtraError
from zoommil.files import write_text

DELIMITED = (".csv", ".tsv", ".txt")
TABLE_SUFFIXES = (*DELIMITED, ".parquet", ".xlsx")


@dataclass(frozen=True)
class Table:
    """A table of strings.

    Attributes:
        path: the file.
        columns: column names in order, stripped; an unnamed one is an empty string.
        rows: one dictionary per row.
        lines: number of each row as a reader of the file sees it; the header is 1.
    """

    path: Path
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    lines: tuple[int, ...]


def is_table(path: Path) -> bool:
    """Whether a file name is a table's."""
    return path.suffix.lower() in TABLE_SUFFIXES


def read_table(path: Path | str) -> Table:
    """The rows of a table, every cell a string.

    Raises:
        CohortError: missing, not text, without a header or without rows, a column twice.
        MissingExtraError: Parquet or XLSX without the package that reads it.
    """
    path = Path(path)
    if not path.is_file():
        raise CohortError(f"table {str(path)!r} does not exist or is not a file. Check its path.")
    records = _read_delimited(path) if path.suffix.lower() in DELIMITED else _read_frame(path)
    if len(records) < 2:
        raise CohortError(f"table {str(path)!r} has no rows below its header. Add one per slide.")
    (_, header), *body = records
    columns = tuple(name.strip() for name in header)
    repeated = sorted({name for name in columns if name and columns.count(name) > 1})
    if repeated:
        raise CohortError(f"table {str(path)!r} has column {repeated[0]!r} twice. Rename one.")
    rows = []
    for line, cells in body:
        if len(cells) > len(columns):
            raise CohortError(
                f"table {str(path)!r}, row {line} has {len(cells)} cells for {len(columns)} "
                "columns. Quote cells that contain the separator."
            )
        padded = [*cells, *[""] * (len(columns) - len(cells))]
        rows.append({name: cell.strip() for name, cell in zip(columns, padded, strict=True)})
    return Table(path, columns, tuple(rows), tuple(line for line, _ in body))


def write_table(
    path: Path | str,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    separator: str = ",",
) -> None:
    """Write a CSV atomically; None becomes an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else row[name] for name in columns])
    write_text(path, stream.getvalue())


def _read_delimited(path: Path) -> list[tuple[int, list[str]]]:
    """(line, cells) of every row that is not blank; the separator is told by the header."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CohortError(
            f"table {str(path)!r} is not UTF-8 text (byte {error.start}). Save it as CSV UTF-8."
        ) from error
    header = text.split("\n", 1)[0]
    separator = max(",\t;", key=header.count)  # a tie (no separator at all) is one column
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        numbered = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise CohortError(f"table {str(path)!r} cannot be read: {error}.") from error
    return [(line, cells) for line, cells in numbered if any(cell.strip() for cell in cells)]


def _read_frame(path: Path) -> list[tuple[int, list[str]]]:
    """(line, cells) of a Parquet or XLSX file."""
    import pandas as pd

    package = {".parquet": "pyarrow", ".xlsx": "openpyxl"}.get(path.suffix.lower())
    if package is None:
        raise CohortError(
            f"{str(path)!r} is not a known table. Expected one of {', '.join(TABLE_SUFFIXES)}."
        )
    try:
        if package == "pyarrow":
            frame = pd.read_parquet(path, engine="pyarrow")
        else:
            frame = pd.read_excel(path, engine="openpyxl", dtype=object, keep_default_na=False)
    except ImportError as error:
        raise MissingExtraError(
            f"reading {path.suffix} tables needs {package}. Install it: pip install "
            '"zoommil[tables]", or save the table as CSV.'
        ) from error
    except Exception as error:
        raise CohortError(f"table {str(path)!r} cannot be read: {error}.") from error
    frame = frame.reset_index() if any(frame.index.names) else frame
    header = [_unnamed(str(name)) for name in frame.columns]
    body = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return [(1, header), *enumerate(body, start=2)]


def _unnamed(name: str) -> str:
    return "" if name.startswith("Unnamed: ") else name


def _cell(value: Any) -> str:
    """A typed cell as text: missing is empty, a whole float (an id beside blanks) has no point."""
    import pandas as pd

    if pd.isna(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
