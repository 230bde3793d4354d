"""Row 15, serving: a viewer and an address come in; the web application is served there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from zoommil.errors import ConfigError, MissingExtraError
from zoommil.viewer.access import Application, Guard, is_loopback, new_token
from zoommil.viewer.viewer import Viewer

INSTALL = "pip install 'zoommil[viewer]'"

_FAVICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' "
    "rx='7' fill='#1b2028'/><rect x='6' y='6' width='20' height='20' fill='none' stroke='#56b4e9' "
    "stroke-width='2'/><rect x='15' y='15' width='8' height='8' fill='#f0e442'/></svg>"
)
_TIMEOUT_SECONDS = 60.0


def check_extra() -> None:
    """Say at once when what the viewer needs is not installed.

    Raises:
        MissingExtraError: with the install line.
    """
    try:
        import nicegui  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"the viewer needs NiceGUI, which is not installed. Run: {INSTALL}"
        ) from error


def make_application(viewer: Viewer, token: str | None = None) -> Application:
    """The whole web application, as ASGI; one per process.

    Args:
        viewer: what to show.
        token: that requests must carry; None: reachable from this machine only.
    """
    check_extra()
    from fastapi import FastAPI
    from nicegui import ui
    from starlette.routing import Route

    from zoommil.viewer.endpoints import routes
    from zoommil.viewer.pages import make_pages

    make_pages(viewer)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield
        viewer.close()

    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    found: list[Route] = routes(viewer.library, viewer.pictures, viewer.live)
    application.router.routes.extend(found)
    ui.run_with(
        application,
        title="zoommil",
        favicon=_FAVICON,
        dark=None,
        tailwind=False,
        reconnect_timeout=_TIMEOUT_SECONDS,
        show_welcome_message=False,
    )
    return Guard(_known_only(viewer, application), token)


def serve(
    viewer: Viewer,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until interrupted.

    Args:
        viewer: what to show.
        host: to bind to; anything but loopback needs the token of the printed address.
        port: to bind to; 0: any free one.
        on_ready: called with the address to open.

    Raises:
        ConfigError: the address cannot be bound.
    """
    import uvicorn

    token = None if is_loopback(host) else new_token()
    bound = _bind(host, port)  # connections wait from here on
    application = make_application(viewer, token)
    address = address_of(host, bound.getsockname()[1], token)
    config = uvicorn.Config(
        application,
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=1000,
        ws_max_size=1 << 20,
        timeout_graceful_shutdown=2,
    )
    if on_ready is not None:
        on_ready(address)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[bound])


def address_of(host: str, port: int, token: str | None) -> str:
    """What to open in a browser."""
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def _known_only(viewer: Viewer, application: Application) -> Application:
    """The same application, for which slides that nobody knows do not exist."""
    from starlette.responses import PlainTextResponse

    async def known(scope: Any, receive: Any, send: Any) -> None:
        path = str(scope.get("path", ""))
        is_page = scope["type"] == "http" and path.startswith("/slide/")
        if is_page and viewer.library.entry(path.removeprefix("/slide/")) is None:
            await PlainTextResponse("there is no such slide.", 404)(scope, receive, send)
        else:
            await application(scope, receive, send)

    return known


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.ExitStack() as undone:
            bound = undone.enter_context(socket.socket(family, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            bound.listen(256)
            undone.pop_all()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot serve at {host}:{port} ({reason}). Choose another --port, or 0 for a free one."
        ) from error
    return bound
