"""A program that runs beside this process: we write its stdin and read its stdout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from orchestrator.processes import process

#: A program gets this long after the end of its stdin, and then after SIGTERM.
_END_SECONDS = 2.0


class Piped:
    """A running program. Its stderr and terminal are ours: ssh asks for passwords there."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], stderr: IO[bytes] | None = None
    ) -> None:
        """Start it; raises CommandNotFound. stderr: a file instead of ours."""
        # Ctrl-C on the terminal must not end it: we decide what Ctrl-C does.
        with _ignored(signal.SIGINT):
            try:
                self._process = subprocess.Popen(
                    list(argv),
                    env=dict(environ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    bufsize=0,
                )
            except (OSError, ValueError) as error:
                raise _not_started(argv, error) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipes = (self._process.stdin, self._process.stdout)
        self.stdin, self.stdout = (pipe.fileno() for pipe in self._pipes)

    def stop(self) -> None:
        """Let it end, from another thread than the one that reads its output."""
        self._process.terminate()

    def end(self, *, at_once: bool = False) -> int:
        """Close its pipes, wait for its end, and return its exit code; negative: a signal.

        at_once: without time to end by itself.
        """
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        for stop in (self._process.terminate, self._process.kill):
            if not at_once:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return self._process.wait(_END_SECONDS)
            stop()
            at_once = False
        return self._process.wait()


def converse(
    argv: Sequence[str], environ: Mapping[str, str], sent: bytes, *, limit_bytes: int
) -> tuple[int, bytes]:
    """Run a program that reads `sent`; return its exit code and stdout, however long it takes.

    Its stderr and terminal are ours. Ctrl-C on the terminal ends it too. Raises CommandNotFound,
    and TooMuchOutputError if it prints more than `limit_bytes`: it is stopped then.
    """
    # A file and not a pipe: what does not read it delays nobody.
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(sent)
        file.seek(0)
        try:
            started = subprocess.Popen(
                list(argv), env=dict(environ), stdin=file, stdout=subprocess.PIPE
            )
        except (OSError, ValueError) as error:
            raise _not_started(argv, error) from error
    assert started.stdout is not None
    # Popen waits for its end.
    with started:
        try:
            received = started.stdout.read(limit_bytes + 1)
            if len(received) > limit_bytes:
                raise process.TooMuchOutputError(argv[0], bytearray(received[:limit_bytes]))
        except BaseException:
            started.kill()
            raise
    return started.returncode, received


def _not_started(argv: Sequence[str], error: Exception) -> process.CommandNotFound:
    why = getattr(error, "strerror", None) or error
    return process.CommandNotFound(f"{argv[0]} could not be started: {why}")


@contextlib.contextmanager
def _ignored(number: int) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
