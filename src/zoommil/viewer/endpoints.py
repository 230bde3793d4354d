"""Row 15, endpoints: keys and numbers come in over HTTP; pictures or one line go out."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from zoommil.errors import PredictionError, SlideError, UnknownNameError, ZoomMILError
from zoommil.inference.prediction import Prediction
from zoommil.viewer.library import Library
from zoommil.viewer.live import LivePredictions
from zoommil.viewer.tiles import BusyError, PictureMaker, patch_box, top_patches

_KEEP = {"cache-control": "private, max-age=3600"}
_KINDS = ((UnknownNameError, 404), (BusyError, 503), (SlideError, 422), (PredictionError, 422))
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][^/\\'\":;,]+)+[/\\]")

Answer = Callable[[Request], Awaitable[Response]]


def routes(library: Library, pictures: PictureMaker, live: LivePredictions) -> list[Route]:
    """Everything that is asked for by key: tiles, patches, thumbnails, predictions."""

    async def tile(request: Request) -> Response:
        key, zoom, column, row = _values(request, "key", "zoom", "column", "row")
        return _jpeg(await pictures.tile(key, zoom, column, row))

    async def thumbnail(request: Request) -> Response:
        return _jpeg(await pictures.thumbnail(request.path_params["key"]))

    async def patch(request: Request) -> Response:
        key, step, rank = _values(request, "key", "step", "rank")  # the version is the browser's
        prediction = shown(library, live, key)
        if prediction is None or not 0 <= step < len(prediction.steps):
            raise UnknownNameError("there is no such patch.")
        best = top_patches(prediction, step)
        if not 0 <= rank < len(best):
            raise UnknownNameError("there is no such patch.")
        box = patch_box(prediction, step, best[rank])
        mpp = prediction.steps[step].mpp or 0.0
        return _jpeg(await pictures.patch(key, box, mpp))

    async def prediction(request: Request) -> Response:
        found = _existing(library, live, request)
        return _download(found.to_json(measured=False), found.slide_id, "json")

    async def geojson(request: Request) -> Response:
        found = _existing(library, live, request)
        return _download(json.dumps(found.to_geojson()), found.slide_id, "geojson")

    async def health(_request: Request) -> Response:
        return JSONResponse({"slides": len(library.entries)})

    return [
        Route("/tiles/{key}/{zoom:int}/{column:int}/{row:int}.jpg", answered(tile)),
        Route("/thumbnails/{key}.jpg", answered(thumbnail)),
        Route("/patches/{key}/{version:int}/{step:int}/{rank:int}.jpg", answered(patch)),
        Route("/predictions/{key}.json", answered(prediction)),
        Route("/geojson/{key}.geojson", answered(geojson)),
        Route("/health", answered(health)),
    ]


def shown(library: Library, live: LivePredictions, key: str) -> Prediction | None:
    """The prediction that is shown for a key: the one made now, else the stored one."""
    run = live.run_of(key)
    if run is not None and run.prediction is not None:
        return run.prediction
    return library.prediction(key)


def answered(answer: Answer) -> Answer:
    """The same endpoint, with what goes wrong as one line and a status that says what it is."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except (ZoomMILError, MemoryError, OSError) as error:
            status = next((code for kind, code in _KINDS if isinstance(error, kind)), 500)
            headers = {"retry-after": "1"} if status == 503 else {}
            return PlainTextResponse(told(error), status, {"cache-control": "no-store", **headers})

    return endpoint


def told(error: BaseException) -> str:
    """An error's message in one line, without the folders that files lie in."""
    if isinstance(error, (OSError, MemoryError)):
        return f"this cannot be read here ({type(error).__name__})."
    return _FOLDERS.sub("", " ".join(str(error).split()))


def _existing(library: Library, live: LivePredictions, request: Request) -> Prediction:
    found = shown(library, live, request.path_params["key"])
    if found is None:
        raise UnknownNameError("there is no such prediction.")
    return found


def _values(request: Request, *names: str):
    return (request.path_params[name] for name in names)


def _jpeg(picture: bytes) -> Response:
    return Response(picture, media_type="image/jpeg", headers=_KEEP)


def _download(text: str, slide_id: str, suffix: str) -> Response:
    name = re.sub(r"[^0-9A-Za-z_.-]", "_", slide_id)
    headers = {"content-disposition": f'attachment; filename="{name}.{suffix}"'}
    return Response(text, media_type="application/json", headers=headers)
