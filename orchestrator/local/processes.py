"""Processes of this machine, from /proc.

A PID alone is not unique: it is reused later. With the boot ID and the start time (field 22 of
/proc/PID/stat) it identifies one process for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from orchestrator import jobs

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: A process in the kernel (D) ignores even SIGKILL for a while, seconds in a GPU driver.
_KILL_SECONDS = 10.0
_KILL_INTERVAL_SECONDS = 0.02
# Loaded before any fork: the child of a fork may only make system calls.
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """One process of one boot of this machine."""

    pid: int
    #: clock ticks after boot
    start_ticks: int
    #: /proc/sys/kernel/random/boot_id
    boot_id: str

    def is_alive(self) -> bool:
        """Return whether this process still runs; a zombie does not."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def identify(pid: int) -> Identity:
    """Return the process that has this PID now; start_ticks is 0 if there is none."""
    return Identity(pid=pid, start_ticks=start_ticks(pid) or 0, boot_id=boot_id())


def this_process() -> jobs.Submitter:
    """Return host, boot and PID of this process, so that others can check if it still runs."""
    return jobs.Submitter(host=socket.gethostname(), **vars(identify(os.getpid())))


def is_alive(submitter: jobs.Submitter) -> bool | None:
    """Return whether the process still runs; None if it is on another host."""
    if submitter.host != socket.gethostname():
        return None
    return Identity(
        pid=submitter.pid, start_ticks=submitter.start_ticks, boot_id=submitter.boot_id
    ).is_alive()


def boot_id() -> str:
    """Return the ID of this boot; "" if /proc has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return when a process started; None if it has ended or is a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def become_subreaper() -> None:
    """Adopt orphaned descendants, also after setsid and a double fork (man prctl)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Get SIGKILL when the parent dies; a child calls it before exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def descendants(root: int, *, without: Collection[int] = ()) -> list[int]:
    """Return the living descendants of a process, except the trees of those in `without`."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            if fields[0] == "Z":
                zombies.add(pid)
    tree = [root]
    for pid in tree:
        tree += [child for child in children.get(pid, ()) if child not in without]
    return [pid for pid in tree[1:] if pid not in zombies]


def marked(name: str, value: str | None = None, *, among: Iterable[int] | None = None) -> list[int]:
    """Return the user's processes that were started with NAME=VALUE in the environment.

    value: None accepts any. among: the PIDs to check, by default all.
    """
    variable = f"\0{name}=" if value is None else f"\0{name}={value}\0"
    pids = []
    for pid in _pids() if among is None else among:
        # Another user's process cannot be read; one that has just ended is gone.
        with contextlib.suppress(OSError):
            environ = b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
            if variable.encode() in environ:
                pids.append(pid)
    return [pid for pid in pids if pid != os.getpid()]


def kill_all(find: Callable[[], Collection[int]], *, seconds: float = _KILL_SECONDS) -> bool:
    """Send SIGKILL until `find` returns no process; False if the time ran out.

    The caller or the parent still has to wait for them.
    """
    deadline = time.monotonic() + seconds
    while pids := find():
        for pid in pids:
            send(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_KILL_INTERVAL_SECONDS)
    return True


def send(pid: int, number: int) -> None:
    """Send a signal; does nothing if the process has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap() -> Mapping[int, int]:
    """Wait for children that have ended: PID -> exit code, negative for a signal."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    return ended


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; the name before may be any text."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split() or None
