"""Ctrl-C without a traceback, at any time.

While modules are loaded and after the command is done, SIGINT ends the process by the signal. In
between it raises KeyboardInterrupt, which main() turns into one line and exit code 130. Where
SIGINT is ignored from the start (`nohup`, `command &` in a script), it stays ignored.
"""

from __future__ import annotations

import os
import signal
import sys
import types

#: What a shell gives a command that Ctrl-C ended.
EXIT_CODE = 128 + signal.SIGINT


def raise_on_interrupt() -> None:
    """Let SIGINT raise KeyboardInterrupt from now on."""
    sys.excepthook = _show
    sys.unraisablehook = _show_unraisable
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_on_interrupt() -> None:
    """Let SIGINT end the process at once: nothing is left to be done, or it was pressed twice."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_interrupt(error: BaseException | None) -> bool:
    """Tell whether the error is KeyboardInterrupt, or followed from one.

    Python up to 3.11 turns it into RuntimeError in the body of a class, and C extensions turn it
    into ImportError and others.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _show(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    # What main() could not catch came while it handled the one before.
    if not is_interrupt(error):
        sys.__excepthook__(kind, error, trace)


def _show_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if not is_interrupt(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)
        return
    # It came within a destructor or another callback: Python would drop it and go on. It cannot be
    # raised from here, and a process may end at any time.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
