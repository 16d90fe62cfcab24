"""Processes of this machine as /proc shows them: who they are, whether they live, what they began.

A PID alone names nobody: it is given to another process later. With the boot ID and the start
time (field 22 of /proc/PID/stat) it names one process for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from orchestrator import jobs

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: A process in the kernel (D) ignores even SIGKILL for a while; a GPU driver's may take seconds.
_KILL_SECONDS = 10.0
_LOOK_SECONDS = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """One process of one boot of this machine."""

    pid: int
    #: clock ticks after boot
    start_ticks: int
    #: /proc/sys/kernel/random/boot_id
    boot_id: str

    def is_alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def identify(pid: int) -> Identity:
    """Return who has this PID now; start_ticks is 0 where nobody has."""
    return Identity(pid=pid, start_ticks=start_ticks(pid) or 0, boot_id=boot_id())


def this_process() -> jobs.Submitter:
    """Return who acts: host, boot and process, so that others can tell if it still lives."""
    return _submitter(os.getpid())


@functools.cache
def _submitter(pid: int) -> jobs.Submitter:
    # A fork asks anew; of one process all of it stays as it is.
    own = identify(pid)
    return jobs.Submitter(
        host=socket.gethostname(),
        boot_id=own.boot_id,
        pid=own.pid,
        start_ticks=own.start_ticks,
    )


def is_alive(submitter: jobs.Submitter) -> bool | None:
    """Return whether the process still runs; None when that can't be seen from this host."""
    if submitter.host != socket.gethostname():
        return None
    return Identity(
        pid=submitter.pid, start_ticks=submitter.start_ticks, boot_id=submitter.boot_id
    ).is_alive()


def boot_id() -> str:
    """Return the ID of this boot; "" where /proc has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return when a process began; None where it has ended (a zombie has)."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def become_subreaper() -> None:
    """Get what our descendants leave behind, also after setsid and a double fork (man prctl)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def tie_to_parent() -> Callable[[], None]:
    """Return what a child calls before exec, so that it gets SIGKILL when its parent dies."""
    prctl, parent = _prctl, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)

    return tie


def descendants(root: int, *, without: Collection[int] = ()) -> list[int]:
    """Return the living descendants of a process, less the trees of those in `without`."""
    parents: dict[int, list[int]] = {}
    zombies = set()
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None:
            parents.setdefault(int(fields[1]), []).append(pid)
            if fields[0] == "Z":
                zombies.add(pid)
    found: list[int] = []
    left = [root]
    while left:
        children = [pid for pid in parents.get(left.pop(), ()) if pid not in without]
        found += children
        left += children
    return [pid for pid in found if pid not in zombies]


def marked(name: str, value: str | None = None, *, among: Iterable[int] | None = None) -> list[int]:
    """Return the processes of this user that were started with NAME=VALUE in the environment.

    No `value`: with any. `among`: those that are looked at; none: all.
    """
    found = []
    for pid in _pids() if among is None else among:
        # Another user's cannot be read; one that has just ended is gone.
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            pairs = (variable.partition(b"=") for variable in variables)
            values = [
                text.decode(errors="replace") for key, _, text in pairs if key == name.encode()
            ]
            if values if value is None else value in values:
                found.append(pid)
    return [pid for pid in found if pid != os.getpid()]


def kill_all(find: Callable[[], Collection[int]], *, seconds: float = _KILL_SECONDS) -> bool:
    """Send SIGKILL until `find` finds nobody any more; false when the time ran out.

    How they ended is left to whoever waits for them.
    """
    deadline = time.monotonic() + seconds
    while found := find():
        for pid in found:
            send(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def send(pid: int, number: int) -> None:
    """Send a signal; nothing happens where the process has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap() -> Mapping[int, int]:
    """Take leave of children that have ended: PID -> exit code, negative for a signal."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


# Loaded before any fork: the child of a fork may only make system calls.
_LIBC = ctypes.CDLL(None, use_errno=True)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; the name before may hold anything."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split() or None
