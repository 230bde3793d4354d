"""Row 11, run: a recipe, a run file and overrides come in; one strict, resolved RunSpec goes out.

Later wins: the recipe of the method (package data), the run file, ``--set key=value``. A key nobody
knows is an error that names the nearest known one, at every level.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from zoommil.errors import ConfigError
from zoommil.files import write_text
from zoommil.registry import unknown_name
from zoommil.training.specs import (
    DataSpec,
    EvaluationSpec,
    LogSpec,
    ModelSpec,
    OptimiserSpec,
    ScheduleSpec,
    Section,
    StoppingSpec,
    TrainingSpec,
)

_NOT_IDENTITY = {"name", "out", "log", "threads", "device"}


class RunSpec(Section):
    """Everything that determines a training run, and where its results go."""

    name: str = "run"
    recipe: str = "zoommil"
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    threads: int = Field(default=0, ge=0)  # 0: as the process has them
    out: str = ""  # empty: runs/<name>
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    optimiser: OptimiserSpec = OptimiserSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    training: TrainingSpec = TrainingSpec()
    stopping: StoppingSpec = StoppingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    log: LogSpec = LogSpec()

    @classmethod
    def compose(cls, *tables: Mapping[str, Any], overrides: Iterable[str] = ()) -> RunSpec:
        """The resolved run of some tables, the later winning, over the recipe they name.

        Args:
            tables: nested dictionaries as TOML gives them.
            overrides: ``section.key=value`` strings, the value in TOML's spelling.

        Raises:
            ConfigError: an unknown key (the nearest known one is named) or a value that cannot be.
            UnknownNameError: an unknown recipe or model.
        """
        asked: dict[str, Any] = {}
        for table in (*tables, *(parse_override(text) for text in overrides)):
            asked = _merge(asked, table)
        return _validate(_merge(_recipe_of(asked), asked))

    @classmethod
    def from_recipe(cls, name: str, *tables: Mapping[str, Any]) -> RunSpec:
        """The run of a recipe with some values changed, as ``{"training": {"epochs": 5}}``."""
        return cls.compose({"recipe": name}, *tables)

    @classmethod
    def load(cls, path: Path | str, overrides: Iterable[str] = ()) -> RunSpec:
        """The run of a TOML file. Relative paths in it are relative to the file.

        Raises:
            ConfigError: the file cannot be read or is not TOML, or see :meth:`compose`.
        """
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"cannot read the run file {str(path)!r}: {reason}. Check its path, or give the "
                "name of a recipe."
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path.name!r} is not TOML: {error}.") from error
        run = cls.compose(table, overrides=overrides)
        return run._with_paths(lambda value: os.path.normpath(path.parent / value))

    def changed(self, **tables: Any) -> RunSpec:
        """This run with some values changed, checked again."""
        return _validate(_merge(self.to_table(), tables))

    def to_table(self) -> dict[str, Any]:
        """The run as nested plain values, the model's arguments beside its name as in TOML."""
        table = self.model_dump(mode="json")
        table["model"] = {"name": self.model.name, **table["model"]["arguments"]}
        return table

    def to_toml(self) -> str:
        """The resolved run as TOML; :meth:`load` gives it back."""
        return toml_of(self.to_table())

    def save(self, path: Path | str) -> None:
        """Write the resolved run beside its results, its paths relative to the file."""
        folder = Path(path).parent.absolute()
        moved = self._with_paths(lambda value: os.path.relpath(value, folder))
        write_text(path, moved.to_toml())

    def determining(self) -> dict[str, Any]:
        """What determines the result: no names, places, loggers or machines."""
        table = {key: value for key, value in self.to_table().items() if key not in _NOT_IDENTITY}
        # What files hold is hashed elsewhere, not where they lie or how they are read.
        places = ("cohort", "bags", "split", "fold", "memory")
        table["data"] = {key: value for key, value in table["data"].items() if key not in places}
        return table

    @property
    def out_folder(self) -> Path:
        """Where results go."""
        return Path(self.out) if self.out else Path("runs") / self.name

    def _with_paths(self, move: Callable[[str], str]) -> RunSpec:
        """The run with each path that it names moved."""
        names = ("cohort", "bags", "split")
        found = {name: getattr(self.data, name) for name in names}
        data = {name: move(value) for name, value in found.items() if value}
        return self.changed(data=data, **({"out": move(self.out)} if self.out else {}))


