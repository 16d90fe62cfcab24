"""The process that runs one request, whatever becomes of the connection that brought it.

It has a session of its own and no terminal. The command is its child, whose output it appends to
the spool of the request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.controller.remote import requests
from orchestrator.local import processes
from orchestrator.processes import forks
from orchestrator.remote import messages
from orchestrator.remote.framing import Message

_READ_BYTES = 64 * 1024
#: How often lines from the client, the time and the child are looked at.
_TICK_SECONDS = 0.5
#: A child that has ended may have left its output to its children: it is read for this much longer.
_DRAIN_SECONDS = 0.5
#: A command without a client gets this long between INT and KILL.
_STOP_SECONDS = 20.0
#: An exit code is stored again for so long if the disk is full.
_STORE_SECONDS = 3600.0
#: So much output waits for its client. A command that changes something never waits: further
#: output of it is dropped.
_WAITING_BYTES = 64 * 1024**2
#: For variables that decide how output looks: no other may come from the client.
VARIABLES = frozenset({"TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TZ"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """What the calling process has become: a command with its own output."""

    run: messages.Run
    #: of its request
    folder: Path


def start(request: requests.Request, run: messages.Run) -> tuple[int, Command | None]:
    """Start the keeper of a request, if nobody has claimed it.

    Returns the end of a pipe that can be read when there is more output, and is closed when the
    keeper has ended. In the process that is the command returns the command to run instead.
    """
    wake, wake_end = os.pipe()
    if not forks.detached():
        os.close(wake_end)
        return wake, None
    try:
        _close_all_but(wake_end)
        command = _keep(request, run, wake_end)
    except BaseException:
        os._exit(1)
    if command is None:
        os._exit(0)
    return -1, command


def _close_all_but(kept: int) -> None:
    """Close the connection to the client: ssh waits until nobody has it open."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _keep(request: requests.Request, run: messages.Run, wake: int) -> Command | None:
    os.set_blocking(wake, False)
    keeper = processes.identify(os.getpid())
    claim = {
        "host": socket.gethostname(),
        "changes": run.changes,
        **dataclasses.asdict(keeper),
    }
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, requests.WAKE):
        signal.signal(number, lambda *_: None)
    if not request.claim(claim, is_durable=run.changes):
        return None
    sources, ends = _outputs(run.terminal)
    child = forks.child()
    if not child:
        signal.set_wakeup_fd(-1)
        return _become(request, run, ends)
    for descriptor in set(ends):
        os.close(descriptor)
    _Keeper(request, run, child, sources, woken, wake).run_to_end()
    requests.remove_old(request.folder.parent)
    return None


def _outputs(terminal: messages.Terminal) -> tuple[dict[int, int], tuple[int, int]]:
    """Return what to read, with the number of the stream; and the child's stdout and stderr."""
    sources: dict[int, int] = {}
    ends: dict[int, int] = {}
    if terminal.stdout or terminal.stderr:
        ours, theirs = os.openpty()
        # The client's own terminal interprets the output.
        tty.setraw(theirs)
        _set_size(theirs, terminal.columns, terminal.lines)
        first = 1 if terminal.stdout else 2
        sources[ours] = first
        ends = {1: theirs} if terminal.stdout else {}
        ends |= {2: theirs} if terminal.stderr else {}
    for number in (1, 2):
        if number not in ends:
            ours, ends[number] = os.pipe()
            sources[ours] = number
    for descriptor in sources:
        os.set_inheritable(descriptor, False)
    return sources, (ends[1], ends[2])


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    size = struct.pack("HHHH", min(lines, 65535), min(columns, 65535), 0, 0)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)


def _become(request: requests.Request, run: messages.Run, ends: tuple[int, int]) -> Command:
    """Make this process what a shell would have started."""
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, requests.WAKE):
        signal.signal(name, signal.SIG_DFL)
    # Now the keeper can signal it, as a group.
    os.setsid()
    os.dup2(ends[0], 1)
    os.dup2(ends[1], 2)
    for number in (1, 2):
        if os.isatty(number):
            fcntl.ioctl(number, termios.TIOCSCTTY, 0)
            break
    _close_inherited()
    _set_variables(run.variables)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    return Command(run=run, folder=request.folder)


def _close_inherited() -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _set_variables(variables: Mapping[str, str]) -> None:
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({name: text for name, text in variables.items() if name in VARIABLES})
    time.tzset()


