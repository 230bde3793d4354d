"""The zoommil command as tests run it: in processes of its own, on small synthetic slides."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def start(*arguments: str | Path, **kwargs) -> subprocess.Popen[str]:
    """Start a zoommil command and go on; it hears Ctrl-C even if the tests do not."""
    pipe = subprocess.PIPE
    kwargs = {"stdout": pipe, "stderr": pipe, "text": True, **kwargs}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command(*arguments), **kwargs)
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(process: subprocess.Popen[str], is_reached: Callable[[], bool]) -> None:
    """Wait for a moment in a running command."""
    while not is_reached():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> str:
    """Interrupt a running command; it must end as promised. Its standard error comes back."""
    import psutil

    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    words = [str(word) for word in process.args]  # pyright: ignore[reportGeneralTypeIssues]
    last = errors.strip().splitlines()[-1]
    assert last.startswith("interrupted. ")
    assert last.endswith(f": zoommil {shlex.join(words[3:])}")
    assert not psutil.wait_procs(family, timeout=20)[1], "a process outlived its command"
    return errors


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """This process can write no file longer than this: what a full disk does to it."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
