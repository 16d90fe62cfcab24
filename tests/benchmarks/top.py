"""CPU time of `top`: until the first list of jobs is on the screen, and while nothing changes."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pathlib
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping

from tests.benchmarks import startup

PAINT_SECONDS, IDLE_PERCENT = 0.5, 1.0
#: The size of a common terminal, and of a large one.
SIZES = ((80, 24), (200, 50))
#: Until the states are refreshed and the modules for it are loaded.
_SETTLE_SECONDS = 5.0
_TIMEOUT_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20, help="seconds")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if one exceeds its budget."""
    kept = True
    with tempfile.TemporaryDirectory() as name:
        environ = startup.filled(pathlib.Path(name), arguments.jobs)
        newest = f"train-{arguments.jobs % 100}".encode()
        print(f"{arguments.jobs} jobs; CPU of `top`:")
        for columns, lines in SIZES:
            # The first one writes bytecode.
            times = [
                _first_paint(environ, newest, columns, lines) for _ in range(arguments.repeats + 1)
            ][1:]
            median = statistics.median(times)
            kept &= median <= PAINT_SECONDS
            print(
                f"  first list, {columns}x{lines}  {median:.2f} s (budget {PAINT_SECONDS:g} s), "
                f"lowest {min(times):.2f} s, highest {max(times):.2f} s"
            )
        percent = _idle(environ, newest, arguments.idle)
        kept &= percent <= IDLE_PERCENT
        print(f"  idle  {percent:.2f} % of a core (budget {IDLE_PERCENT:g} %)")
    return 0 if kept else 1


def _first_paint(environ: Mapping[str, str], shown: bytes, columns: int, lines: int) -> float:
    with _started(environ, columns, lines) as (pid, terminal):
        _read_until(terminal, shown)
        return _cpu_seconds(pid)


def _idle(environ: Mapping[str, str], shown: bytes, seconds: float) -> float:
    with _started(environ, *SIZES[0]) as (pid, terminal):
        _read_until(terminal, shown)
        _read_for(terminal, _SETTLE_SECONDS)
        before = _cpu_seconds(pid)
        _read_for(terminal, seconds)
        return 100 * (_cpu_seconds(pid) - before) / seconds


@contextlib.contextmanager
def _started(environ: Mapping[str, str], columns: int, lines: int) -> Iterator[tuple[int, int]]:
    """Run `top` in a terminal of its own; yield its process ID and the terminal."""
    pid, terminal = pty.fork()
    if not pid:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        settings = {**os.environ, **environ, "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-m", "orchestrator", "top"], settings)
    try:
        yield pid, terminal
    finally:
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):
            _read_for(terminal, _TIMEOUT_SECONDS)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, shown: bytes) -> None:
    output = b""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while shown not in output:
        assert time.monotonic() < deadline, output
        if select.select([terminal], [], [], 1)[0]:
            output += os.read(terminal, 65536)


def _read_for(terminal: int, seconds: float) -> None:
    """Read what is written in this time. Raises OSError when the program has ended."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            os.read(terminal, 65536)


def _cpu_seconds(pid: int) -> float:
    # clock_getcpuclockid (man 3), which Python lacks: nanoseconds, not ticks that may miss or
    # count bursts of a timer.
    return time.clock_gettime((~pid << 3) | 2)
