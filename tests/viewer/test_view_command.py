"""The command ``zoommil view``: one clear line for whatever is wrong, and a clean end."""

from __future__ import annotations

import shutil
import signal
import socket
import sys

import psutil
import pytest
from viewing import ask, viewer

from commands import run_here


@pytest.fixture
def view(shown, capsys, monkeypatch, tmp_path):
    """The command on the small cohort, with words in place of what it is usually given."""

    def run(predictions="{predictions}", slides="{slides}", *options: str):
        empty = tmp_path / "empty"
        empty.mkdir(exist_ok=True)
        places = {"predictions": shown.predictions, "slides": shown.slides, "empty": empty}
        words = [one.format(**places) for one in (predictions, "--slides", slides, *options)]
        return run_here(capsys, monkeypatch, "view", *words)

    return run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "zoommil predict --out"),
        (["{empty}"], "zoommil predict --out"),
        (["{slides}/alpha.svs"], "zoommil predict --out"),
        (["{predictions}/slides.csv"], "zoommil predict --out"),
        (["{predictions}", "nowhere"], "does not exist or is not a folder"),
        (["{predictions}", "{slides}/alpha.svs"], "does not exist or is not a folder"),
        (["{predictions}", "{empty}"], "there is no slide in"),
        (["{predictions}", "{slides}", "--artefact", "nowhere"], "is not a folder"),
        (["{predictions}", "{slides}", "--cohort", "nowhere.csv"], "nowhere.csv"),
        (["{predictions}", "{slides}", "--host", "203.0.113.7"], "cannot serve at 203.0.113.7"),
        (["{predictions}", "{slides}", "--host", "no such host"], "cannot serve at no such host"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line(view, words, said):
    ended = view(*words)
    assert ended.code == 1
    lines = [line for line in ended.errors.splitlines() if not line.startswith("WARNING")]
    assert len(" ".join(lines)) < 400
    assert said in " ".join(" ".join(lines).split())
    assert "Traceback" not in ended.errors
    assert "defect" not in ended.errors


def test_a_port_in_use_names_another_way(view):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = view("{predictions}", "{slides}", "--port", port)
    assert ended.code == 1
    assert f"cannot serve at 127.0.0.1:{port}" in ended.errors
    assert "--port" in ended.errors


def test_a_missing_extra_names_the_install_line(view, monkeypatch):
    monkeypatch.setitem(sys.modules, "nicegui", None)
    ended = view()
    assert ended.code == 1
    assert "pip install 'zoommil[viewer]'" in " ".join(ended.errors.split())


def test_missing_slides_are_counted_and_ctrl_c_ends_cleanly(shown, tmp_path):
    """Nothing is said, no process stays, and the port is free again."""
    slides = tmp_path / "slides"
    slides.mkdir()
    shutil.copy(shown.slides / "alpha.svs", slides)
    with viewer(shown.predictions, slides) as server:
        assert "2 of 3 predicted slides are not in" in "".join(server.said)
        assert ask(server, "/health").status == 200
        opened = socket.create_connection(("127.0.0.1", server.port))  # a browser stays connected
        said = len(server.said)
        family = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
        opened.close()
        assert not psutil.wait_procs(family, timeout=20)[1]
        assert server.said[said:] == []
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", server.port))
