"""Row 16, bench flops: the paper's tables of operations, counted here, beside what it published.

Every count comes from the networks as their operators run. The paper's "FLOPs" are
multiply-accumulates (MACs) in its ResNet-50 rows and twice that in its ResNet-34 rows; both units
are named here and never mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, Literal

from zoommil.benches.paper_tasks import PATCH_PX, TASKS, Task, Way, bag_counts, zoom_counts
from zoommil.benches.results import BenchResult, Table

Role = Literal["fixes N_1", "prediction", "own count"]
Unit = Literal["MAC", "FLOP"]

TERA = 1e12
SAMPLED_PATCHES = 100
SAMPLING_METHODS = ("maxmil", "meanmil", "sparseconvmil")
EXHAUSTIVE_METHODS = ("abmil", "clam_sb", "transmil")

PUBLISHED: dict[str, dict[str, float]] = {
    "CRC": {
        **dict.fromkeys(SAMPLING_METHODS, 0.96),
        **dict.fromkeys(EXHAUSTIVE_METHODS, 13.63),
        "ZoomMIL-Eff": 1.06,
        "ZoomMIL": 1.40,
    },
    "BRIGHT": {
        **dict.fromkeys(SAMPLING_METHODS, 0.96),
        **dict.fromkeys(EXHAUSTIVE_METHODS, 16.45),
        "transmil": 16.46,
        "ZoomMIL-Eff": 0.40,
        "ZoomMIL": 1.29,
    },
    "CAMELYON16": {
        **dict.fromkeys(SAMPLING_METHODS, 0.96),
        **dict.fromkeys(EXHAUSTIVE_METHODS, 39.12),
        "ZoomMIL": 14.94,
    },
}
"""What the paper prints as TFLOPs for one slide."""


@dataclass(frozen=True)
class Row:
    """One method on one data set: counted here, and as published.

    Attributes:
        role: what the published figure is used for: single magnifications fix N_1, zooms are
            predicted from it, methods that sample have a count of their own.
        encoder_macs, model_macs: multiply-accumulates of one slide.
        published: in 10^12 of ``unit``.
    """

    task: str
    method: str
    magnifications: tuple[float, ...]
    role: Role
    patches: int
    encoder: str
    encoder_macs: int
    model_macs: int
    published: float
    unit: Unit

    @property
    def macs(self) -> int:
        """Multiply-accumulates of encoder and model."""
        return self.encoder_macs + self.model_macs

    @property
    def computed(self) -> float:
        """In 10^12 of the unit that the published figure has."""
        return self.macs * (2 if self.unit == "FLOP" else 1) / TERA

    @property
    def difference(self) -> float:
        """Of the published figure, relative."""
        return self.computed / self.published - 1


def bench_flops() -> BenchResult:
    """The paper's three tables from first principles beside the published figures."""
    rows = [row for task in TASKS.values() for row in rows_of(task)]
    tables = [_derivation_table(), _encoder_table()]
    tables += [_task_table(task.name, rows) for task in TASKS.values()]
    return BenchResult(
        name="flops",
        title="Operations per slide, counted, beside the paper's figures",
        command="zoommil bench flops",
        tables=tables,
        notes=_notes(rows),
        data={
            "macs_per_patch": {name: patch_macs(name) for name in ("resnet50", "resnet34")},
            "num_lowest": {task.name: derived_num_lowest(task) for task in TASKS.values()},
            "rows": [_to_json(row) for row in rows],
        },
    )


def rows_of(task: Task) -> list[Row]:
    """Every method that the paper has for a data set."""
    published = PUBLISHED[task.name]
    rows = [_sampling_row(task, name) for name in SAMPLING_METHODS]
    rows += [_exhaustive_row(task, name) for name in EXHAUSTIVE_METHODS]
    rows += [_zoom_row(task, way) for way in reversed(task.zooms)]
    assert [row.method for row in rows] == list(published)
    return rows


@cache
def patch_macs(encoder: str) -> int:
    """Multiply-accumulates of an encoder for one patch, counted as its operators run."""
    from zoommil.encoders.building import count_macs
    from zoommil.encoders.card import find_card

    return count_macs(find_card(encoder), PATCH_PX)


def derived_num_lowest(task: Task) -> float:
    """N_1 as the published row of ABMIL says: its operations over those of one lowest patch."""
    each = patch_macs("resnet50") * round(task.highest / task.lowest) ** 2
    return PUBLISHED[task.name]["abmil"] * TERA / each


def model_macs(name: str, counts: Sequence[int], **settings: Any) -> int:
    """Multiply-accumulates of a model on a bag of so many patches per step, counted as it runs."""
    import torch

    from zoommil.inference.cost import counted
    from zoommil.models.creation import create_model

    model = create_model(name, seed=0, **settings).eval()
    features = [torch.zeros(count, settings["feature_dim"]) for count in counts]
    corners = [_square_corners(count) for count in counts]
    with torch.inference_mode():
        _, macs = counted(partial(model, features, corners))
    return macs


