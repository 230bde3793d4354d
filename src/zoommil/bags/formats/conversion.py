"""Row 7, bags: a file or folder in one tool's feature format goes in, another's comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from zoommil.bags.bag import Bag, find_steps
from zoommil.bags.cohort import Cohort
from zoommil.bags.formats.format import FeatureFormat, ImportOptions
from zoommil.errors import BagError, ConfigError, OutputError, ZoomMILError
from zoommil.registry import Registry, unknown_name

FORMATS = Registry(
    "format",
    {
        "zoommil": "zoommil.bags.formats.zoommil:ZoomMILFormat",
        "trident": "zoommil.bags.formats.trident:TridentFormat",
        "clam": "zoommil.bags.formats.clam:ClamFormat",
        "stamp": "zoommil.bags.formats.stamp:StampFormat",
        "authors": "zoommil.bags.formats.authors:AuthorsFormat",
        "atlaspatch": "zoommil.bags.formats.atlaspatch:AtlasPatchFormat",
    },
)


@dataclass(frozen=True)
class Conversion:
    """What became of one file: the slide's id and files written, or why it failed."""

    slide_id: str
    source: Path
    written: tuple[Path, ...] = ()
    error: str = ""


def load_format(name: str) -> FeatureFormat:
    """The format of that name. Raises UnknownNameError with the nearest known one."""
    return FORMATS.load(name)()


def import_features(format: str, path: Path | str, **options: Any) -> Bag:
    """The bag in another tool's feature file.

    Args:
        format: trident, clam, stamp, authors, atlaspatch or zoommil.
        path: the file.
        **options: what the file does not say, as ``mpp=0.25``; see ``ImportOptions``.

    Raises:
        BagError: the file is damaged, of another kind, or lacks what only an option can tell.
        ConfigError: an unknown or invalid option.
    """
    return load_format(format).read(Path(path), _options(options))


def export_features(
    format: str,
    bag: Bag,
    path: Path | str,
    *,
    step: int | None = None,
    magnification: float | int | None = None,
) -> None:
    """Write a bag as another tool's feature file.

    Args:
        format: trident, clam, stamp, authors or zoommil.
        bag: what to write.
        path: the file; CLAM's may end in ``.pt``.
        step: which step, for tools that know one magnification.
        magnification: the same, by magnification.
    """
    load_format(format).write(bag, Path(path), _step_of(bag, step, magnification))


def convert_cohort(
    source: Path | str,
    out: Path | str,
    *,
    from_format: str,
    to_format: str = "zoommil",
    cohort: Cohort | None = None,
    step: int | None = None,
    magnification: float | int | None = None,
    progress: Callable[[Conversion], None] | None = None,
    **options: Any,
) -> list[Conversion]:
    """Convert every feature file below a folder (or one file); a bad one does not end the run.

    Args:
        source: a folder, at any depth, or a file.
        out: folder for the files, laid out as the target tool's users expect.
        from_format, to_format: names of formats.
        cohort: convert only its slides, with its ``mpp`` for each.
        step, magnification: which step to write, for tools that know one.
        progress: called with each conversion as it ends.
        **options: as of ``import_features``, for all files.
    """
    reader, writer = load_format(from_format), load_format(to_format)
    if not writer.can_write:
        raise BagError(f"{to_format} files are only read. Convert to trident.")
    _options(options)
    done = []
    for file, slide_id in _files(Path(source), reader, cohort):
        told = {**options, "slide_id": slide_id}
        if cohort is not None and cohort.slide(slide_id).mpp is not None:
            told["mpp"] = cohort.slide(slide_id).mpp
        try:
            bag = reader.read(file, _options(told))
            chosen = _step_of(bag, step, magnification)
            paths = writer.output_paths(Path(out), bag, chosen)
            for path in paths:
                writer.write(bag, path, chosen)
            conversion = Conversion(slide_id, file, tuple(paths))
        except OutputError:
            raise
        except ZoomMILError as error:
            conversion = Conversion(slide_id, file, error=f"{type(error).__name__}: {error}")
        done.append(conversion)
        if progress is not None:
            progress(conversion)
    return done


def _files(source: Path, reader: FeatureFormat, cohort: Cohort | None) -> list[tuple[Path, str]]:
    """(file, slide id) to convert; of CLAM's two files for one slide the one with corners."""
    if not source.exists():
        raise BagError(f"{str(source)!r} does not exist; expected {reader.name} features.")
    found: dict[str, Path] = {}
    for suffix in reader.suffixes:
        files = sorted(source.rglob(f"*{suffix}")) if source.is_dir() else [source]
        taken = dict(found)
        for file in files:
            if file.suffix.lower() != suffix or file.name.startswith(".") or file.stem in taken:
                continue
            if file.stem in found:
                raise BagError(
                    f"{str(found[file.stem])!r} and {str(file)!r} are both of slide "
                    f"{file.stem!r}. Convert the folder of one magnification and encoder."
                )
            found[file.stem] = file
    if not found:
        raise BagError(f"{str(source)!r} has no {' or '.join(reader.suffixes)} files.")
    if cohort is None:
        return [(file, slide_id) for slide_id, file in sorted(found.items())]
    missing = [slide_id for slide_id in cohort.slide_ids if slide_id not in found]
    if missing:
        raise unknown_name("feature file of slide", missing[0], sorted(found))
    return [(found[slide_id], slide_id) for slide_id in cohort.slide_ids]


def _options(options: dict[str, Any]) -> ImportOptions:
    unknown = sorted(set(options) - set(ImportOptions.model_fields))
    if unknown:
        raise ConfigError(str(unknown_name("option", unknown[0], ImportOptions.model_fields)))
    try:
        return ImportOptions(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else "option"
        raise ConfigError(f"option {name} is {first['input']!r}: {first['msg']}.") from error


def _step_of(bag: Bag, step: int | None, magnification: float | int | None) -> int | None:
    if magnification is None:
        return step
    return find_steps(bag.magnifications, [magnification])[0]