def list_recipes() -> list[str]:
    """The names of the recipes that come with the package."""
    folder = resources.files("zoommil.training") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir()
                  if entry.name.endswith(".toml"))  # fmt: skip


def load_recipe(name: str) -> dict[str, Any]:
    """One recipe as nested plain values.

    Raises:
        UnknownNameError: no such recipe; the nearest is named.
    """
    if name not in list_recipes():
        raise unknown_name("recipe", name, list_recipes())
    file = resources.files("zoommil.training") / "recipes" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def parse_override(text: str) -> dict[str, Any]:
    """``training.epochs=5`` as a nested table; what is not TOML is taken as a string.

    Raises:
        ConfigError: there is no ``=``.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"{text!r} is not key=value; write for example training.epochs=20.")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    *sections, last = key.strip().split(".")
    table: dict[str, Any] = {last: parsed}
    for section in reversed(sections):
        table = {section: table}
    return table


def toml_of(table: Mapping[str, Any]) -> str:
    """Plain values as TOML: scalars and lists first, then one block per table."""
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items()
             if not isinstance(value, Mapping) and value is not None]  # fmt: skip
    for key, value in table.items():
        if isinstance(value, Mapping):
            rows = "\n".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()
                             if v is not None)  # fmt: skip
            lines.append(f"\n[{_toml_key(key)}]" + (f"\n{rows}" if rows else ""))
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_text(text: str) -> str:
    """A basic string: JSON's escapes, and the one control character that JSON leaves alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return _toml_text(value) if isinstance(value, str) else json.dumps(value)


def _recipe_of(asked: dict[str, Any]) -> dict[str, Any]:
    """The recipe that the tables name, or that of the model they name, or ZoomMIL's."""
    model = asked.get("model", {})
    name = asked.get("recipe") or (model.get("name") if isinstance(model, Mapping) else None)
    recipe: dict[str, Any] = {"recipe": name or "zoommil", **load_recipe(name or "zoommil")}
    wanted = model.get("name") if isinstance(model, Mapping) else None
    if wanted and wanted != recipe["model"]["name"]:
        raise ConfigError(
            f"recipe {recipe['recipe']!r} trains {recipe['model']['name']!r}, but model.name is "
            f"{wanted!r}; name only one of them, or a recipe of that model."
        )
    return recipe


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _validate(table: dict[str, Any]) -> RunSpec:
    model = table.get("model", {})
    if isinstance(model, Mapping):
        arguments = {key: value for key, value in model.items() if key != "name"}
        table = table | {"model": {"name": model.get("name", "zoommil"), "arguments": arguments}}
    try:
        run = RunSpec.model_validate(table)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error
    _check_model(run.model)
    return run


def _check_model(spec: ModelSpec) -> None:
    """Refuse arguments that the model's constructor does not have."""
    from zoommil.models.creation import default_settings

    known = ["preset", *default_settings(spec.name)]
    for key in spec.arguments:
        if key not in known:
            raise ConfigError(_unknown_key(f"model.{key}", [f"model.{name}" for name in known]))


def _explain(error: ValidationError) -> str:
    """One line for the first thing that is wrong, with the nearest known key for a typo."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown_key(path, known_keys())
    return f"{path} = {first['input']!r} cannot be: {first['msg']}. Correct it in the run file."


def _unknown_key(path: str, known: list[str]) -> str:
    siblings = [key for key in known if key.rpartition(".")[0] == path.rpartition(".")[0]]
    near = difflib.get_close_matches(path, siblings, n=1, cutoff=0.6)
    last = path.rpartition(".")[2]
    near = near or [key for key in known if key.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown key {path!r} in the run.{hint} Known here: {', '.join(siblings)}."


def known_keys() -> list[str]:
    """Every dotted key of a run file but the model's own arguments."""
    keys: list[str] = []
    for name, field in RunSpec.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            inner = ["name"] if kind is ModelSpec else list(kind.model_fields)
            keys += [f"{name}.{key}" for key in inner]
        keys.append(name)
    return keys
