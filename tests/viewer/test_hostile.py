"""What a stranger may send: nothing leaks, nothing falls, every answer says what it is."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from viewing import TAMPERED, Reply, Server, ask, keys_of, viewer

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Hostile:
    """A request that nobody with good intentions sends, and the status that answers it."""

    path: str
    status: int
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


TRAVERSALS = [
    Hostile("/tiles/../../../../etc/passwd/0/0/0.jpg", 404),
    Hostile("/tiles/%2e%2e%2f%2e%2e%2fetc%2fpasswd/0/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/0/0/..%2f..%2f..%2fsecret.svs", 404),
    Hostile("/tiles/{alpha}/../{alpha}/0/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/0/..%5c..%5c0/0.jpg", 404),
    Hostile("/tiles/{alpha}/0/0/0.jpg%00.svs", 404),
    Hostile("/tiles/{alpha}%00/0/0/0.jpg", 404),
    Hostile("/thumbnails/..%2f..%2fsecret.jpg", 404),
    Hostile("/thumbnails/{root}/secret.svs.jpg", 404),
    Hostile("/thumbnails/%2fetc%2fpasswd.jpg", 404),
    Hostile("/patches/..%2f..%2fsecret/0/0/0.jpg", 404),
    Hostile("/patches/{alpha}/0/..%2f0/0.jpg", 404),
    Hostile("/predictions/..%2f..%2fartefact%2fspec.json", 404),
    Hostile("/predictions/....//....//artefact/spec.json", 404),
    Hostile("/geojson/..%252f..%252fsecret.geojson", 404),
    Hostile("/slide/..%2f..%2f..%2fetc%2fpasswd", 404),
    Hostile("/slide/../../../../etc/passwd", 404),
    Hostile("/_nicegui/../../../../../../etc/passwd", 404),
    Hostile("/_nicegui/{nicegui}/static/..%2f..%2f..%2f..%2fetc%2fpasswd", 404),
    Hostile("/_nicegui/{nicegui}/static//etc/passwd", 404),
    Hostile("/_nicegui/{nicegui}/components/..%2f..%2fsecret.svs", 404),
    Hostile("//etc/passwd", 404),
    Hostile("/?text=../../../etc/passwd&sort=__class__&show=%2fetc&predicted=..%2f..", 200),
    Hostile("/slide/{alpha}?sort=..%2f..%2fetc%2fpasswd&text=%00&down=../..", 200),
]
ABSURD = [
    Hostile("/tiles/{alpha}/99/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/-1/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/3/0/-9.jpg", 404),
    Hostile("/tiles/{alpha}/3/99999999999999999999999999/0.jpg", 404),
    Hostile("/tiles/{alpha}/1" + 190 * "0" + "/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/1e3/0/0.jpg", 404),
    Hostile("/tiles/{alpha}/0/NaN/0.jpg", 404),
    Hostile("/tiles/{alpha}/%D9%A3/0/0.jpg", 404),
    Hostile("/tiles/" + 300 * "a" + "/0/0/0.jpg", 404),
    Hostile("/patches/{alpha}/0/99999999999999999999/0.jpg", 404),
    Hostile("/patches/{alpha}/0/0/4000000000.jpg", 404),
    Hostile("/patches/{alpha}/0/0/-1.jpg", 404),
    Hostile("/tiles/" + 600 * "9" + "/0/0/0.jpg", 414),
    Hostile("/?text=" + 5000 * "x", 414),
    Hostile("/" + 200_000 * "x", 400),
    Hostile("/health", 431, headers={"X-Large": 200_000 * "x"}),
    Hostile(SOCKET, 413, "POST", {"Content-Length": "1000000000000"}),
    Hostile(SOCKET, 413, "POST", {"Content-Length": "9" * 18}),
    Hostile(SOCKET, 411, "POST", {"Transfer-Encoding": "chunked"}, b"ffffffff\r\nx"),
    Hostile(SOCKET + "&sid=../../../etc/passwd", 400),
]
STRANGERS = [
    Hostile("/tiles/{link}/0/0/0.jpg", 404),
    Hostile("/thumbnails/{outside}.jpg", 404),
    Hostile("/slide/{link}", 404),
    Hostile("/tiles/{none}/0/0/0.jpg", 422),
    Hostile("/thumbnails/{none}.jpg", 422),
    Hostile("/tiles/{broken}/3/3/3.jpg", 422),
    Hostile("/predictions/{delta}.json", 404),
    Hostile("/patches/{delta}/0/0/0.jpg", 404),
    Hostile("/", 421, headers={"Host": "rebound.example.org"}),
    Hostile("/", 421, headers={"Host": "127.0.0.1.example.org:{port}"}),
    Hostile("/health", 403, headers={"Origin": "https://example.org"}),
    Hostile("/tiles/{alpha}/0/0/0.jpg", 403, headers={"Sec-Fetch-Site": "cross-site"}),
    Hostile(SOCKET, 403, headers={"Origin": "null"}),
    Hostile(
        "/_nicegui_ws/socket.io/?EIO=4&transport=websocket",
        403,
        headers={**UPGRADE, "Origin": "https://example.org"},
    ),
    Hostile("/health", 403, headers={**UPGRADE}),
    Hostile("/tiles/{alpha}/0/0/0.jpg", 405, "PUT", body=b"x"),
    Hostile("/slide/{alpha}", 405, "DELETE"),
    Hostile("/", 405, "POST", body=b"x"),
    Hostile("/", 405, "TRACE"),
    Hostile("/_nicegui/client/00000000/upload/1", 405, "POST", body=b"x"),
    Hostile("/docs", 404),
    Hostile("/openapi.json", 404),
]
UNKNOWN = [
    Hostile("/", 401),
    Hostile("/health", 401),
    Hostile("/tiles/{alpha}/0/0/0.jpg", 401),
    Hostile("/tiles/{alpha}/0/0/0.jpg?token=", 401),
    Hostile("/?token=wrong", 401),
    Hostile("/?token=%C3%A9%00", 401),
    Hostile("/?token={cut}", 401),
    Hostile("/", 401, headers={"Cookie": "zoommil_access=wrong"}),
    Hostile("/", 401, headers={"Authorization": "Bearer {cut}"}),
    Hostile(SOCKET, 401),
    Hostile("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", 403, headers=UPGRADE),
]


@pytest.fixture(scope="module")
def server(shown) -> Iterator[Server]:
    """The viewer on loopback."""
    with viewer(shown.predictions, shown.slides) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(shown) -> Iterator[Server]:
    """The viewer on every address of this machine."""
    with viewer(shown.predictions, shown.slides, "--host", "0.0.0.0") as found:
        yield found


def key_of_file(name: str, suffix: str) -> str:
    """The key that a file outside would have if it were shown."""
    return hashlib.sha256(f"file:{name}:{name}{suffix}".encode()).hexdigest()[:16]


def words_of(shown, server: Server) -> dict[str, str]:
    """What the placeholders of the requests stand for."""
    import nicegui

    outside = {"link": key_of_file("link", ".svs"), "outside": key_of_file("secret", ".svs")}
    token = server.query.removeprefix("?token=")
    return {
        **keys_of(shown),
        **outside,
        "root": str(shown.slides.parent),
        "port": str(server.port),
        "nicegui": nicegui.__version__,
        "cut": token[:-1],
    }


def send(shown, server: Server, hostile: Hostile) -> Reply:
    words = words_of(shown, server)
    headers = {name: value.format(**words) for name, value in hostile.headers.items()}
    path = hostile.path.format(**words)
    return ask(server, path, method=hostile.method, headers=headers, body=hostile.body)


def check_nothing_leaks(shown, server: Server, reply: Reply) -> None:
    """No folder of this machine, no file's content, no inside of the program."""
    words = [str(shown.slides.parent), "root:x:", "root:*:", "Traceback", "site-packages", ".py"]
    text = reply.body.decode("latin-1")
    if reply.status >= 400:
        assert len(reply.body) < 300
        assert not [word for word in words if word in text]
    assert words[0] not in text
    assert "root:x:" not in text
    assert "server" not in reply.headers
    assert server.process.poll() is None


