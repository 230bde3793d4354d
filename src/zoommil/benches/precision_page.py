"""Row 16, bench precision: what was measured comes in, its page goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zoommil.benches.results import BenchResult, Table


@dataclass(frozen=True)
class Agreement:
    """What a precision changes, beside fp32.

    Attributes:
        feature_error: root mean square, as a share of the features' spread between patches.
        selections_changed: share of the patches zoomed into that fp32 did not choose, per zoom.
        slides_looked_elsewhere: slides with at least one other choice.
        predictions_changed: slides with another label.
        largest_change: of a class probability, on any slide.
        accuracy: of the labels.
        trained_on: the precision of the features that the models were trained on.
    """

    precision: str
    feature_error: float
    selections_changed: tuple[float, ...]
    slides_looked_elsewhere: int
    predictions_changed: int
    num_slides: int
    largest_change: float
    accuracy: float
    trained_on: str


@dataclass(frozen=True)
class Speed:
    """Patches per second of an encoder alone."""

    encoder: str
    patch_px: int
    precision: str
    threads: int
    patches_per_second: float


def page(
    agreements: Sequence[Agreement],
    speeds: Sequence[Speed],
    encoder: str,
    calibration: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> BenchResult:
    """The page with both tables."""
    magnifications = ", ".join(f"{value:g}x" for value in spec["magnifications"])
    return BenchResult(
        name="precision",
        title="What fp32, bf16 and int8 change",
        command="zoommil bench precision",
        tables=[agreement_table(agreements, encoder), speed_table(speeds)],
        notes=(
            f"The slides and folds of `bench pays` ({magnifications}, patches of "
            f"{spec['patch_px']} px): each slide is answered, from its pixels, by a model that has "
            f"not seen it (first seed), trained on {agreements[0].trained_on} features. Only the "
            "encoder's precision differs; everything is beside fp32.",
            "Feature error: root mean square of the difference, as a share of the root mean square "
            "distance of patches from their mean. The patches are others than those of the "
            "calibration, as far as slides have others.",
            "Zoomed into: of the chosen patches, the share that fp32 did not choose, zoom by zoom; "
            "at the second zoom also what follows from the first.",
            f"int8: NNCF, symmetric, calibrated on {calibration['patches']} patches of "
            f"{len(calibration['slides'])} slides; what is not int8 is computed in fp32.",
            "Speed: the encoder alone on pixels in memory, best of three.",
        ),
        data={
            "spec": dict(spec),
            "encoder": encoder,
            "calibration": {"patches": calibration["patches"], "sha256": calibration["sha256"]},
            "agreement": [asdict(one) for one in agreements],
            "speed": [asdict(one) for one in speeds],
        },
    )


def agreement_table(agreements: Sequence[Agreement], encoder: str) -> Table:
    """A row per precision: features, choices, answers."""
    num_zooms = len(agreements[0].selections_changed)
    headers = (
        "precision", "feature error", *(f"changed at zoom {n + 1}" for n in range(num_zooms)),
        "slides looked at elsewhere", "predictions changed", "largest change of a probability",
        "accuracy",
    )  # fmt: skip
    rows = [
        (
            one.precision,
            f"{one.feature_error:.1%}",
            *(f"{share:.1%}" for share in one.selections_changed),
            f"{one.slides_looked_elsewhere} of {one.num_slides}",
            f"**{one.predictions_changed} of {one.num_slides}**",
            f"{one.largest_change:.3f}",
            f"{one.accuracy:.3f}",
        )
        for one in agreements
    ]
    return Table(f"{encoder}, its own weights, out-of-fold slides", headers, rows)


def speed_table(speeds: Sequence[Speed]) -> Table:
    """A row per encoder and number of threads; precisions side by side."""
    rows = []
    for key in dict.fromkeys((one.encoder, one.patch_px, one.threads) for one in speeds):
        rates = {
            one.precision: one.patches_per_second
            for one in speeds
            if (one.encoder, one.patch_px, one.threads) == key
        }
        name, patch_px, threads = key
        rows.append(
            (
                f"{name}, {patch_px} px",
                str(threads),
                *(f"{rates[precision]:.1f}" for precision in rates),
                f"{rates['int8'] / rates['bf16']:.2f}x",
                f"{rates['int8'] / rates['fp32']:.2f}x",
            )
        )
    precisions = list(dict.fromkeys(one.precision for one in speeds))
    headers = ("encoder", "threads", *precisions, "int8 over bf16", "int8 over fp32")
    return Table("Patches per second", headers, rows)
