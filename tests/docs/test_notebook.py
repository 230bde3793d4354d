"""The tutorial notebook runs from top to bottom, and its slides, patches and answers show."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from pages import ROOT

import zoommil

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def shown(cell: nbformat.NotebookNode) -> set[str]:
    """The kinds of output of a cell."""
    return {kind for output in cell.outputs for kind in output.get("data", {})}


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_made(tmp_path, monkeypatch):
    from nbclient import NotebookClient

    paths = [str(Path(zoommil.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook,
        timeout=500,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    cells = {cell.source.splitlines()[-1]: cell for cell in notebook.cells}
    for last in ("slide", "pyramid", "prediction"):
        assert "text/html" in shown(cells[last]), last
    for last in ("pyramid.plot(slide.plot());", "prediction.plot(slide=slide);"):
        assert "image/png" in shown(cells[last]), last
    assert len(list(tmp_path.glob("*/report.html"))) == 1


def test_the_notebook_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
