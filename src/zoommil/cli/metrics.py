"""Row 16, metrics as text: a report as JSON in, aligned tables with intervals out."""

from __future__ import annotations

from typing import Any

from zoommil.cli import terminal


def metrics_text(report: dict[str, Any], title: str) -> str:
    """Metrics with their intervals, the confusion matrix, and each class."""
    classes = report["classes"]
    head = f"{title}: {report['num_rows']} of {report['num_cases']} cases ({report['interval']})"
    metrics = [[name, _estimate(value)] for name, value in report["metrics"].items()]
    names = list(next(iter(report["per_class"].values()), {}))
    per_class = [
        [name, *(_estimate(row[metric]) for metric in names)]
        for name, row in report["per_class"].items()
    ]
    confusion = [
        [name, *map(str, row)] for name, row in zip(classes, report["confusion"], strict=True)
    ]
    parts = [
        head,
        terminal.table(["metric", "value"], metrics),
        terminal.table(["class", *names], per_class),
        terminal.table(["true \\ predicted", *classes], confusion),
        *(f"note: {note}" for note in report["notes"]),
    ]
    return "\n\n".join(parts) + "\n"


def _estimate(value: dict[str, Any]) -> str:
    if value["value"] is None:
        return "undefined"
    text = f"{value['value']:.3f}"
    if value.get("low") is not None:
        text += f" [{value['low']:.3f}, {value['high']:.3f}]"
    return text
