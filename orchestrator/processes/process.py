"""Run one command, without a shell: its own session, a time limit, and its output."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Literal

from orchestrator import errors

#: A command gets this long between TERM and KILL.
_TERM_GRACE_SECONDS = 2.0
#: A command that has ended may have left its pipes to a child: they are read for this much longer.
_DRAIN_SECONDS = 0.5
#: How often the end of a silent command is checked.
_TICK_SECONDS = 0.1
#: Further stderr is dropped.
_MAX_STDERR_BYTES = 256 * 1024
#: No command of Slurm prints as much for one user.
_MAX_STDOUT_BYTES = 128 * 1024 * 1024


class CommandNotFound(errors.OrchestratorError):
    """The command could not be started."""


class TooMuchOutputError(errors.OrchestratorError):
    """The command printed more than is kept, and was stopped."""

    def __init__(self, command: str, output: bytearray, undecodable: str = "replace") -> None:
        mib = len(output) / 1024**2
        super().__init__(f"{command} printed {mib:.0f} MiB or more and was stopped")
        self.output = output.decode(errors=undecodable)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended, and its output."""

    argv: tuple[str, ...]
    #: negative: the signal that killed it
    returncode: int
    stdout: str
    stderr: str
    #: it was killed at its time limit
    timed_out: bool
    seconds: float

    @property
    def command(self) -> str:
        """Return the name of the command: sbatch, squeue."""
        return os.path.basename(self.argv[0])


def run(
    argv: Sequence[str],
    timeout_seconds: float,
    environ: Mapping[str, str],
    die_with_parent: bool = False,
    folder: str | None = None,
    stdin: bytes | IO[bytes] | None = None,
    max_output_bytes: int | None = None,
    undecodable: Literal["replace", "surrogateescape"] = "replace",
) -> Result:
    """Run a command; raises CommandNotFound or TooMuchOutputError.

    folder: its working directory. stdin: what it reads, also an open file, which is closed; empty
    by default. max_output_bytes: of stdout, 128 MiB by default. undecodable: what becomes of bytes
    of stdout that are not UTF-8; surrogates keep file names, as os.fsdecode. die_with_parent: the
    command and all it started get SIGKILL when this process ends, so that "the submitter is dead"
    also means "its sbatch is dead".
    """
    started = time.monotonic()
    stdout, stderr = bytearray(), bytearray()
    limit = _MAX_STDOUT_BYTES if max_output_bytes is None else max_output_bytes
    with contextlib.ExitStack() as stack:
        input_file = stack.enter_context(_input_file(stdin))
        tie = stack.enter_context(contextlib.closing(_ParentTie())) if die_with_parent else None
        process = _start(argv, environ, input_file, tie, folder)
        try:
            if tie is not None:
                tie.bind(process.pid)
            timed_out = not _read(process, stdout, stderr, limit, started + timeout_seconds)
            if len(stdout) > limit:
                raise TooMuchOutputError(argv[0], stdout[:limit], undecodable)
        except BaseException:
            # Ctrl-C does not reach the command: it has its own session.
            _end(process)
            raise
        if timed_out:
            _end(process)
    # A process in the kernel may outlive even SIGKILL for a while.
    returncode = process.poll()
    return Result(
        argv=tuple(argv),
        returncode=-signal.SIGKILL if returncode is None else returncode,
        stdout=stdout.decode(errors=undecodable),
        stderr=stderr.decode(errors="replace"),
        timed_out=timed_out,
        seconds=time.monotonic() - started,
    )


class _ParentTie:
    """Kills a command and all it started when this process ends.

    It does not if this process is killed in the microseconds between the start and bind().

    The command inherits one end of a pipe, the other is only ours. When our death closes our end,
    the kernel sends SIGIO to its process group (man fcntl, F_SETOWN), as SIGKILL (F_SETSIG).
    PR_SET_PDEATHSIG would have to be set between fork and exec, by a fork of Python, which takes 3
    to 6 ms instead of 0.1 ms (docs/measured.md), and it misses what a wrapper starts.
    """

    def __init__(self) -> None:
        self.inherited, self._ours = os.pipe()

    def bind(self, group: int) -> None:
        """Let the process group die with this process."""
        fcntl.fcntl(self.inherited, fcntl.F_SETOWN, -group)
        fcntl.fcntl(self.inherited, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(self.inherited, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """Release the group: what the command left running stays alive."""
        fcntl.fcntl(self.inherited, fcntl.F_SETFL, 0)
        os.close(self.inherited)
        os.close(self._ours)


def _input_file(stdin: bytes | IO[bytes] | None) -> IO[bytes]:
    if stdin is None:
        return open(os.devnull, "rb")
    if not isinstance(stdin, bytes):
        return stdin
    # A file and not a pipe: a command that does not read it delays nobody.
    file = open(os.memfd_create("stdin"), "w+b")
    file.write(stdin)
    file.seek(0)
    return file


def _start(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: IO[bytes],
    tie: _ParentTie | None,
    folder: str | None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            cwd=folder,
            env=dict(environ),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=() if tie is None else (tie.inherited,),
        )
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        if isinstance(exc, ValueError):
            why = f"{exc}. Remove the NUL character from its arguments or the environment"
        raise CommandNotFound(f"{argv[0]} could not be started: {why}") from exc


def _read(
    process: subprocess.Popen[bytes],
    stdout: bytearray,
    stderr: bytearray,
    limit: int,
    deadline: float,
) -> bool:
    """Collect the output until the command has ended; False if it has not, and is to be stopped."""
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector, process.stdout, process.stderr:
        selector.register(process.stdout, selectors.EVENT_READ, stdout)
        selector.register(process.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            ready = selector.select(min(left, _TICK_SECONDS))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            del stderr[_MAX_STDERR_BYTES:]
            if len(stdout) > limit:
                return False
            # Not by pidfd_open: the kernel of RHEL 8 (4.18) does not have it.
            if not ready and process.poll() is not None:
                deadline = min(deadline, time.monotonic() + _DRAIN_SECONDS)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    return process.poll() is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command's session: TERM, then KILL after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_GRACE_SECONDS)
