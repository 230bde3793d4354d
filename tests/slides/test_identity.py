"""Fingerprints and read statistics: what tells slides and reads apart."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from slide_files import noise_picture

from zoommil import open_slide
from zoommil.slides.fingerprint import fingerprint_of_file
from zoommil.slides.statistics import LevelReads, ReadCounter


def test_a_copy_under_another_name_has_the_same_fingerprint(noise_file, tmp_path):
    copy = tmp_path / "other.svs"
    shutil.copy(noise_file, copy)
    assert fingerprint_of_file(copy) == fingerprint_of_file(noise_file)
    with open_slide(noise_file) as slide:
        assert slide.fingerprint == fingerprint_of_file(copy)
        assert len(slide.fingerprint) == 64


def test_a_changed_or_longer_file_has_another(noise_file, tmp_path):
    path = tmp_path / "a.tif"
    content = noise_file.read_bytes()
    seen = {fingerprint_of_file(noise_file)}
    for changed in (b"x" + content[1:], content[:-1] + b"x", content + b"x", content[:-1]):
        path.write_bytes(changed)
        seen.add(fingerprint_of_file(path))
    assert len(seen) == 5


def test_a_huge_file_is_fingerprinted_from_samples(tmp_path):
    path = tmp_path / "huge.tif"
    with path.open("wb") as stream:  # sparse: takes no disk
        stream.truncate(60 << 30)
    first = fingerprint_of_file(path)
    with path.open("r+b") as stream:
        stream.seek(-5, 2)
        stream.write(b"x")
    assert fingerprint_of_file(path) != first


def test_the_files_beside_a_mirax_index_count(tmp_path):
    index = tmp_path / "a.mrxs"
    index.write_bytes(b"index")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "Data0000.dat").write_bytes(b"123")
    first = fingerprint_of_file(index)
    (tmp_path / "a" / "Data0000.dat").write_bytes(b"1234")
    assert fingerprint_of_file(index) != first


def test_arrays_have_fingerprints_too():
    picture = noise_picture(300, 200)
    changed = picture.copy()
    changed[-1, -1, 0] ^= 1
    found = [open_slide(p, mpp=0.5).fingerprint for p in (picture, picture.copy(), changed)]
    assert found[0] == found[1] != found[2]


def test_statistics_count_every_thread_and_subtract():
    counter = ReadCounter()
    before = counter.now()
    start = threading.Barrier(4)

    def work(_: int) -> None:
        start.wait(10)
        for _ in range(500):
            counter.add_read(2, pixels_read=40, pixels_returned=10)
            counter.add_decoded(2, blocks=1, pixels=64)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    now = counter.now()
    assert now.pixels_returned == 20_000
    assert now.levels == {2: LevelReads(80_000, 2000, 128_000)}
    assert (now - before) == now
    assert (now - now).levels == {}
    assert now.compressed_bytes is None


def test_pixels_read_do_not_depend_on_order_cache_or_threads(noise_file):
    corners = np.random.default_rng(0).uniform(0, 600, (40, 2))
    counted = []
    for workers, cache_bytes, order in ((1, 1 << 26, 1), (4, 1 << 14, -1)):
        with (
            open_slide(noise_file, reader="image", cache_bytes=cache_bytes) as slide,
            ThreadPoolExecutor(workers) as pool,
        ):
            list(pool.map(lambda c: slide.read(c[0], c[1], 50, 50, 0.6), corners[::order]))
            statistics = slide.read_statistics()
        counted.append((statistics.pixels_read, statistics.bytes_read))
    assert counted[0] == counted[1]
