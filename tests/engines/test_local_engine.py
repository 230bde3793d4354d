"""The local engine: outcomes as tasks end, failures kept apart, dead workers named."""

from __future__ import annotations

import os
import signal

import pytest

from zoommil.engines.local import LocalEngine
from zoommil.errors import ConfigError


def square_setup():
    return square


def square(number):
    if number == 3:
        raise ValueError("three")
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def threads_setup():
    return lambda _task: os.environ["OMP_NUM_THREADS"]


def failing_setup():
    raise ValueError("no encoder")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_ends_no_other(workers):
    outcomes = list(LocalEngine(workers).run(square_setup, [1, 2, 3, 4]))
    assert {o.index: o.value for o in outcomes if o.error is None} == {0: 1, 1: 4, 3: 16}
    assert [str(o.error) for o in outcomes if o.error] == ["three"]


def test_a_killed_worker_fails_its_own_task_only():
    outcomes = list(LocalEngine(2).run(square_setup, [1, 5, 2, 4, 6, 7]))
    failed = [o.task for o in outcomes if o.error]
    assert failed == [5]
    assert sorted(o.value for o in outcomes if not o.error) == [1, 4, 16, 36, 49]
    assert sorted(o.index for o in outcomes) == list(range(6))


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.setattr("zoommil.engines.local.num_cores", lambda: 6)
    values = [o.value for o in LocalEngine(2).run(threads_setup, [0, 1])]
    assert values == ["3", "3"]


def test_a_setup_that_fails_is_every_tasks_error():
    outcomes = list(LocalEngine(2).run(failing_setup, [1, 2]))
    assert [str(o.error) for o in outcomes] == ["no encoder"] * 2


def test_no_workers_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        LocalEngine(0)
