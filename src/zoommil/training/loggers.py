"""Row 11, loggers: the rows of the curves come in as epochs end; files and servers get them.

``curves.csv`` is always written, whole and atomically, so that it is right after any interruption.
TensorBoard and MLflow are optional extras.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from zoommil.errors import MissingExtraError
from zoommil.files import write_text
from zoommil.registry import Registry

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": "zoommil.training.loggers:TensorBoardLogger",
        "mlflow": "zoommil.training.loggers:MLflowLogger",
    },
)

Row = Mapping[str, float | int | None]


class Logger(Protocol):
    """Takes the curves as they grow. Made with (folder, run as nested plain values)."""

    def log(self, row: Row) -> None:
        """Take one epoch's row."""
        ...

    def close(self) -> None:
        """End, whether the run finished or not."""
        ...


def write_curves(path: Path | str, rows: Sequence[Row]) -> None:
    """Write all rows of the curves as CSV; an undefined number is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else ["epoch"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(dict(row) for row in rows)
    write_text(path, stream.getvalue())


class TensorBoardLogger:
    """Scalars for TensorBoard in ``<folder>/tensorboard``."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        """Args: folder: of the run; run: its settings. Raises MissingExtraError."""
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        self._writer = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("run", repr(run))

    def log(self, row: Row) -> None:
        """Take one epoch's row."""
        epoch = int(row["epoch"] or 0)
        for name, value in row.items():
            if value is not None and name != "epoch":
                self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class MLflowLogger:
    """Metrics for MLflow, at MLFLOW_TRACKING_URI or in ``<folder>/mlruns``."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        """Args: folder: of the run; run: its settings. Raises MissingExtraError."""
        try:
            import mlflow  # type: ignore[import-not-found]
        except ImportError as error:
            raise _missing("mlflow") from error
        import os

        self._mlflow = mlflow
        if "MLFLOW_TRACKING_URI" not in os.environ:
            mlflow.set_tracking_uri((folder / "mlruns").absolute().as_uri())
        mlflow.start_run(run_name=str(run.get("name", folder.name)))
        mlflow.log_params(dict(_flat(run)))

    def log(self, row: Row) -> None:
        """Take one epoch's row."""
        values = {k: float(v) for k, v in row.items() if v is not None and k != "epoch"}
        self._mlflow.log_metrics(values, step=int(row["epoch"] or 0))

    def close(self) -> None:
        """End the MLflow run."""
        self._mlflow.end_run()


def _flat(table: Mapping[str, Any], prefix: str = ""):
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _missing(name: str) -> MissingExtraError:
    return MissingExtraError(
        f"log.loggers names {name!r}, which is not installed. "
        "Run: pip install 'zoommil[loggers]', or leave it out; curves.csv is always written."
    )
