"""Row 7, bags: a folder, a glob or a name goes in, the slide files it means come out."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

from zoommil.errors import CohortError

SLIDE_SUFFIXES = (
    ".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".vmu", ".svslide",
    ".czi", ".dcm",
)  # fmt: skip
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
FEATURE_SUFFIXES = (".h5", ".hdf5", ".pt")
_NOT_SLIDES = re.compile(
    r"(^|[_\-. ])(mask|masks|label|labels|macro|thumbnail|thumb|overview|annotation|annotations)$",
    re.IGNORECASE,
)
_DICOM_SERIES = b"\x20\x00\x0e\x00UI"  # SeriesInstanceUID, explicit little endian


def slide_id_of(name: Path | str) -> str:
    """The id of a slide file: its name without the extension."""
    return Path(str(name).replace("\\", "/")).stem


def without_suffix(slide_id: str) -> str:
    """An id without a slide's or feature file's extension, if somebody left one on."""
    known = (*SLIDE_SUFFIXES, *IMAGE_SUFFIXES, *FEATURE_SUFFIXES)
    suffix = Path(slide_id).suffix
    return slide_id[: -len(suffix)] if suffix.lower() in known else slide_id


def files_of_folder(folder: Path) -> list[Path]:
    """All slides below a folder, sorted: known suffixes, no hidden, label or mask files.

    Files of one DICOM series are one slide, known by the first of them.
    """
    found = []
    seen_series: set[tuple[Path, bytes]] = set()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts) or not path.is_file():
            continue
        if path.suffix.lower() not in SLIDE_SUFFIXES or _NOT_SLIDES.search(path.stem):
            continue
        series = _series_of(path) if path.suffix.lower() == ".dcm" else None
        if series is not None:
            if (path.parent, series) in seen_series:
                continue
            seen_series.add((path.parent, series))
        found.append(path)
    if not found:
        raise CohortError(
            f"folder {str(folder)!r} has no slides ({', '.join(SLIDE_SUFFIXES)}). "
            "For plain images pass a glob, as 'folder/*.png'."
        )
    return found


def files_of_glob(pattern: str) -> list[Path]:
    """The files a pattern matches, sorted. Raises CohortError when there are none."""
    found = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207
    files = [path for path in found if path.is_file()]
    if not files:
        raise CohortError(f"no file matches {pattern!r}. Check the pattern, and quote it.")
    return files


class SlideFolder:
    """The files below a folder by stem; scanned once, when the first name is asked for."""

    def __init__(self, folder: Path | str) -> None:
        """Args: folder: where slides lie, at any depth."""
        self.folder = Path(folder)
        self._by_stem: dict[str, list[Path]] | None = None
        if not self.folder.is_dir():
            raise CohortError(f"slides folder {str(folder)!r} does not exist or is not a folder.")

    def find(self, name: str) -> Path | None:
        """The slide of that relative path, file name or stem, None when there is none.

        Raises:
            CohortError: several files could be meant; names them.
        """
        direct = self.folder / name
        if direct.is_file():
            return direct
        if self._by_stem is None:
            self._by_stem = _by_stem(files_of_folder(self.folder))
        matches = self._by_stem.get(slide_id_of(without_suffix(name)), [])
        exact = [path for path in matches if path.name == Path(name).name]
        matches = exact or matches
        if len(matches) > 1:
            raise CohortError(
                f"slide {name!r} could be {str(matches[0])!r} or {str(matches[1])!r}. "
                "Give its path in the table, relative to the slides folder."
            )
        return matches[0] if matches else None


def _by_stem(paths: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(slide_id_of(path), []).append(path)
    return found


def _series_of(path: Path) -> bytes | None:
    """The series a DICOM file belongs to, from its first bytes; None when not found."""
    with path.open("rb") as stream:
        head = stream.read(1 << 16)
    at = head.find(_DICOM_SERIES)
    if at < 0:
        return None
    start = at + len(_DICOM_SERIES) + 2
    length = int.from_bytes(head[start - 2 : start], "little")
    return head[start : start + length]
