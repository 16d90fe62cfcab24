"""A terminal for programs that fill the screen: a session of tmux."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

TIMEOUT_SECONDS = 60.0
_INTERVAL_SECONDS = 0.1


class Terminal:
    """A tmux session with one window, in which a shell runs."""

    def __init__(self, run: Callable[[Sequence[str]], str], socket: str) -> None:
        """Take what runs a command and returns its output, and the path of a new socket."""
        self._run = run
        self._call = ("tmux", "-N", "-S", socket)

    def tmux(self, *argv: str) -> str:
        return self._run([*self._call, *argv])

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def run(self, words: Sequence[str]) -> None:
        """Type a command on an empty screen; its exit code is shown after its end."""
        self.type("-l", f"clear; {shlex.join(words)}; echo exit code $?\n")

    def resize(self, size: tuple[int, int]) -> None:
        columns, lines = map(str, size)
        self.tmux("resize-window", "-x", columns, "-y", lines)

    def screen(self, *options: str) -> str:
        return self.tmux("capture-pane", "-p", *options)

    def shows(self, text: str) -> str:
        """Wait until the screen shows a text; return the screen."""
        return self._wait(lambda screen: text in screen, f"{text!r} is not")

    def matches(self, expression: str) -> str:
        """Wait until an expression finds something on the screen; return the screen."""
        return self._wait(
            lambda screen: bool(re.search(expression, screen)), f"{expression!r} is not"
        )

    def wait_until_gone(self, text: str) -> None:
        self._wait(lambda screen: text not in screen, f"{text!r} is still")

    def _wait(self, is_due: Callable[[str], bool], problem: str) -> str:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_due(screen := self.screen()):
            assert time.monotonic() < deadline, f"{problem} in\n{screen}"
            time.sleep(_INTERVAL_SECONDS)
        return screen


@contextlib.contextmanager
def opened(
    run: Callable[[Sequence[str]], str],
    start: Callable[[Sequence[str]], subprocess.Popen[str]],
    socket: str,
    size: tuple[int, int],
) -> Iterator[Terminal]:
    """Open a terminal of so many columns and lines, and close it.

    `run` runs a command and returns its output, or raises AssertionError; `start` starts one.
    """
    terminal = Terminal(run, socket)
    # Not a daemon: it is to end with the tests, also when they are killed.
    with start(["tmux", "-D", "-f", "/dev/null", "-S", socket]) as server:
        try:
            _open(terminal, size, server)
            yield terminal
        finally:
            # A test may have closed it.
            with contextlib.suppress(AssertionError):
                terminal.tmux("kill-server")
            server.terminate()


def _open(terminal: Terminal, size: tuple[int, int], server: subprocess.Popen[str]) -> None:
    columns, lines = map(str, size)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            terminal.tmux("new-session", "-d", "-x", columns, "-y", lines, "sh")
        except AssertionError:
            # It does not listen yet.
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(_INTERVAL_SECONDS)
        else:
            return
