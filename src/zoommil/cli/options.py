"""Row 16, options: what several commands ask for, spelled once; text in, specs out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoommil.errors import CohortError, ConfigError

if TYPE_CHECKING:
    from zoommil.bags.cohort import Cohort, SlideRow
    from zoommil.extraction import EncoderChoice
    from zoommil.grid import GridSpec
    from zoommil.tissue import TissueSpec

CohortArgument = Annotated[
    str,
    typer.Argument(
        metavar="COHORT",
        help="A table of slides (CSV, TSV, Parquet, XLSX), a folder, a glob in quotes, or a slide.",
    ),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")]
MppOption = Annotated[
    float | None,
    typer.Option("--mpp", help="Microns per level-0 pixel, for slides that do not say.", min=0.0),
]
SlidesOption = Annotated[
    Path | None,
    typer.Option("--slides", help="Where the slides lie, when the table has no paths."),
]
MagnificationsOption = Annotated[
    str,
    typer.Option(
        "--magnifications",
        "--mag",
        help="Lowest first, comma-separated; each a whole multiple of the one before.",
    ),
]
PatchPxOption = Annotated[int, typer.Option("--patch-px", help="Side of a patch in pixels.")]
ThresholdOption = Annotated[
    float,
    typer.Option("--tissue-threshold", help="Least tissue of a patch at the first magnification."),
]
ChildTissueOption = Annotated[
    float | None,
    typer.Option("--child-tissue", help="Least tissue of later patches; unset keeps all."),
]
OrderOption = Annotated[
    str, typer.Option("--order", help="First patches in `morton` or `row_major` order.")
]
ScaleOption = Annotated[
    str, typer.Option("--scale", help="`physical` (exact mpp) or `nominal` (the objective's).")
]
OverlapOption = Annotated[int, typer.Option("--overlap", help="Always 0.", hidden=True)]
TissueOption = Annotated[
    str,
    typer.Option(
        "--tissue",
        help="`otsu`, `paper`, `paper:crc`, `paper:bright`, `paper:camelyon16` or `everything`. "
        "Masks of the table's mask_path column take its place.",
    ),
]
InkOption = Annotated[
    bool, typer.Option("--keep-ink", help="Do not leave out pen ink (for blue or green stains).")
]
EncoderOption = Annotated[
    list[str],
    typer.Option(
        "--encoder", help="One for all magnifications, or given once for each, lowest first."
    ),
]
WeightsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        help="A weights file or `random:SEED` instead of the encoder's own; as often as --encoder.",
    ),
]
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help="`torch`, `openvino` or `auto` (the quicker installed).")
]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="`fp32`, `bf16`, `fp16`, `int8` (OpenVINO) or `auto`.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="`cpu`, `cuda`, `cuda:N` or `auto`.")]
WorkersOption = Annotated[
    int, typer.Option("--workers", help="Slides worked on side by side; the cores are shared.")
]
EngineOption = Annotated[str, typer.Option("--engine", help="Where the work is done.")]


def magnifications_of(text: str) -> tuple[float, ...]:
    """``1.25,2.5,10`` as numbers."""
    try:
        return tuple(float(part.strip().removesuffix("x")) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"magnifications {text!r} are not numbers. Separate them by commas, as 1.25,2.5,10."
        ) from error


def grid_spec(magnifications: str, **settings: Any) -> GridSpec:
    """The grid the options describe."""
    from zoommil.grid import GridSpec

    return checked(GridSpec, magnifications=magnifications_of(magnifications), **settings)


def tissue_spec(method: str, keep_ink: bool = False) -> TissueSpec:
    """The tissue search the options describe; ``paper:bright`` names the paper's settings."""
    from zoommil.tissue import TissueSpec

    name, _, preset = method.partition(":")
    settings: dict[str, Any] = {"paper": preset} if preset else {}
    if keep_ink:
        settings["otsu"] = {"exclude_ink": False}
    return checked(TissueSpec, method=name, **settings)


def encoder_choices(
    names: list[str], weights: list[str] | None, **settings: Any
) -> tuple[EncoderChoice, ...]:
    """The encoders the options describe, each with its weights."""
    from zoommil.extraction import EncoderChoice

    files: list[str | None] = list(weights or [None])
    if len(files) == 1:
        files *= len(names)
    if len(files) != len(names):
        raise ConfigError(
            f"--weights was given {len(files)} times and --encoder {len(names)} times; "
            "give it once, or once for each encoder."
        )
    return tuple(
        checked(EncoderChoice, name=name, weights=file, **settings)
        for name, file in zip(names, files, strict=True)
    )


def cohort_of(source: str, slides: Path | None = None, mpp: float | None = None) -> Cohort:
    """The slides a table, folder, glob or file names."""
    from zoommil.bags.cohort import read_cohort

    return read_cohort(source, slides=slides, mpp=mpp)


def slides_of(source: str, slides: Path | None, mpp: float | None) -> tuple[SlideRow, ...]:
    """The slides a command is to look at. Raises CohortError when not one of them has a file."""
    rows = cohort_of(source, slides, mpp).slides
    if all(row.path is None for row in rows):
        raise CohortError(
            f"none of the {len(rows)} slides of {source!r} has a file. Add a 'path' column to the "
            "table, or pass the folder its slides lie in (--slides)."
        )
    return rows


def checked(spec: type, **settings: Any) -> Any:
    """A spec from settings; what does not validate is a one-line ConfigError."""
    from pydantic import ValidationError

    try:
        return spec(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name} is {first['input']!r}: {first['msg']}.") from error
