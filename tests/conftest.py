"""Fixtures for every test: where real data lies, no network, and no test skipped unseen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# The time of an example says how busy the machine is; `make check` draws the same ones each time.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("check", settings.get_profile("here"), derandomize=True)
settings.load_profile("check" if os.environ.get("ZOOMMIL_FAIL_ON_SKIP") else "here")

EXPECTED_SKIPS = ("no CUDA device",)
"""Reasons that `make check` accepts: what no installation can give a machine."""


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real slides, bags and tiles; tests that need it are skipped without it."""
    folder = os.environ.get("ZOOMMIL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ZOOMMIL_DATA is not set to a folder of real data")
    return Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the skips that `make check` does not accept."""
    unexpected = _unexpected_skips(terminalreporter)
    if unexpected and os.environ.get("ZOOMMIL_FAIL_ON_SKIP"):
        terminalreporter.section("skipped tests count as failures here", red=True)
        for line in unexpected:
            terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of `make check` in which a test was skipped for any other reason."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("ZOOMMIL_FAIL_ON_SKIP"):
        return
    if session.exitstatus == pytest.ExitCode.OK and _unexpected_skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unexpected_skips(reporter: pytest.TerminalReporter) -> list[str]:
    found = []
    for skipped in reporter.stats.get("skipped", []):
        reason = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else "no reason"
        if not any(expected in reason for expected in EXPECTED_SKIPS):
            found.append(f"{skipped.nodeid}: {reason}")
    return found
