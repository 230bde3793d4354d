"""Row 16, diagnosis: this machine in; what works, what is missing and what to do about it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zoommil.diagnosis.finding import Finding

__all__ = ["DEFAULT_ENCODER", "Finding", "diagnose"]

DEFAULT_ENCODER = "resnet50"


def diagnose(
    encoders: Iterable[str] = (), *, is_online: bool = False, has_selftest: bool = True
) -> Iterator[Finding]:
    """Findings one after the other, cheap ones first.

    Args:
        encoders: names whose weights are needed: missing ones are problems, not notes.
        is_online: ask the hub whether it can be reached; else no network is used.
        has_selftest: read and encode a known patch, about 5 seconds.

    Raises:
        UnknownNameError: nobody knows one of the encoders.
    """
    from zoommil.diagnosis.computer import check_computer
    from zoommil.diagnosis.selftest import run_selftest
    from zoommil.diagnosis.software import check_software
    from zoommil.diagnosis.weights import check_weights

    yield from check_software()
    yield from check_computer()
    yield from check_weights(encoders, DEFAULT_ENCODER, is_online=is_online)
    if has_selftest:
        yield from run_selftest()
