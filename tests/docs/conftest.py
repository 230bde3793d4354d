"""What the pages of the documentation are given: synthetic slides and what follows of them."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

NUM_SLIDES = 12
GRID = ["--magnifications", "2.5,5,10", "--patch-px", "128", "--encoder", "efficientnet_lite0"]
QUICK = ["--set", "model.k=4", "--set", "training.epochs=2", "--set", "model.step_loss=0.3"]


class Store:
    """Things that pages start from, each made once, by the commands that users run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[str] = set()
        self._makers: dict[str, Callable[[], None]] = {
            "slides": self._slides,
            "wide": self._wide,
            "patients": self._patients,
            "bags": self._bags,
            "model": self._model,
            "predictions": self._predictions,
            "trident": self._trident,
            "clam": self._clam,
            "weights": self._weights,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Of the pages' processes: this zoommil, a cache of their own, no network."""
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            **os.environ,
            "PATH": os.pathsep.join(paths),
            "HF_HOME": str(self.folder / "huggingface"),
            "HF_HUB_OFFLINE": "1",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def give(self, names: tuple[str, ...], target: Path) -> None:
        """Copy what is asked for into a page's folder."""
        for name in names:
            self._need(name)
            for source in (self.folder / name).iterdir():
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, target / source.name)

    def _need(self, *names: str) -> None:
        for name in names:
            if name not in self._made:
                (self.folder / name).mkdir(parents=True)
                self._makers[name]()
                self._made.add(name)

    def _zoommil(self, *words: str | Path) -> None:
        command = ["zoommil", *map(str, words)]
        subprocess.run(
            command, check=True, cwd=self.folder, env=self.environment, capture_output=True
        )

    def _slides(self) -> None:
        _write_slides(self.folder / "slides", 1)

    def _wide(self) -> None:
        """The same with one slide for training on which one can choose at 1.25x."""
        from zoommil.synthetic.slide import write_slide
        from zoommil.synthetic.spec import SlideSpec

        self._need("slides")
        folder = self.folder / "wide"
        shutil.copytree(self.folder / "slides", folder, dirs_exist_ok=True)
        spec = SlideSpec(size_px=(8192, 8192), tissue=0.85, classes=("normal", "tumor"))
        (folder / "slides" / "slide_002.svs").unlink()
        write_slide(folder / "slides" / "slide_002.svs", spec, seed=1)
        shutil.copy(folder / "slides" / "slide_001.svs", folder / "slide.svs")
        shutil.copy(folder / "slides" / "slide_001.svs", folder / "a.svs")

    def _patients(self) -> None:
        _write_slides(self.folder / "patients", 2)

    def _bags(self) -> None:
        self._need("slides")
        self._zoommil("extract", "slides/cohort.csv", "-o", "bags/bags", *GRID)

    def _model(self) -> None:
        self._need("bags")
        words = ["--cohort", "slides/cohort.csv", "--bags", "bags/bags", *QUICK]
        self._zoommil("train", "zoommil", *words, "-o", "model/runs/first")
        shutil.copytree(self.folder / "bags" / "bags", self.folder / "model" / "bags")

    def _predictions(self) -> None:
        self._need("model")
        target = self.folder / "predictions"
        shutil.copytree(self.folder / "model", target, dirs_exist_ok=True)

    def _trident(self) -> None:
        folder = "trident/trident_out/20x_256px_0px_overlap/features_uni_v1"
        self._convert("trident", folder)

    def _clam(self) -> None:
        self._convert("clam", "clam/clam_out/h5_files")

    def _convert(self, tool: str, folder: str) -> None:
        self._need("bags")
        words = ["--from", "zoommil", "--to", tool, "--magnification", "10"]
        self._zoommil("convert", "bags/bags", "-o", folder, *words)

    def _weights(self) -> None:
        """ResNet-50 with random weights, as a file and where the hub's cache has it."""
        from safetensors.torch import save_file

        from zoommil.encoders.building import build_network
        from zoommil.encoders.card import find_card
        from zoommil.encoders.weights import randomise

        network = build_network(find_card("resnet50"))
        randomise(network, 0)
        file = self.folder / "weights" / "resnet50.safetensors"
        save_file(network.state_dict(), file)
        repository = self.folder / "huggingface" / "hub" / "models--timm--resnet50.tv_in1k"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("0" * 40)
        (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
        shutil.copy(file, repository / "snapshots" / ("0" * 40) / "model.safetensors")


def _write_slides(folder: Path, slides_per_case: int) -> None:
    """Slides in a folder of their own and their table beside it."""
    from zoommil.synthetic.cohort import CohortSpec, write_cohort
    from zoommil.synthetic.spec import SlideSpec

    slide = SlideSpec(size_px=(2048, 2048), downsamples=(1, 4), classes=("normal", "tumor"))
    spec = CohortSpec(num_slides=NUM_SLIDES, slides_per_case=slides_per_case, slide=slide)
    table = write_cohort(folder / "slides", spec, seed=3)
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    with (folder / "cohort.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["case_id", "slide_id", "label", "path"])
        for row in rows:
            path = f"slides/{row['path']}"
            writer.writerow([row["case_id"], row["slide_id"], row["label"], path])


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Store:
    """What pages are given."""
    return Store(tmp_path_factory.mktemp("given"))
