"""Row 16, finding: one thing that was looked at, how it is, and what would mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was looked at.

    Attributes:
        name: of what was looked at, as ``disk`` or ``extra openvino``.
        status: ``ok``; ``note``: works, but could be better; ``problem``: something will not work.
        text: how it is.
        remedy: what to do; empty when there is nothing to do.
        details: the same as values, for programs.
    """

    name: str
    status: Status
    text: str
    remedy: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
