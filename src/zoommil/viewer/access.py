"""Row 15, access: every request comes through here; only those that may, go on.

On loopback a request must name a loopback host, so that a foreign page cannot reach it through a
name of its own. Bound to any other address, it must carry the token, which a visit of the printed
address leaves as a cookie. In both cases what comes from another origin is refused, and only the
paths of this application exist.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE, TOKEN = "zoommil_access", "token"
LONGEST_PATH, LONGEST_QUERY, LARGEST_BODY = 512, 2048, 1 << 20
LARGEST_HEADERS = 1 << 15

_SOCKET = "/_nicegui_ws/"
_KEY = "[0-9a-f]{16}"
_PATHS = re.compile(
    rf"/|/slide/{_KEY}|/favicon\.ico|/health"
    rf"|/tiles/{_KEY}/[0-9]{{1,2}}/[0-9]{{1,9}}/[0-9]{{1,9}}\.jpg"
    rf"|/patches/{_KEY}/[0-9]{{1,9}}/[0-9]{{1,2}}/[0-9]{{1,3}}\.jpg"
    rf"|/thumbnails/{_KEY}\.jpg|/predictions/{_KEY}\.json|/geojson/{_KEY}\.geojson"
    r"|/_nicegui/[0-9a-zA-Z_.@/-]{1,300}|/_nicegui_ws/socket\.io/?"
)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        b"connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
]


@dataclass(frozen=True)
class Refusal:
    """Why a request does not go on."""

    status: int
    reason: str


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """A token nobody guesses: 256 random bits."""
    return secrets.token_urlsafe(32)


class Guard:
    """Lets requests on to an application, or refuses them."""

    def __init__(self, application: Application, token: str | None = None) -> None:
        """Args: token: that must be carried; None: bound to loopback, none is needed."""
        self._application = application
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        headers = _headers(scope)
        query = scope.get("query_string", b"").decode("latin-1")
        refusal = self._refusal(scope, headers, query)
        if refusal is not None:
            await _refuse(scope, send, refusal)
        elif scope["type"] == "websocket":
            await self._application(scope, receive, send)
        elif self._is_first_visit(query):
            await _leave_cookie(scope, send, query)
        else:
            await self._application(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str], query: str) -> Refusal | None:
        path = str(scope.get("path", ""))
        too_large = _too_large(scope, path, query)
        if too_large is not None:
            return too_large
        if not self._is_known(headers, query):
            return Refusal(401, "open the address that 'zoommil view' printed, with its token.")
        if self._token is None and _name_of(headers.get("host", "")) not in _LOCAL_NAMES:
            return Refusal(421, "this is served on loopback only; open it as localhost.")
        if not _is_same_origin(headers):
            return Refusal(403, "requests of other sites are refused.")
        if not _PATHS.fullmatch(path) or ".." in path:
            return Refusal(404, "there is no such page.")
        return _refused_method(scope, headers, path)

    def _is_known(self, headers: dict[str, str], query: str) -> bool:
        if self._token is None:
            return True
        given = [value for name, value in _pairs(query) if name == TOKEN]
        given += [value for name, value in _cookies(headers) if name == COOKIE]
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given)

    def _is_first_visit(self, query: str) -> bool:
        return self._token is not None and any(name == TOKEN for name, _ in _pairs(query))


def _too_large(scope: Scope, path: str, query: str) -> Refusal | None:
    if len(path) > LONGEST_PATH or len(query) > LONGEST_QUERY:
        return Refusal(414, "the address is too long.")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEADERS:
        return Refusal(431, "the headers are too large.")
    return None


def _refused_method(scope: Scope, headers: dict[str, str], path: str) -> Refusal | None:
    """Pages and pictures are only read; the page's own channel may also send a little."""
    if scope["type"] == "websocket":
        return None if path.startswith(_SOCKET) else Refusal(404, "there is no such page.")
    if scope["method"] in ("GET", "HEAD"):
        return None
    if scope["method"] != "POST" or not path.startswith(_SOCKET):
        return Refusal(405, "this can only be read.")
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        return Refusal(411, "say how long the body is.")
    if len(length) > 12 or int(length) > LARGEST_BODY:
        return Refusal(413, "the body is too large.")
    return None


async def _refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    if refusal.status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    body = refusal.reason.encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _leave_cookie(scope: Scope, send: Send, query: str) -> None:
    """Keep the token as a cookie, and go on without it in the address."""
    pairs = _pairs(query)
    token = next(value for name, value in pairs if name == TOKEN)
    rest = urlencode([(name, value) for name, value in pairs if name != TOKEN])
    headers = [
        (b"location", f"{scope['path']}{'?' + rest if rest else ''}".encode()),
        (b"set-cookie", f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/".encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", b"0"),
        *_HEADERS,
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return sending


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _name_of(host: str) -> str | None:
    """The name in a Host header or origin, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_same_origin(headers: dict[str, str]) -> bool:
    """Whether a request that says where it comes from comes from here."""
    if (
        headers.get("sec-fetch-site") == "cross-site"
        and headers.get("sec-fetch-mode") != "navigate"
    ):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc == headers.get("host")
    except ValueError:
        return False


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


def _cookies(headers: dict[str, str]) -> list[tuple[str, str]]:
    parts = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return [(name, value) for name, _, value in parts]
