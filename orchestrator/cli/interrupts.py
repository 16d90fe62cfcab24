"""Ctrl-C without a traceback, and unexpected exceptions.

While modules are loaded and after the command is done, SIGINT ends the process by the signal. In
between it raises KeyboardInterrupt, which main() turns into one line and exit code 130. Where
SIGINT is ignored from the start (`nohup`, `command &` in a script), it stays ignored.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
import types
from collections.abc import Mapping
from pathlib import Path

#: Exit code of a command that Ctrl-C ended, as in a shell.
INTERRUPTED = 128 + signal.SIGINT
#: EX_SOFTWARE of sysexits.h, an internal software error.
UNEXPECTED = 70
#: If set, a traceback is printed instead of written to a file.
TRACEBACK_VARIABLE = "ORCHESTRATOR_TRACEBACK"
TRACEBACK_FOLDER = "tracebacks"
#: Older files are removed: a controller may meet the same bug every minute.
_MAX_TRACEBACKS = 10
_MAX_MESSAGE_CHARACTERS = 500
_MAX_TRACEBACK_CHARACTERS = 256 * 1024


def raise_on_interrupt() -> None:
    """Let SIGINT raise KeyboardInterrupt from now on."""
    sys.excepthook = _handle_exception
    sys.unraisablehook = _handle_unraisable
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_on_interrupt() -> None:
    """Let SIGINT end the process at once from now on."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether the error is KeyboardInterrupt or was caused by one.

    Python 3.11 turns it into RuntimeError in the body of a class; C extensions turn it into
    ImportError and others.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _handle_exception(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    # An interrupt that main() could not catch came while it handled an earlier one.
    if not is_interrupt(error):
        sys.__excepthook__(kind, error, trace)


def _handle_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if not is_interrupt(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)
        return
    # In a destructor or another callback: Python would ignore it and continue. It cannot be raised
    # from here, and a process may end at any time.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def report_unexpected(error: BaseException, environ: Mapping[str, str]) -> str:
    """Write the traceback of an unexpected exception to a file, and return the message."""
    import traceback

    from orchestrator.text import escaping

    text = "".join(traceback.format_exception(error))
    message = escaping.visible(f"{type(error).__name__}: {error}".removesuffix(": "))
    if len(message) > _MAX_MESSAGE_CHARACTERS:
        message = message[: _MAX_MESSAGE_CHARACTERS - 3] + "..."
    head = f"Error: {message}. This is a bug in orchestrator"
    if environ.get(TRACEBACK_VARIABLE):
        return f"{escaping.lines(text)}{head}."
    try:
        path = _write_traceback(text, environ)
    # If the folder cannot be used, the first error is still the one to show.
    except Exception:
        return f"{head}; {TRACEBACK_VARIABLE}=1 shows the traceback."
    return f"{head}; its traceback is in {escaping.visible(str(path))}"


def _write_traceback(text: str, environ: Mapping[str, str]) -> Path:
    from orchestrator import files
    from orchestrator.config import paths

    # Reading the configuration may be what failed, so only the environment is used.
    folder = paths.xdg(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator"
    folder /= TRACEBACK_FOLDER
    files.make_private_folder(folder)
    now = datetime.datetime.now(datetime.UTC)
    path = folder / f"{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(text[-_MAX_TRACEBACK_CHARACTERS:])
    for old in sorted(folder.glob("*.txt"))[:-_MAX_TRACEBACKS]:
        # Another process may have removed it.
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    return path