@pytest.mark.parametrize(
    "hostile", [*TRAVERSALS, *ABSURD, *STRANGERS], ids=lambda one: one.path[:60]
)
def test_a_hostile_request_gets_a_clear_status_and_nothing_else(shown, server, hostile):
    reply = send(shown, server, hostile)
    assert reply.status == hostile.status, reply.body[:300]
    check_nothing_leaks(shown, server, reply)
    assert ask(server, "/health").status == 200


@pytest.mark.parametrize("hostile", UNKNOWN, ids=lambda one: one.path[:60])
def test_beyond_loopback_nothing_is_answered_without_the_token(shown, guarded, hostile):
    assert len(guarded.query) > 40
    reply = send(shown, guarded, hostile)
    assert reply.status == hostile.status
    check_nothing_leaks(shown, guarded, reply)
    assert guarded.query.removeprefix("?token=").encode() not in reply.body


def test_the_printed_address_opens_it_and_leaves_the_token_as_a_cookie(shown, guarded):
    first = ask(guarded, f"/{guarded.query}&sort=slide")
    assert (first.status, first.headers["location"]) == (303, "/?sort=slide")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    known = {"Cookie": cookie.partition(";")[0]}
    assert ask(guarded, "/", headers=known).status == 200
    key = keys_of(shown)["alpha"]
    picture = ask(guarded, f"/tiles/{key}/0/0/0.jpg", headers=known)
    assert (picture.status, picture.headers["content-type"]) == (200, "image/jpeg")
    assert ask(guarded, "/health", headers={**known, "Origin": "http://other"}).status == 403


def test_names_of_slides_are_text_and_never_part_of_the_page(shown, server):
    key = keys_of(shown)[TAMPERED]
    for path in ("/", f"/slide/{key}"):
        page = ask(server, path).body.decode()
        assert "<img src=x" not in page
    name = ask(server, f"/predictions/{key}.json").headers["content-disposition"]
    assert not set("<>\"'=()") & set(name.partition("filename=")[2].strip('"'))


def test_many_clients_at_once_are_answered_within_a_gigabyte(shown, server):
    keys = keys_of(shown)
    tiles = [
        f"/tiles/{keys[name]}/{zoom}/{column}/{row}.jpg"
        for name in ("alpha", "beta", "delta", TAMPERED)
        for zoom, columns, rows in ((3, 8, 7), (2, 4, 4))
        for column in range(columns)
        for row in range(rows)
    ][:200]
    peak, slowest, is_over = 0, 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak, slowest
        while not is_over.wait(0.05):
            start = time.monotonic()
            assert ask(server, "/health").status == 200
            slowest = max(slowest, time.monotonic() - start)
            peak = max(peak, server.memory_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    with ThreadPoolExecutor(20) as clients:
        replies = list(clients.map(lambda path: ask(server, path), tiles))
    is_over.set()
    watching.join()
    assert len(replies) == 200
    assert {(one.status, one.headers["content-type"]) for one in replies} == {(200, "image/jpeg")}
    assert 0 < peak < GIBIBYTE
    assert slowest < 5.0
