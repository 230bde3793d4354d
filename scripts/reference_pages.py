"""Write the generated pages of docs/reference: commands, run files, encoders, the Python API.

python scripts/reference_pages.py            (or: make generated)
python scripts/reference_pages.py --check    exit code 1 and the names of pages that drifted
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import zoommil
from zoommil.cli.app import app
from zoommil.encoders.card import find_card, list_encoders
from zoommil.training import specs
from zoommil.training.run import RunSpec, list_recipes, load_recipe, toml_of

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
MADE = (
    "<!-- Made by scripts/reference_pages.py; change what it is made from, then make generated. -->"
)

COMMANDS = f"""# Commands

{MADE}

Every command takes `--help`; before the command's name, `zoommil` takes `--debug` (tracebacks of
errors), `--verbose` and `--version`.

Answers go to standard output: text on a terminal, JSON lines in a pipe. Progress and remarks go to
standard error; bars are drawn only on a terminal.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused in one line, or some slides failed and are named |
| 2 | wrong usage |
| 70 | a defect of zoommil |
| 130 | interrupted by Ctrl-C; what was finished is kept, the same command goes on |
"""

RUN_FILE = f"""# Run files

{MADE}

A run file is TOML. It names a recipe or a model, and changes what it wants changed; an unknown key
is an error that names the nearest known one. `zoommil train RUN --set section.key=value` changes a
key once. The resolved run is saved beside its results as `run.toml`.
"""

PYTHON = f"""# Python

{MADE}

```python
import zoommil as zm
```

The names of `zoommil` itself are stable. They are imported on first use: `import zoommil` costs
nothing.
"""

ENCODERS = f"""# Encoders

{MADE}

`--encoder NAME`, or `load_encoder(NAME)`; beside these, any timm model as `timm:NAME` (extra
`timm`). Weights are found as [Offline and gated weights](../howto/offline-weights.md) says.

"""

PARTS = {
    "Slides, tissue, patches": [
        "open_slide", "Slide", "find_tissue", "TissueSpec", "TissueMask", "GridSpec",
        "PatchPyramid",
    ],
    "Encoders and bags": [
        "load_encoder", "list_encoders", "extract", "Bag", "read_bag", "write_bag",
    ],
    "Models and training": [
        "create_model", "list_models", "MILOutput", "RunSpec", "train", "Artefact",
    ],
    "Answers": ["Predictor", "Limits", "Prediction"],
    "Errors": ["ZoomMILError"],
}  # fmt: skip

BESIDE = {
    "Selection": ["zoommil.models.topk.zoom_in", "zoommil.models.topk.hard_topk"],
    "Cohorts": ["zoommil.bags.cohort.read_cohort", "zoommil.bags.cohort.Cohort"],
    "What an encoder is": ["zoommil.encoders.encoder.Encoder", "zoommil.encoders.card.EncoderCard"],
}


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "commands.md": COMMANDS + "\n" + "\n".join(_command_sections()),
        "run-file.md": RUN_FILE + "\n" + "\n".join(_run_sections()),
        "encoders.md": ENCODERS + _encoder_table(),
        "python.md": PYTHON + "\n" + "\n".join(_python_sections()),
    }


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of ``zoommil --help``; groups are opened."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for inner, subcommand in getattr(command, "commands", {"": command}).items():
            yield f"{name} {inner}".strip(), subcommand


def _command_sections() -> Iterator[str]:
    for name, command in commands():
        shown = [option for option in command.params if not option.hidden]
        arguments = [option for option in shown if not option.opts[0].startswith("-")]
        options = [option for option in shown if option not in arguments]
        needed = [f"{option.opts[0]} {_metavar(option)}" for option in options if option.required]
        words = ["zoommil", name, *map(_word, arguments), *needed, "[OPTIONS]"]
        yield f"## zoommil {name}\n\n{command.help}\n\n```text\n{' '.join(words)}\n```\n"
        if shown:
            rows = map(_option_row, [*arguments, *options])
            yield "\n".join(["| | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _option_row(option: Any) -> str:
    names = ", ".join(option.opts) if option.opts[0][0] == "-" else _word(option)
    if option.required:
        default = "required"
    elif getattr(option, "is_flag", False):
        default = "on" if option.default else ""
    else:
        default = _shown(option.default)
    text = option.help or ""
    if option.multiple and "epeatable" not in text:
        text += " Repeatable."
    return f"| `{names}` | {default} | {_cell(text)} |"


def _shown(default: Any) -> str:
    values = default if isinstance(default, list | tuple) else [default]
    return "" if default in (None, [], ()) else f"`{' '.join(map(str, values))}`"


def _word(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _metavar(option: Any) -> str:
    return option.metavar or option.name.rstrip("_").upper()


def _run_sections() -> Iterator[str]:
    for name, field in RunSpec.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, specs.Section):
            yield f"## [{name}]\n\n{inspect.getdoc(kind)}\n"
            if kind is not specs.ModelSpec:
                rows = [_key_row(kind, key) for key in kind.model_fields]
                yield "\n".join(["| key | default | |", "|---|---|---|", *rows]) + "\n"
    yield "## A run with every default\n\n```toml\n" + RunSpec().to_toml().strip() + "\n```\n"
    yield "## Recipes\n\nThe run files that come with the package, by name.\n"
    for name in list_recipes():
        yield f"### {name}\n\n```toml\n{toml_of(load_recipe(name)).strip()}\n```\n"


def _key_row(kind: type, key: str) -> str:
    """A key with its default and what the source says of it."""
    source = inspect.getsource(kind)
    found = re.search(
        rf"((?:    #[^\n]*\n)*)    {key}:[^#]*?(?:  #([^\n]*))?\n(?:    \)([^\n]*)\n)?", source
    )
    said = "" if found is None else " ".join(filter(None, (found[1], found[2], found[3])))
    default = toml_of({key: kind.model_fields[key].default}).strip().partition(" = ")[2]  # type: ignore[attr-defined]
    return f"| `{key}` | `{default or '{}'}` | {_cell(said.replace('#', ' '))} |"


def _encoder_table() -> str:
    rows = []
    for card in map(find_card, list_encoders()):
        kind, _, place = card.source.partition(":")
        where = (
            f"[{place}](https://huggingface.co/{place})"
            if kind == "hub"
            else f"extra `{card.extra}`"
        )
        gated = "gated" if card.gated else ""
        size = "any" if card.any_size else str(card.input_px)
        cells = [f"`{card.name}`", card.title, str(card.dim), size, where, card.licence, gated]
        rows.append(f"| {' | '.join(cells)} |")
    head = ["| name | what | features | input px | weights | licence | |", "|" + "---|" * 7]
    return "\n".join([*head, *rows]) + "\n"


def _python_sections() -> Iterator[str]:
    for title, names in PARTS.items():
        yield f"## {title}\n"
        for name in names:
            yield f"::: {zoommil._PUBLIC[name]}.{name}\n"
    for title, names in BESIDE.items():
        yield f"## {title}\n"
        for name in names:
            yield f"::: {name}\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the pages, or with ``--check`` name those that drifted."""
    drifted = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        if drifted:
            sys.stderr.write(f"docs/reference: {', '.join(drifted)} drifted; make generated\n")
        return bool(drifted)
    for name in drifted:
        (FOLDER / name).write_text(pages()[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
