"""Row 13, sources: predictions as they were stored, and the slides they were made from, opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zoommil.bags.cohort import SlideRow
from zoommil.errors import PredictionError
from zoommil.inference.prediction import Prediction, read_predictions
from zoommil.slides.opening import open_slide
from zoommil.slides.resolution import GIVEN
from zoommil.slides.slide import Slide


def load_predictions(path: Path | str) -> list[Prediction]:
    """The predictions of a file, or of the folder that ``zoommil predict`` wrote.

    Raises:
        PredictionError: there are none, the file holds something else, or a slide's name cannot
            name the files that will be written about it.
    """
    path = Path(path)
    found = read_predictions(path)
    for one in found:
        name = one.slide_id
        if not name or name.startswith(".") or any(character in name for character in "/\\\0"):
            raise PredictionError(
                f"{str(path)!r}: slide id {name!r} cannot be a file name. Expected what 'zoommil "
                "predict' wrote."
            )
    return found


def open_predicted(prediction: Prediction, rows: Mapping[str, SlideRow] | None = None) -> Slide:
    """The slide a prediction was made from, open: a row's file, else where it lay at the time.

    Args:
        prediction: of the slide.
        rows: slides by id, where to look first.

    Raises:
        PredictionError: it is not known where the slide lies, or the file is another slide.
        SlideError: it cannot be opened.
    """
    row = (rows or {}).get(prediction.slide_id)
    path = None if row is None else row.path
    if path is None:
        path = prediction.measured.files.get("slide") or None
    if path is None or not Path(path).exists():
        where = "is not known" if path is None else f"was {str(path)!r}, which is not there"
        raise PredictionError(
            f"where the slide {prediction.slide_id!r} lies {where}. Pass a table or folder of the "
            "slides (--slides)."
        )
    about = prediction.provenance.get("slide") or {}
    mpp = None if row is None else row.mpp
    if mpp is None and about.get("mpp_source") == GIVEN:
        mpp = about.get("mpp")
    slide = open_slide(path, mpp=mpp)
    expected = about.get("fingerprint")
    if expected is not None and slide.fingerprint != expected:
        slide.close()
        raise PredictionError(
            f"{str(path)!r} is not the slide that {prediction.slide_id!r} was predicted from: its "
            "content differs. Pass the folder of the slides that were predicted (--slides)."
        )
    return slide
