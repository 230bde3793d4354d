"""What the viewer's tests build on: slides with shifted bounds, and the viewer in a process."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

CLASSES = ("normal", "low", "high")
GREEN = (10, 160, 60)
TAMPERED = "<img src=x onerror=alert(1)>"


def write_scn(
    path: Path, pixels: np.ndarray, size: tuple[int, int], offset: tuple[int, int], mpp: float
) -> None:
    """A Leica SCN file: pixels that lie at an offset in a larger empty slide, with its bounds."""
    import cv2
    import tifffile

    height, width = pixels.shape[:2]
    small = cv2.resize(pixels, (width // 4, height // 4), interpolation=cv2.INTER_AREA)
    macro = np.full((256, 256, 3), 240, np.uint8)

    def nanometres(px: int) -> int:
        return round(px * mpp * 1000)

    def image(name: str, box: tuple[int, int, int, int], dimensions: list[tuple[int, int, int]]):
        x, y, across, down = map(nanometres, box)
        listed = "".join(
            f'<dimension sizeX="{columns}" sizeY="{rows}" r="{level}" ifd="{page}"/>'
            for level, (columns, rows, page) in enumerate(dimensions)
        )
        return (
            f'<image name="{name}" uuid="urn:uuid:{name}">'
            "<creationDate>2020-01-01T00:00:00</creationDate>"
            '<device model="Leica SCN400;Leica SCN" version="1"/>'
            f'<pixels sizeX="{dimensions[0][0]}" sizeY="{dimensions[0][1]}">{listed}</pixels>'
            f'<view sizeX="{across}" sizeY="{down}" offsetX="{x}" offsetY="{y}" spacingZ="0"/>'
            "<scanSettings><objectiveSettings><objective>10</objective></objectiveSettings>"
            "<illuminationSettings><numericalAperture>0.4</numericalAperture>"
            "<illuminationSource>brightfield</illuminationSource></illuminationSettings>"
            "</scanSettings></image>"
        )

    levels = [(width, height, 1), (small.shape[1], small.shape[0], 2)]
    description = (
        '<?xml version="1.0"?>'
        '<scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01" uuid="urn:uuid:a">'
        f'<collection name="c" uuid="urn:uuid:b" sizeX="{nanometres(size[0])}" '
        f'sizeY="{nanometres(size[1])}"><barcode>0</barcode>'
        + image("macro", (0, 0, *size), [(256, 256, 0)])
        + image("main", (*offset, width, height), levels)
        + "</collection></scn>"
    )
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for index, (page, page_mpp) in enumerate(((macro, 9.0), (pixels, mpp), (small, 4 * mpp))):
            file.write(
                page,
                description=description if index == 0 else None,
                tile=(256, 256),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": 95},
                resolution=(1e4 / page_mpp, 1e4 / page_mpp),
                resolutionunit="CENTIMETER",
                metadata=None,
            )


def polygon_mask(polygons: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Which pixels have their centre in a polygon; corners in pixels from the top left."""
    from skimage.draw import polygon2mask

    masks = [polygon2mask(shape, corners[:, ::-1] - 0.5) for corners in polygons]
    return np.logical_or.reduce(masks)


def paint(pixels: np.ndarray, polygons: Sequence[np.ndarray]) -> np.ndarray:
    """The pixels with polygons of a green that no stain has."""
    painted = pixels.copy()
    painted[polygon_mask(polygons, (pixels.shape[0], pixels.shape[1]))] = GREEN
    return painted


def is_painted(pixels: np.ndarray) -> np.ndarray:
    """Where that green is, in pixels that were compressed and resampled."""
    red, green, blue = np.moveaxis(pixels.astype(int), -1, 0)
    return green - np.maximum(red, blue) > 0.5 * (GREEN[1] - max(GREEN[0], GREEN[2]))


def is_within_a_pixel(found: np.ndarray, truth: np.ndarray) -> bool:
    """Whether two masks differ only where a pixel touches the edge of the second."""
    import cv2

    square = np.ones((3, 3), np.uint8)
    largest = cv2.dilate(truth.astype(np.uint8), square).astype(bool)
    smallest = cv2.erode(truth.astype(np.uint8), square).astype(bool)
    return bool((found <= largest).all() and (smallest <= found).all())


def spoil_tiles(path: Path, level: int) -> None:
    """Make every tile of one page of a tiled TIFF undecodable."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    with path.open("r+b") as stream:
        for offset, size in places:
            stream.seek(offset)
            stream.write(b"\0" * size)


@dataclass
class Server:
    """The viewer in a process of its own.

    Attributes:
        host, port: where it listens.
        query: "?token=..." where it needs one.
        process: it.
        said: lines it wrote on standard error.
    """

    host: str
    port: int
    query: str
    process: subprocess.Popen
    said: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://{self.host}:{self.port}"

    def memory_bytes(self) -> int:
        """Its resident memory, with what it started."""
        import psutil

        process = psutil.Process(self.process.pid)
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))


@contextlib.contextmanager
def viewer(predictions: Path, slides: Path, *options: str | Path) -> Iterator[Server]:
    """``zoommil view`` on a free port of loopback, ended at the end."""
    words = ["view", predictions, "--slides", slides, "--port", "0", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "zoommil", *map(str, words)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    reading = threading.Thread()
    try:
        found, lines = None, []
        while found is None:
            line = process.stderr.readline()
            assert line, f"the viewer ended: {''.join(lines)}"
            lines.append(line)
            found = re.search(r"http://([^:/]+|\[.*\]):(\d+)/(\S*)", line)
        server = Server("127.0.0.1", int(found[2]), found[3], process, lines)
        reading = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reading.start()
        yield server
    finally:
        process.terminate()
        process.wait(20)
        if reading.is_alive():
            reading.join(5)
        process.stderr.close()


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    server: Server,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Reply:
    """Send one request exactly as it is written, and take in the whole answer."""
    given = {"Host": f"127.0.0.1:{server.port}", "Connection": "close", **(headers or {})}
    if body and "Content-Length" not in given and "Transfer-Encoding" not in given:
        given["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *others = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in others]
    return Reply(
        int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}, rest
    )


def keys_of(shown) -> dict[str, str]:
    """What requests call each slide of the folder."""
    from zoommil.viewer.library import Library, StoredPredictions

    library = Library(StoredPredictions(shown.predictions), shown.slides)
    return {entry.slide_id: entry.key for entry in library.entries.values()}
