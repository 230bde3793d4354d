"""The zoommil command as tests run it: in processes of its own, on small synthetic slides."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NUM_SLIDES = 4
ARGUMENTS = [
    "--magnifications", "2.5,10", "--patch-px", "128",
    "--encoder", "resnet18", "--weights", "random:0", "--precision", "fp32",
]  # fmt: skip


def command(*arguments: str | Path) -> list[str]:
    """The words of a zoommil command in a process of its own."""
    return [sys.executable, "-m", "zoommil", *map(str, arguments)]


def run(*arguments: str | Path, **kwargs) -> subprocess.CompletedProcess[str]:
    """Run a zoommil command to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=environment, **kwargs
    )


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a zoommil command and go on."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command(*arguments), stdout=pipe, stderr=pipe, text=True)


def bags_in(folder: Path) -> dict[str, bytes]:
    """The bag files of a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.h5"))}


@dataclass(frozen=True)
class Ended:
    """How a command ended in this process."""

    code: int
    output: str
    errors: str


def run_here(capsys, monkeypatch, *arguments: str | Path) -> Ended:
    """Run a zoommil command in this process, exactly as the console script does."""
    from zoommil.cli.app import main

    monkeypatch.setattr(sys, "argv", ["zoommil", *map(str, arguments)])
    capsys.readouterr()
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    captured = capsys.readouterr()
    return Ended(code, captured.out, captured.err)
