"""Row 0, engines: independent tasks in, an outcome out as each ends; they know callables only."""

from __future__ import annotations

from zoommil.registry import Registry

ENGINES = Registry(
    "engine",
    {
        "local": "zoommil.engines.local:LocalEngine",
    },
)
