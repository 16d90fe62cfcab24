"""Running one command: its own session, a time limit, its answer; never a shell."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from orchestrator import errors

#: After TERM a command has this long before KILL.
_TERM_GRACE_SECONDS = 2.0
#: A command that ended may have left its pipes to a child: they are read for this much longer.
_DRAIN_SECONDS = 0.5
#: How often a silent command is looked at.
_TICK_SECONDS = 0.1
#: How often, and how many times, one is looked at that has closed its pipes.
_SHORT_LOOK_SECONDS = 2e-5
_SHORT_LOOKS = 20
#: More of stderr than this is dropped.
_STDERR_BYTES = 256 * 1024
#: No command of Slurm's prints as much for one user; it is all kept in memory.
_STDOUT_BYTES = 128 * 1024 * 1024
#: A longer line is no line of Slurm's: it is passed on cut.
_LINE_BYTES = 4 * 1024 * 1024


class CommandNotFound(errors.SlurmError):
    """The command could not be started."""


class TooMuchOutputError(errors.SlurmError):
    """The command printed more than is kept, and was ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command said."""

    argv: tuple[str, ...]
    #: negative: the signal that ended it
    returncode: int
    #: empty where the lines were handed on one by one
    stdout: str
    stderr: str
    #: it was given up after its time limit, and killed
    timed_out: bool
    #: before it was started
    started_at: datetime.datetime
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
    stdin: bytes | None = None,
) -> Answer:
    """Run a command and return its answer.

    Raises CommandNotFound where it can't be started, and TooMuchOutputError where its output does
    not end: a broken command would fill the memory until its time is up.

    folder: where it runs, if not here. stdin: what it reads, if anything.
    die_with_parent: it and all it started get SIGKILL when this process ends, so that
    "the submitter is dead" also means "its sbatch is dead".
    """
    chunks: list[bytes] = []
    left_bytes = _STDOUT_BYTES

    def keep(chunk: bytes) -> None:
        nonlocal left_bytes
        left_bytes -= len(chunk)
        if left_bytes < 0:
            mib = _STDOUT_BYTES // 1024**2
            raise TooMuchOutputError(f"{argv[0]} printed more than {mib} MiB and was ended")
        chunks.append(chunk)

    answer = _execute(argv, timeout_seconds, environ, keep, die_with_parent, folder, stdin)
    return dataclasses.replace(answer, stdout=b"".join(chunks).decode(errors="replace"))


def stream(
    argv: Sequence[str],
    timeout_seconds: float,
    environ: Mapping[str, str],
    on_line: Callable[[str], object],
) -> Answer:
    """Run a command and hand on each line of its stdout as it comes; memory stays constant."""
    rest = b""

    def split(chunk: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))
        if len(rest) > _LINE_BYTES:
            rest = rest[:_LINE_BYTES]

    answer = _execute(argv, timeout_seconds, environ, split)
    if rest:
        on_line(rest.decode(errors="replace"))
    return answer


class _Tie:
    """Ends a command and all it started with SIGKILL when this process ends.

    Not where this one is killed between the command's start and bind(), some microseconds later.

    They inherit the one end of a pipe; when the other, which is ours alone, is closed by our end,
    its SIGIO goes to their process group (man fcntl, F_SETOWN), as SIGKILL (F_SETSIG).
    PR_SET_PDEATHSIG must be set between fork and exec, by a fork of Python: 3 to 6 ms where this
    takes 0.1 ms (docs/measured.md); and it does not reach what a wrapper of the command starts.
    """

    def __init__(self) -> None:
        self.inherited, self._ours = os.pipe()

    def bind(self, group: int) -> None:
        """Let the process group die with us, from now on."""
        fcntl.fcntl(self.inherited, fcntl.F_SETOWN, -group)
        fcntl.fcntl(self.inherited, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(self.inherited, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """Let live what the command left behind."""
        fcntl.fcntl(self.inherited, fcntl.F_SETFL, 0)
        os.close(self.inherited)
        os.close(self._ours)


def _execute(
    argv: Sequence[str],
    timeout_seconds: float,
    environ: Mapping[str, str],
    on_stdout: Callable[[bytes], object],
    die_with_parent: bool = False,
    folder: str | None = None,
    stdin: bytes | None = None,
) -> Answer:
    started_at = datetime.datetime.now(datetime.UTC)
    started = time.monotonic()
    with contextlib.ExitStack() as undo:
        tie = undo.enter_context(contextlib.closing(_Tie())) if die_with_parent else None
        with _input(stdin) as given:
            process = _spawn(argv, environ, given, tie, folder)
        return _attend(process, argv, on_stdout, started_at, started, timeout_seconds)


def _attend(
    process: subprocess.Popen[bytes],
    argv: Sequence[str],
    on_stdout: Callable[[bytes], object],
    started_at: datetime.datetime,
    started: float,
    timeout_seconds: float,
) -> Answer:
    """Hear what a command says, to its end or that of its time, counted from `started`."""
    stderr = bytearray()

    def keep(chunk: bytes) -> None:
        stderr.extend(chunk[: max(0, _STDERR_BYTES - len(stderr))])

    assert process.stdout is not None and process.stderr is not None
    try:
        with process.stdout, process.stderr:
            sinks = {process.stdout: on_stdout, process.stderr: keep}
            timed_out = not _pump(process, sinks, started + timeout_seconds)
            if timed_out:
                _end(process)
    except BaseException:
        # Ctrl-C does not reach the command by itself: it has a session of its own.
        _end(process)
        raise
    # A process stuck in the kernel outlives even SIGKILL for a while.
    returncode = process.poll()
    return Answer(
        argv=tuple(argv),
        returncode=-signal.SIGKILL if returncode is None else returncode,
        stdout="",
        stderr=stderr.decode(errors="replace"),
        timed_out=timed_out,
        started_at=started_at,
        seconds=time.monotonic() - started,
    )


def _input(stdin: bytes | None) -> IO[bytes]:
    if stdin is None:
        return open(os.devnull, "rb")
    # A file and no pipe: who does not read it keeps nobody waiting.
    given = open(os.memfd_create("stdin"), "w+b")
    given.write(stdin)
    given.seek(0)
    return given


def _spawn(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: IO[bytes],
    tie: _Tie | None,
    folder: str | None = None,
) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
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
    except OSError as problem:
        raise CommandNotFound(
            f"{argv[0]} could not be started: {problem.strerror or problem}. "
            "Is this a host of the cluster? Load its Slurm module or put Slurm's commands on "
            "PATH; without Slurm, use --scheduler local."
        ) from problem
    except ValueError as problem:
        raise CommandNotFound(
            f"{argv[0]} could not be started: {problem}. Remove the NUL character from its "
            "arguments or the environment."
        ) from problem
    try:
        if tie is not None:
            tie.bind(process.pid)
    except BaseException:
        _end(process)
        raise
    return process


def _pump(
    process: subprocess.Popen[bytes],
    sinks: Mapping[IO[bytes], Callable[[bytes], object]],
    deadline: float,
) -> bool:
    """Hand on what the command writes until it has ended; False when the deadline came first."""
    ended = False
    with selectors.DefaultSelector() as selector:
        for pipe, sink in sinks.items():
            selector.register(pipe, selectors.EVENT_READ, sink)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return process.poll() is not None
            ready = selector.select(min(left, _TICK_SECONDS))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if chunk:
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
            # Not by pidfd_open: the kernel of RHEL 8 (4.18) has none.
            if not ready and not ended and process.poll() is not None:
                ended = True
                deadline = min(deadline, time.monotonic() + _DRAIN_SECONDS)
    return _ends(process, deadline)


def _ends(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for the end of a command that has closed its pipes; False when the deadline came first.

    It is some microseconds away then, and Popen.wait with a time limit sleeps 0.5 ms at the least.
    """
    for _ in range(_SHORT_LOOKS):
        if process.poll() is not None:
            return True
        time.sleep(_SHORT_LOOK_SECONDS)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all it started: TERM to its session, KILL after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_GRACE_SECONDS)
