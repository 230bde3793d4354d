"""Row 16, bench results: tables and notes in; a Markdown page and a JSON file out."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from zoommil import __version__, machine
from zoommil.files import file_hash, hash_of, write_json, write_text

NOT_MEASURED = ("cli", "viewer", "diagnosis")
"""Parts of the package that no bench uses."""


@dataclass(frozen=True)
class Table:
    """A titled table of cells that are already text."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def to_markdown(self) -> str:
        """The table as Markdown."""
        lines = [list(self.headers), ["---"] * len(self.headers), *map(list, self.rows)]
        body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"## {self.title}\n\n{body}\n"


@dataclass(frozen=True)
class BenchResult:
    """What one bench measured, how to measure it again, and what to think of it.

    ``pictures`` are SVG texts by their file's name.
    """

    name: str
    title: str
    command: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    data: dict[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """The result as a page."""
        notes = "".join(f"- {note}\n" for note in self.notes)
        parts = [f"# {self.title}\n", f"`{self.command}`\n", f"{describe_machine()}\n"]
        parts += [f"![{self.title}]({name})\n" for name in self.pictures]
        parts += [table.to_markdown() for table in self.tables]
        return "\n".join(parts + ([notes] if notes else []))

    def write(self, folder: Path) -> Path:
        """Write ``<name>.md``, ``<name>.json`` and the pictures; the page's path."""
        for name, picture in self.pictures.items():
            write_text(folder / name, picture)
        page = folder / f"{self.name}.md"
        write_text(page, self.to_markdown())
        made_by = {"command": self.command, "code": code_version()}
        write_json(folder / f"{self.name}.json", {**made_by, **self.data})
        return page


@cache
def code_version() -> str:
    """A hash of this package's files as far as measurements depend on them, 12 digits."""
    package = Path(__file__).parent.parent
    files = {
        str(path.relative_to(package).as_posix()): path
        for path in sorted(package.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    used = {name: path for name, path in files.items() if name.split("/")[0] not in NOT_MEASURED}
    return hash_of({name: file_hash(path) for name, path in used.items()})[:12]


def describe_machine() -> str:
    """One line about what measured: versions, cores, instruction sets; no names."""
    import torch

    flags = machine.cpu_flags()
    known = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if name in flags]
    return (
        f"zoommil {__version__}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"{platform.system()} {platform.machine()}, {machine.num_cores()} cores "
        f"({', '.join(known)})."
    )
