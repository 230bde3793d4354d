"""Atomic files and locks: what a kill, a full folder or a second run may not spoil."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from commands import room_for
from zoommil.bags.bag import Bag
from zoommil.bags.store import write_bag
from zoommil.errors import DiskFullError, LockError, OutputError
from zoommil.files import atomic_path, canonical_json, exclusive_lock, hash_of, write_json


def test_h5_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": True})
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert json.loads(path.read_text()) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_an_unwritable_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write") as caught:
        write_json(tmp_path / "file" / "a.json", 1)
    assert "\n" not in str(caught.value)


def write_hdf5(path):
    write_bag(Bag(features=(np.ones((100, 64), np.float32),), slide_id="a"), path)


def write_safetensors(path):
    import torch
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file({"a": torch.ones(5000)}, temporary)


@pytest.mark.parametrize(
    "write", [lambda path: write_json(path, ["x" * 20_000]), write_hdf5, write_safetensors],
    ids=["json", "hdf5", "safetensors"],
)  # fmt: skip
def test_a_full_disk_is_one_line_whoever_writes_and_spoils_nothing(tmp_path, write):
    path = tmp_path / "a.file"
    path.write_text("old")
    with room_for(10_000), pytest.raises(DiskFullError, match="run the same command again") as full:
        write(path)
    assert str(full.value).startswith(f"cannot write {str(path)!r}: File too large. ")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.file", "old")]
    write(path)
    assert path.stat().st_size > 10_000


def test_errors_that_are_not_of_writing_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="something else"), atomic_path(tmp_path / "a"):
        raise RuntimeError("something else")


def test_canonical_json_has_one_spelling():
    assert canonical_json({"b": 1, "a": [1.5, "ä"]}) == '{"a":[1.5,"ä"],"b":1}'
    assert hash_of({"a": 1, "b": 2}) == hash_of({"b": 2, "a": 1})
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_h6_a_lock_is_held_by_one_only(tmp_path):
    lock = tmp_path / "a.lock"
    with exclusive_lock(lock):
        owner = json.loads(lock.read_text())
        assert owner["host"] == socket.gethostname()
        with pytest.raises(LockError, match=f"process {os.getpid()}"), exclusive_lock(lock):
            pass
    assert not lock.exists()


def test_h6_many_threads_at_one_lock_never_hold_it_together(tmp_path):
    lock, holders, most = tmp_path / "a.lock", [], []

    def contend():
        for _ in range(50):
            try:
                with exclusive_lock(lock):
                    holders.append(1)
                    most.append(len(holders))
                    holders.pop()
            except LockError:
                pass

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most
    assert max(most) == 1


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    lock = tmp_path / "a.lock"
    code = (
        "import os, sys; from zoommil.files import exclusive_lock\n"
        "with exclusive_lock(sys.argv[1]): os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(lock)], check=False)
    assert lock.exists()
    with exclusive_lock(lock):
        assert json.loads(lock.read_text())["process"] == os.getpid()


def test_the_lock_of_another_host_is_respected_until_it_is_old(tmp_path):
    lock = tmp_path / "a.lock"
    lock.write_text(json.dumps({"process": 1, "host": "elsewhere", "started": 0}))
    with pytest.raises(LockError, match="elsewhere"), exclusive_lock(lock):
        pass
    os.utime(lock, (0, 0))
    with exclusive_lock(lock):
        pass
