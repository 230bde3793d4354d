"""Row 16, ``zoommil view``: predictions and their slides in; a web page to look at them out."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from zoommil.cli import options, terminal
from zoommil.errors import ArtefactError


def view(
    predictions: Annotated[
        Path, typer.Argument(help="The folder or file that `zoommil predict --out` wrote.")
    ],
    slides: Annotated[
        Path, typer.Option("--slides", help="Where the slides lie; nothing else is opened.")
    ],
    artefact: Annotated[
        Path | None,
        typer.Option("--artefact", help="A trained model to predict with; the predictions' own."),
    ] = None,
    cohort: Annotated[
        Path | None,
        typer.Option("--cohort", help="A table with labels; the one beside the predictions."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to serve; beyond loopback a token is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any free one.", min=0, max=65535)] = 8765,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    mpp: options.MppOption = None,
    weights: options.WeightsOption = None,
    runtime: options.RuntimeOption = "auto",
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
) -> None:
    """Look at predictions in the browser: the cohort, each slide, where the model looked and why.

    The page is served on this machine only, unless `--host` says otherwise. Ctrl-C ends it.

    Example: `zoommil view predictions --slides slides`
    """
    from zoommil.viewer.library import Library, StoredPredictions
    from zoommil.viewer.live import LivePredictions
    from zoommil.viewer.serving import check_extra, serve
    from zoommil.viewer.viewer import Viewer

    check_extra()
    stored = StoredPredictions(predictions)
    library = Library(stored, slides, cohort=cohort, mpp=mpp)
    settings = _settings(
        artefact,
        stored.artefact,
        weights=None if weights is None else tuple(weights),
        runtime=runtime,
        precision=precision,
        device=device,
    )
    viewer = Viewer.of(library, LivePredictions(settings))
    num_slides = len(library.entries)
    if library.missing:
        terminal.say(
            f"{len(library.missing)} of {len(stored.summaries)} predicted slides are not in "
            f"{slides}, first {library.missing[0]!r}: shown without their pixels."
        )

    def say_ready(address: str) -> None:
        terminal.say(f"{num_slides} slides at {address} (Ctrl-C ends it)")
        if show:
            webbrowser.open(address)

    serve(viewer, host, port, on_ready=say_ready)


def _settings(given: Path | None, known: Path | None, **settings: Any) -> dict[str, Any] | None:
    """Of the predictor to load when it is needed; None where there is no artefact."""
    if given is not None and not given.is_dir():
        raise ArtefactError(f"artefact {str(given)!r} is not a folder. Give what training wrote.")
    artefact = given or (known if known is not None and known.is_dir() else None)
    return None if artefact is None else {"artefact": artefact, **settings}
