"""A program that runs beside this process."""

from __future__ import annotations

import os
import signal

import pytest

from orchestrator.processes import piped, process


def test_it_answers_and_ends_with_its_stdin() -> None:
    started = piped.Piped(["cat"], os.environ)
    os.write(started.stdin, b"hello")
    assert os.read(started.stdout, 100) == b"hello"
    assert started.end() == 0


def test_it_is_ended_at_once() -> None:
    assert piped.Piped(["sleep", "1000"], os.environ).end(at_once=True) == -signal.SIGTERM


def test_ctrl_c_does_not_reach_it() -> None:
    # The mask of ignored signals, of which SIGINT is the second bit (man 5 proc).
    started = piped.Piped(["grep", "SigIgn", "/proc/self/status"], os.environ)
    mask = int(os.read(started.stdout, 100).split()[1], 16)
    assert mask & 1 << (signal.SIGINT - 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert started.end() == 0


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(process.CommandNotFound, match="could not be started: No such file"):
        piped.Piped(["/nonexistent"], os.environ)
