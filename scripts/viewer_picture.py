"""Take the picture of the viewer, docs/images/viewer.png, on what ``zoommil demo`` made.

python scripts/viewer_picture.py [zoommil-demo]

Needs Debian's chromium. Run it after a change of the viewer's looks.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zoommil.inference.prediction import Prediction

TARGET = Path(__file__).parent.parent / "docs" / "images" / "viewer.png"
SIZE = {"width": 1440, "height": 1000}
NUM_SLIDES, STEP = 8, "3"
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def zoommil(*words: str | Path) -> list[str]:
    """The words of a command."""
    return [sys.executable, "-m", "zoommil", *map(str, words)]


def predict(demo: Path, out: Path) -> str:
    """Predict some of the demo's slides; the one with a lesion the model is surest of."""
    slides = sorted((demo / "slides").glob("*.svs"))[:NUM_SLIDES]
    artefact = demo / "runs" / "zoommil" / "artefact"
    subprocess.run(
        zoommil("predict", artefact, *slides, "-o", out), check=True, stdout=subprocess.DEVNULL
    )
    lines = (out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    found = [Prediction.from_json(line) for line in lines]
    lesions = [one for one in found if one.label != "normal"] or found
    return max(lesions, key=lambda one: one.probabilities[one.label]).slide_id


@contextlib.contextmanager
def serving(demo: Path, predictions: Path) -> Iterator[str]:
    """The viewer's address."""
    cohort = demo / "slides" / "cohort.csv"
    words = [predictions, "--slides", demo / "slides", "--cohort", cohort, "--port", "0"]
    process = subprocess.Popen(zoommil("view", *words), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = None
        for line in process.stderr:
            found = re.search(r"http://\S+", line)
            if found:
                break
        if not found:
            raise SystemExit("the viewer did not start")
        yield found[0]
    finally:
        process.terminate()
        process.wait()


def shoot(address: str, slide_id: str) -> bytes:
    """A screenshot of a slide as it is seen at one step."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        page = browser.new_page(viewport=SIZE, color_scheme="dark")  # pyright: ignore
        page.goto(address)
        page.locator(".zm-open", has_text=slide_id).click()
        page.wait_for_selector(".leaflet-tile-loaded")
        page.keyboard.press(STEP)
        page.wait_for_selector(f".zm-step:nth-child({STEP})[aria-pressed=true]")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(2000)
        pixels = page.screenshot()
        browser.close()
    return pixels


def main() -> int:
    """Write the picture."""
    from PIL import Image

    demo = Path(sys.argv[1] if len(sys.argv) > 1 else "zoommil-demo").resolve()
    with tempfile.TemporaryDirectory() as folder:
        predictions = Path(folder) / "predictions"
        slide_id = predict(demo, predictions)
        with serving(demo, predictions) as address:
            pixels = shoot(address, slide_id)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    Image.open(io.BytesIO(pixels)).convert("RGB").save(TARGET, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
