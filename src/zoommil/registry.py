"""Row 0, registry: families of named members; a name comes in, the member comes out.

A family is a table ``name -> "module:attribute"``; the module is imported when the member is
first used. Third parties add members through the entry-point group ``zoommil.<family>``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from zoommil.errors import UnknownNameError


class Registry:
    """The members of one family, imported on use."""

    def __init__(self, family: str, members: Mapping[str, str]) -> None:
        """Args: family: its singular noun, as in ``model``; members: name -> module:attribute."""
        self.family = family
        self._members = dict(members)

    def names(self) -> list[str]:
        """All known names: this package's in their own order, then third parties', sorted."""
        plugins = sorted(point.name for point in self._plugins)
        return list(dict.fromkeys([*self._members, *plugins]))

    def load(self, name: str) -> Any:
        """The member of that name. Raises UnknownNameError with the nearest known names."""
        target = self._members.get(name)
        if target is not None:
            module, attribute = target.split(":")
            return getattr(importlib.import_module(module), attribute)
        for point in self._plugins:
            if point.name == name:
                return point.load()
        raise unknown_name(self.family, name, self.names())

    @cached_property
    def _plugins(self) -> list[EntryPoint]:
        # Looked up once: it reads a file of every installed package, and slides are opened often.
        return list(entry_points(group=f"zoommil.{self.family}s"))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name nobody knows, with the nearest known one."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")