def _sampling_row(task: Task, name: str) -> Row:
    macs = model_macs(name, [SAMPLED_PATCHES], feature_dim=512, num_classes=task.num_classes)
    encoder = SAMPLED_PATCHES * patch_macs("resnet34")
    return Row(
        task.name, name, (task.highest,), "own count", SAMPLED_PATCHES, "resnet34", encoder, macs,
        PUBLISHED[task.name][name], "FLOP",
    )  # fmt: skip


def _exhaustive_row(task: Task, name: str) -> Row:
    patches = task.num_highest
    macs = model_macs(name, [patches], feature_dim=1024, num_classes=task.num_classes)
    encoder = patches * patch_macs("resnet50")
    return Row(
        task.name, name, (task.highest,), "fixes N_1", patches, "resnet50", encoder, macs,
        PUBLISHED[task.name][name], "MAC",
    )  # fmt: skip


def _zoom_row(task: Task, way: Way) -> Row:
    assert way.k is not None
    patches = sum(zoom_counts(task.num_lowest, way.ratios, way.k))
    macs = model_macs(
        "zoommil",
        bag_counts(task.num_lowest, way.ratios),
        feature_dim=1024,
        num_classes=task.num_classes,
        ratios=way.ratios,
        k=way.k,
    )
    encoder = patches * patch_macs("resnet50")
    return Row(
        task.name, way.name, way.magnifications, "prediction", patches, "resnet50", encoder, macs,
        PUBLISHED[task.name][way.name], "MAC",
    )  # fmt: skip


def _square_corners(count: int):
    """Corners of patches that lie in a square, row by row."""
    import torch

    rows = torch.arange(count)
    side = max(1, round(count**0.5))
    return PATCH_PX * torch.stack([rows % side, rows // side], dim=1)


def _derivation_table() -> Table:
    rows = []
    for task in TASKS.values():
        ratio = round(task.highest / task.lowest)
        rows.append(
            (
                task.name,
                f"{PUBLISHED[task.name]['abmil']:.2f}",
                f"{task.highest:g}x, {ratio}² = {ratio**2} for each at {task.lowest:g}x",
                f"{derived_num_lowest(task):.1f}",
                str(task.num_lowest),
            )
        )
    headers = ("data set", "published for ABMIL, T", "patches", "N_1 by division", "N_1 taken")
    return Table(
        "N_1, the patches at the lowest magnification, from the published row", headers, rows
    )


def _encoder_table() -> Table:
    rows = [
        (f"{name}, {PATCH_PX} px", f"{patch_macs(key):,}", f"{2 * patch_macs(key) / 1e9:.3f}")
        for key, name in (("resnet50", "ResNet-50 to stage 3"), ("resnet34", "ResNet-34"))
    ]
    return Table("One patch", ("network", "MACs", "GFLOPs (2 per MAC)"), rows)


def _task_table(name: str, rows: Sequence[Row]) -> Table:
    headers = (
        "method", "looks at", "patches", "encoder, TMAC", "model, TMAC", "total, TMAC",
        "total, TFLOP", "published, T", "compared with", "difference", "role",
    )  # fmt: skip
    cells = []
    for row in rows:
        if row.task != name:
            continue
        cells.append(
            (
                row.method,
                " > ".join(f"{value:g}x" for value in row.magnifications),
                f"{row.patches:,}",
                f"{row.encoder_macs / TERA:.3f}",
                f"{row.model_macs / TERA:.4f}",
                f"{row.macs / TERA:.3f}",
                f"{2 * row.macs / TERA:.3f}",
                f"{row.published:.2f}",
                f"T{row.unit}",
                f"{row.difference:+.1%}",
                f"**{row.role}**" if row.role == "prediction" else row.role,
            )
        )
    return Table(name, headers, cells)


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    predictions = [row for row in rows if row.role == "prediction"]
    worst = max(predictions, key=lambda row: abs(row.difference))
    sampled = next(row for row in rows if row.role == "own count")
    return (
        "MAC: one multiply-accumulate. FLOP: one floating-point operation, 2 per MAC. What the "
        "paper calls FLOPs are MACs where the encoder is ResNet-50, FLOPs where it is ResNet-34.",
        "N_1 is not printed in the paper. The rows of one magnification fix it, so their agreement "
        "says nothing; only the zoom rows, marked as predictions, are tested by the comparison.",
        f"The {len(predictions)} predictions are within {abs(worst.difference):.1%} of the "
        f"published figures (furthest: {worst.task} {worst.method}, published with two digits "
        "after the point).",
        f"Counted alike, methods that sample {SAMPLED_PATCHES} patches cost "
        f"{sampled.macs / TERA:.3f} TMAC, not 0.96.",
        "TransMIL's model counts every token it attends with; its encoder rows are those of ABMIL.",
        "Not reproducible: the paper's mean patch counts (3468, 15872 and 9892 at 20x) are areas "
        "of tissue over a patch's area; with them no row agrees.",
        "Encoder: convolutions, counted by torch's FlopCounterMode. Model: matrix products, "
        "counted in a run on as many rows.",
    )


def _to_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "macs": row.macs, "flops": 2 * row.macs, "difference": row.difference}