class _Keeper:
    def __init__(
        self,
        request: requests.Request,
        run: messages.Run,
        child: int,
        sources: dict[int, int],
        woken: int,
        wake: int,
    ) -> None:
        self._request, self._run, self._child = request, run, child
        self._sources, self._woken, self._wake = sources, woken, wake
        self._start = self._offset = self._controls = 0
        self._segment = -1
        self._code: int | None = None
        self._kill_at: float | None = None
        self._signals: list[int] = []
        self._is_dropping = self._is_full = False

    def run_to_end(self) -> None:
        """Spool the output until the command has ended, and store its exit code."""
        now = time.monotonic()
        last_beat, client, client_at = now, 0.0, now
        drained_at: float | None = None
        self._request.beat("client")
        while self._sources and (drained_at is None or now < drained_at):
            self._read(self._poll())
            now = time.monotonic()
            self._reap()
            if self._code is not None and drained_at is None:
                drained_at = now + _DRAIN_SECONDS
            self._obey()
            if now - last_beat >= requests.BEAT_SECONDS:
                last_beat = now
                self._request.beat("claim")
                if self._request.is_removed:
                    self._signal(signal.SIGTERM)
            # Changes of its time, by the clock of this host: those of others may be wrong.
            if (seen := self._request.last_beat("client")) != client:
                client, client_at = seen, now
            self._stop_without_client(now - client_at, now)
        while self._code is None:
            self._reap(is_last=True)
        self._request.remove_copy()
        self._store_end(self._code)
        self._notify()

    def _store_end(self, code: int) -> None:
        """Store the exit code, again and again while the disk is full."""
        deadline = time.monotonic() + _STORE_SECONDS
        while True:
            try:
                self._request.end(code, is_durable=self._run.changes)
            except OSError:
                if self._request.is_removed or time.monotonic() > deadline:
                    raise
                time.sleep(_TICK_SECONDS)
            else:
                return

    def _poll(self) -> list[int]:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._has_room():
            for descriptor in self._sources:
                poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(_TICK_SECONDS * 1000)]
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
            ready.remove(self._woken)
        return ready

    def _has_room(self) -> bool:
        """Return whether output may be read now: what the client has is removed from the spool."""
        if self._run.changes or self._offset < _WAITING_BYTES:
            return True
        segments = self._request.segments()
        return not segments or self._offset - segments[0][0] < _WAITING_BYTES

    def _read(self, ready: Sequence[int]) -> None:
        for descriptor in ready:
            data = b""
            # EIO: nobody has the terminal open any more.
            with contextlib.suppress(OSError):
                data = os.read(descriptor, _READ_BYTES)
            if not data:
                os.close(descriptor)
                del self._sources[descriptor]
                continue
            if not self._is_full:
                self._spool(Message({"stream": self._sources[descriptor]}, data))
        if ready:
            self._notify()

    def _spool(self, message: Message) -> None:
        """Append output to the spool. What a full disk does not take is lost; the command goes on.

        A half message would make the rest of the spool unreadable.
        """
        try:
            self._append(message)
        except OSError:
            self._is_full = True
            if self._segment >= 0:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._segment, self._offset - self._start)

    def _append(self, message: Message) -> None:
        if self._run.changes and self._offset > _WAITING_BYTES:
            if self._is_dropping:
                return
            self._is_dropping = True
            text = "\nFurther output is not kept: orchestrator logs and status show the rest.\n"
            message = Message({"stream": 2}, text.encode())
        if self._segment < 0 or self._offset - self._start >= requests.SEGMENT_BYTES:
            if self._segment >= 0:
                os.close(self._segment)
            self._start = self._offset
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._segment = os.open(self._request.segment(self._offset), flags, 0o600)
        rest = data = message.encoded()
        while rest:
            rest = rest[os.write(self._segment, rest) :]
        self._offset += len(data)

    def _notify(self) -> None:
        # The agent may be gone, or has not read earlier ones yet.
        with contextlib.suppress(OSError):
            os.write(self._wake, b".")

    def _reap(self, *, is_last: bool = False) -> None:
        if self._code is None:
            pid, status = os.waitpid(self._child, 0 if is_last else os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _obey(self) -> None:
        self._send_signals()
        lines, self._controls = self._request.controls(self._controls)
        for line in lines:
            match line.split():
                case ["interrupt"]:
                    self._signal(signal.SIGINT)
                case ["end"] if not self._run.changes:
                    self._signal(signal.SIGTERM)
                case ["size", columns, number] if columns.isdigit() and number.isdigit():
                    for descriptor in self._sources:
                        if os.isatty(descriptor):
                            _set_size(descriptor, int(columns), int(number))

    def _stop_without_client(self, silent_seconds: float, now: float) -> None:
        if self._run.changes or self._code is not None:
            return
        if self._kill_at is not None and now >= self._kill_at:
            self._signal(signal.SIGKILL)
        elif self._kill_at is None and silent_seconds > self._run.grace_seconds:
            self._kill_at = now + _STOP_SECONDS
            self._signal(signal.SIGINT)

    def _signal(self, number: int) -> None:
        self._signals.append(number)
        self._send_signals()

    def _send_signals(self) -> None:
        """Send the signals that are due; the child may not have its own group yet."""
        with contextlib.suppress(ProcessLookupError):
            while self._signals and self._code is None:
                os.killpg(self._child, self._signals[0])
                self._signals.pop(0)
