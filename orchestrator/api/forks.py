"""Forks of a process that uses the API.

SQLite's connections must not be open while a process forks: the child would inherit what SQLite
knows about the locks of its parent (sqlite.org/howtocorrupt.html, 2.6). A connection to a server
would belong to both, a child would inherit the locks of modules that another thread imports
(Python has no hook for these), and keep the pipe that ties an sbatch to its submitter. So a fork
waits until the calls of other threads are finished or wait for a job, and closes the connections.
Parent and child open new ones when they need them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


class ForkGate:
    """Keeps calls of the API and forks of the process apart."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: calls within calls, by thread
        self._depths: dict[int, int] = {}
        #: the thread that waits for the calls of the others, or forks
        self._forking: int | None = None
        self._connected: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._is_registered = False

    def close_before_fork(self, connected: Closable) -> None:
        """Close this before each fork, as long as it exists."""
        with self._changed:
            self._connected.add(connected)
            if not self._is_registered:
                # Hooks cannot be removed, so there is one for all.
                os.register_at_fork(
                    before=self._before,
                    after_in_parent=self._after_in_parent,
                    after_in_child=self._after_in_child,
                )
                self._is_registered = True

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Let no other thread fork in this block; wait for a fork that has begun."""
        self._enter(1)
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """Let other threads fork in this block within calling()."""
        depth = self._leave_all()
        try:
            yield
        finally:
            self._enter(depth)

    def _enter(self, depth: int) -> None:
        thread = threading.get_ident()
        with self._changed:
            # A call within a call would wait for a fork that waits for it. The thread that forks
            # may collect garbage.
            self._changed.wait_for(
                lambda: self._forking in (None, thread) or thread in self._depths
            )
            self._depths[thread] = self._depths.get(thread, 0) + depth

    def _leave(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._depths[thread] -= 1
            if not self._depths[thread]:
                del self._depths[thread]
            self._changed.notify_all()

    def _leave_all(self) -> int:
        with self._changed:
            depth = self._depths.pop(threading.get_ident())
            self._changed.notify_all()
        return depth

    def _before(self) -> None:
        thread = threading.get_ident()
        # Released after the fork.
        self._changed.acquire()
        self._changed.wait_for(lambda: self._forking is None)
        self._forking = thread
        self._changed.wait_for(lambda: self._depths.keys() <= {thread})
        for connected in list(self._connected):
            connected.close()

    def _after_in_parent(self) -> None:
        self._forking = None
        self._changed.notify_all()
        self._changed.release()

    def _after_in_child(self) -> None:
        # The threads that wait for the old one do not exist here.
        self._forking = None
        self._changed = threading.Condition()


#: A process has one gate, whatever sessions it has.
GATE = ForkGate()
