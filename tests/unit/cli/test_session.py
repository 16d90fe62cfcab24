"""What takes long is told, and telling never ends it."""

from __future__ import annotations

import re
import signal
import time

import pytest

from orchestrator.cli import progress


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(progress, "AGAIN_SECONDS", 0.05)


def test_it_is_told_and_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the first word comes late.
    monkeypatch.setattr(progress, "AGAIN_SECONDS", 1.0)
    said: list[str] = []
    with progress.waiting("Asking Slurm (squeue)", said.append):
        deadline = time.monotonic() + 10
        while len(said) < 2 and time.monotonic() < deadline:
            spin(0.01)
    assert said[0] == "Asking Slurm (squeue) ..."
    assert re.fullmatch(r"Asking Slurm \(squeue\) \.\.\. \d s", said[1])
    count = len(said)
    spin(0.1)
    assert len(said) == count


def test_what_is_quick_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 60.0)
    said: list[str] = []
    with progress.waiting("Asking Slurm (squeue)", said.append):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    # What was set before is back: the test's own time limit, or none.
    assert not 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    assert said == []


def test_nobody_listens() -> None:
    told = []

    def say(message: str) -> None:
        told.append(message)
        raise BrokenPipeError

    with progress.waiting("Submitting (sbatch)", say):
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            spin(0.01)
        done = True
    assert done and told


def test_the_alarm_of_others_is_given_back() -> None:
    def theirs(*_: object) -> None:
        raise AssertionError("not due yet")

    before = signal.signal(signal.SIGALRM, theirs)
    timer = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        with progress.waiting("x", lambda message: None):
            pass
        assert signal.getsignal(signal.SIGALRM) is theirs
        assert 400 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
