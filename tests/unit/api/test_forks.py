"""Forks wait for calls of the API in other threads."""

from __future__ import annotations

import os
import threading
import time

from orchestrator.api import forks


class Connection:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def fork_and_wait() -> int:
    """Fork a process that ends at once; return its exit code."""
    child = os.fork()
    if not child:
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_a_fork_closes_connections_and_waits_for_calls() -> None:
    gate, connection = forks.ForkGate(), Connection()
    gate.close_before_fork(connection)
    order: list[str] = []
    entered, end, forked = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        with gate.calling(), gate.calling():
            entered.set()
            end.wait(60)
            order.append("called")

    def fork() -> None:
        fork_and_wait()
        order.append("forked")
        forked.set()

    caller, forker = threading.Thread(target=call), threading.Thread(target=fork)
    caller.start()
    assert entered.wait(60)
    forker.start()
    assert not forked.wait(0.2)
    end.set()
    caller.join()
    forker.join()
    assert (order, connection.closed) == (["called", "forked"], 1)


def test_a_fork_does_not_wait_for_a_call_that_sleeps() -> None:
    gate = forks.ForkGate()
    gate.close_before_fork(connection := Connection())
    paused, end = threading.Event(), threading.Event()

    def call() -> None:
        with gate.calling():
            with gate.pausing():
                paused.set()
                end.wait(60)
            with gate.calling():
                pass

    caller = threading.Thread(target=call)
    caller.start()
    assert paused.wait(60)
    assert fork_and_wait() == 0
    end.set()
    caller.join()
    assert connection.closed == 1


def test_a_call_works_in_the_child_and_beside_a_fork_of_its_own_thread() -> None:
    gate = forks.ForkGate()
    gate.close_before_fork(connection := Connection())
    with gate.calling():
        assert fork_and_wait() == 0
    child = os.fork()
    if not child:
        with gate.calling(), gate.pausing():
            time.sleep(0)
        os._exit(fork_and_wait())
    assert os.waitpid(child, 0)[1] == 0
    assert connection.closed == 2
