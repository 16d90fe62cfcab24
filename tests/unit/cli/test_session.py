"""Progress messages of slow activities."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import pytest

from orchestrator.cli import output, session


def spin_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        pass


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    written: list[str] = []
    monkeypatch.setattr(output, "note", written.append)
    monkeypatch.setattr(session, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(session, "REPEAT_SECONDS", 1.0)
    return written


def test_a_slow_activity_is_reported_repeatedly(messages: list[str]) -> None:
    with session.progress("Asking Slurm (squeue)"):
        spin_until(lambda: len(messages) >= 2)
    assert messages[0] == "Asking Slurm (squeue) ..."
    assert re.fullmatch(r"Asking Slurm \(squeue\) \.\.\. \d s", messages[1])
    assert not 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1


def test_a_quick_activity_is_not_reported(
    messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FIRST_SECONDS", 60.0)
    with session.progress("Asking Slurm (squeue)"):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    # The earlier timer is restored: that of the test's time-out, or none.
    assert not 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    assert messages == []


def test_a_closed_stderr_does_not_end_the_activity(
    messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: str) -> None:
        messages.append(message)
        raise BrokenPipeError

    monkeypatch.setattr(output, "note", fail)
    with session.progress("Submitting (sbatch)"):
        spin_until(lambda: messages)
        is_done = True
    assert is_done and messages


def test_the_handler_and_timer_of_others_are_restored() -> None:
    def handler(*_: object) -> None:
        raise AssertionError("not due yet")

    before = signal.signal(signal.SIGALRM, handler)
    timer = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        with session.progress("x"):
            pass
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 400 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
